"""Check of checkpoints against what the tables note: neither may be older than the other."""

from collections.abc import Iterator, Sequence

import schemas
from pipeline.config.stages import DISPATCH, INGEST, SCHEDULE, STAGES
from pipeline.delta.checkpoints import SOURCES
from pipeline.delta.logs.entries import Commit
from pipeline.dispatch.prepared import PREPARED, Prepared
from pipeline.doctor.look import Finding, Look, error, rows_of
from pipeline.doctor.stages import Standing

_TABLES = {
    INGEST: (schemas.MESSAGES, schemas.REPLACED, schemas.REJECTED_INGEST, schemas.SEGMENTS),
    SCHEDULE: (schemas.REDELIVERY, schemas.REJECTED_SCHEDULE),
    DISPATCH: (schemas.REJECTED_DISPATCH, schemas.DELIVERIES, schemas.PUBLICATIONS),
}
Noted = dict[str, Commit]
"""The last commit of a stage to each of its tables, by name."""


def checkpoints(look: Look) -> Iterator[Finding]:
    """The checkpoint of each stage goes with its tables."""
    for stage in STAGES:
        # What a stage has noted it had logged before: the folder is listed again, after the tables.
        now = Standing(look.root, stage)
        noted = {table.name: note for table in _TABLES[stage] if (note := look.table(table).log.last_note(stage))}
        owners = {note.owner for note in noted.values()}
        if stage == DISPATCH:
            owners |= {each.owner for each in look.shelf}
        yield from _readable(look, now)
        foreign = owners - {now.owner, *now.origin.after}
        if foreign:
            yield _foreign(look, now, foreign)
            continue
        mine = {table: note for table, note in noted.items() if note.owner == now.owner}
        if stage == DISPATCH:
            yield from _shelf_set_back(look, look.stages[stage], mine.get(schemas.DELIVERIES.name))
        yield from _behind(look, now, _by_batch(look, now, mine))
        yield from _set_back(look, look.stages[stage], mine)
        yield from _source(look, look.stages[stage])


def _readable(look: Look, now: Standing) -> Iterator[Finding]:
    """The last two batches are what a start reads."""
    torn = [batch for batch in now.batches[-2:] if now.end(batch) is None]
    if torn:
        text = f"the offsets of batch {torn[0]} cannot be read: the file is empty or cut off"
        yield error("offsets_torn", now.stage, text, look.rebuild(now.stage))


def _foreign(look: Look, now: Standing, foreign: set[str]) -> Finding:
    text = f"its tables were written by {', '.join(sorted(foreign))}, its checkpoint is {now.owner or 'missing'}"
    return error("foreign_owner", now.stage, text, look.rebuild(now.stage))


def _behind(look: Look, now: Standing, noted: Sequence[tuple[str, Commit]]) -> Iterator[Finding]:
    """The tables hold a batch that the checkpoint has not begun, or has begun with other ends."""
    for table, note in noted:
        if note.batch > now.last:
            text = f"{table} holds batch {note.batch}, the checkpoint ends with batch {now.last}: it is older"
            yield error("checkpoint_behind", now.stage, text, look.rebuild(now.stage))
            return
    for table, note in noted:
        begin, end = note.span
        logged = now.place(note.batch - 1), now.place(note.batch)
        begins = begin is None or logged[0] is None or note.batch - 1 not in {-1, *now.batches} or begin == logged[0]
        ends = end is None or logged[1] is None or end == logged[1]
        if not (begins and ends):
            theirs, ours = f"{begin} to {end}", f"{logged[0]} to {logged[1]}"
            text = f"{table} holds batch {note.batch} of {theirs}, the checkpoint has {ours} there: it is older"
            yield error("batch_differs", now.stage, text, look.rebuild(now.stage))
            return


def _by_batch(look: Look, now: Standing, mine: Noted) -> Sequence[tuple[str, Commit]]:
    """What is noted of the batches of a checkpoint, and what it has prepared; the furthest first."""
    shelf = look.shelf if now.stage == DISPATCH else ()
    prepared = [(PREPARED, _commit(each)) for each in shelf if each.owner == now.owner]
    return sorted([*mine.items(), *prepared], key=lambda each: -each[1].batch)


def _commit(prepared: Prepared) -> Commit:
    """The note of a prepared batch, as a commit says it."""
    begin, end = prepared.span
    return Commit(DISPATCH, prepared.owner, prepared.batch, {"begin": begin, "source": end})


def _set_back(look: Look, stage: Standing, mine: Noted) -> Iterator[Finding]:
    """The checkpoint has done batches of which the tables know nothing."""
    for table, batch in stage.written.items():
        if table == PREPARED:
            continue
        held = mine[table].batch if table in mine else -1
        if held < batch:
            text = f"{table} holds batch {held}, the checkpoint has written batch {batch}: the table is older"
            yield error("table_behind", stage.stage, text, look.rebuild(stage.stage))
            return
    if stage.stage == INGEST:
        yield from _ingest_set_back(look, stage, mine)


def _shelf_set_back(look: Look, stage: Standing, shown: Commit | None) -> Iterator[Finding]:
    """Parts were prepared that are neither visible nor noted: their notes were left out of a copy."""
    top = max(
        [0 if shown is None else int(shown.note["top"]), *(part.number for each in look.shelf for part in each.parts)]
    )
    if top < stage.written.get(PREPARED, 0):
        text = f"its last part is {top}, the checkpoint has written part {stage.written[PREPARED]}: notes are missing"
        yield error("table_behind", PREPARED, text, look.rebuild(DISPATCH))


def _ingest_set_back(look: Look, stage: Standing, mine: Noted) -> Iterator[Finding]:
    """A batch that took rows is in `messages` or `rejected_ingest`; one that is in `messages` is in `segments`."""
    done = stage.place(stage.committed)
    ends = [end for note in mine.values() if (end := note.span[1]) is not None]
    files = look.table(schemas.INBOX).log.after(max(ends, default=(stage.origin.version, stage.origin.index)))
    if done is not None and files is not None:
        rows = sum(rows_of(file) or 0 for place, file in files if place <= done)
        if rows:
            text = f"the checkpoint has taken {rows:,} rows of the inbox of which no table knows: the tables are older"
            yield error("table_behind", stage.stage, text, look.rebuild(stage.stage))
            return
    messages, segments = mine.get(schemas.MESSAGES.name), mine.get(schemas.SEGMENTS.name)
    behind = messages is not None and (segments is None or segments.batch < messages.batch)
    # What is due at once goes past `segments`, which a marker says later.
    behind = behind and messages is not None and bool(messages.note.get("near", True))
    if messages is not None and behind and stage.committed >= messages.batch:
        text = f"messages holds batch {messages.batch}, and segments does not: segments is older"
        yield error("table_behind", stage.stage, text, look.rebuild(stage.stage))


def _source(look: Look, stage: Standing) -> Iterator[Finding]:
    """What a stage has yet to read is there."""
    source, place = look.table(SOURCES[stage.stage]), stage.place(stage.committed)
    if place is None or not stage.begun:
        return
    rest = source.log.after(place)
    if rest is None:
        text = f"the log of {source.table.name} begins after version {place[0]}, where the stage stands"
        # Of `inbox` nobody can tell what was taken: the others are made from tables that can.
        back = f"bring the entries of {source.table.name}/_delta_log since then back from a copy"
        yield error("source_cut", stage.stage, text, back if stage.stage == INGEST else look.rebuild(stage.stage))
        return
    gone = source.gone(file["path"] for _, file in rest)
    if gone:
        text = f"{len(gone)} files of {source.table.name} that it has yet to read are gone: {gone[0]}"
        remedy = "bring them back from a copy; keep VACUUM's hours longer than any stage stands still"
        yield error("source_gone", stage.stage, text, remedy)
