"""Checks of settle: it follows what consumers say and what is released, and nothing that is open is lost to it.

A message that was released and is not open counts as settled. So one that settle passed over comes to nobody again.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import schemas
from pipeline.config.spelling import subscription_options
from pipeline.config.stages import SETTLE
from pipeline.delta.deltars import batches_of, query
from pipeline.delta.logs.entries import Commit, info_of
from pipeline.doctor.look import Finding, Look, Opened, error, rows_of, warning
from pipeline.settle.plan import FOLLOWED
from pipeline.storage.arrays import longs
from pipeline.subscriptions.cursors import NEWEST, CursorRows, by_name
from pipeline.subscriptions.incarnations import Name
from pipeline.subscriptions.letters import APPLICATION, BEFORE_LETTERS, LETTERS, transaction
from state import Condition, CorruptBytes, Positions, unpack_leases
from state.chunk import Chunk
from state.positionset import PositionSet

_BATCHES = 500
"""So many of the last batches of settle are looked at."""
_PATIENCE_MS = 60_000
"""Settle may be so far behind, by the times of commits."""
_NEW_LIFE = "restore all tables from one copy; or unsubscribe and subscribe again: what is open then counts as settled"
_NEW_LIVES = (
    "restore all tables from one copy; or unsubscribe all that acknowledge, start the stages, and then subscribe them "
    "again: what is open then counts as settled"
)


def settled(look: Look) -> Iterator[Finding]:
    """What subscriptions need that acknowledge, or have messages with another due time: a settle that moves."""
    for line in look.registry.registered.lines.values():
        if line.wrong is not None:
            remedy = look.command("policy", "set", *subscription_options(*line.named)) + " with what is allowed"
            text = f"its policies cannot be followed: {line.wrong}"
            yield error("policy_refused", "/".join(line.named), text, remedy)
    for topic, why in look.registry.registered.topics.with_days(look.calendars).wrong.items():
        remedy = look.command("policy", "set", "--topic", topic) + " with what is allowed"
        yield error("policy_refused", topic, f"its policies cannot be followed: {why}", remedy)
    names = _acknowledging(look)
    last = look.table(schemas.CURSORS).log.last(SETTLE)
    if names or (last is not None and last[1].note.get("follows")):
        cursors = by_name(query(NEWEST.format(rows="t"), t=look.table(schemas.CURSORS).delta))
        for name in sorted(cursors):
            yield from _bytes(name, cursors[name])
        yield from _behind(look, last)
        yield from _letters(look)


def _acknowledging(look: Look) -> set[Name]:
    return set(look.registry.registered.acknowledging)


def _letters(look: Look) -> Iterator[Finding]:
    """The dead letters that batches say they have appended are in `inbox`, as far as the logs of both reach."""
    inbox = look.table(schemas.INBOX)
    for version, noted in look.table(schemas.CURSORS).log.notes(SETTLE, _BATCHES):
        wanted, before = noted.note.get(LETTERS), noted.note.get(BEFORE_LETTERS)
        if wanted is None or before is None or (rest := inbox.log.after((before + 1, -1))) is None:
            continue
        ours = {place for (place, _), _ in rest if _says(inbox, place, noted)}
        counts = [rows_of(file) for (place, _), file in rest if place in ours]
        found = sum(each for each in counts if each is not None)
        if found < wanted and None not in counts:
            text = f"batch {noted.batch} of settle (version {version}) gave {wanted} dead letters, {found} are in inbox"
            number = f"the number {_number(noted)} noted under '{APPLICATION}-again' (docs/operations.md)"
            remedy = f"find them by the steps of {look.command('trace')}, and append them by one version, with {number}"
            yield error("dead_letters_gone", "inbox", text, remedy)


def _says(inbox: Opened, version: int, noted: Commit) -> bool:
    """Whether a version of `inbox` has dead letters of a batch."""
    names = (each.get("txn") or {} for each in inbox.log.actions(version) or [])
    return any(
        each.get("version") == _number(noted) and str(each.get("appId")).startswith(APPLICATION) for each in names
    )


def _number(noted: Commit) -> int:
    return transaction(noted.batch, int(noted.note.get("letters", 0)))[1]


def _bytes(name: Name, rows: CursorRows) -> Iterator[Finding]:
    try:
        rows.outstanding().check_invariants()
        if schemas.CURSOR_LEASES in rows.blocks:
            unpack_leases(rows.blocks[schemas.CURSOR_LEASES])
    except CorruptBytes as torn:
        text = f"its rows of `cursors` cannot be read: {torn}"
        yield error("cursor_torn", "/".join(name), text, _NEW_LIFE)


def _behind(look: Look, last: tuple[int, Commit] | None) -> Iterator[Finding]:
    """What is committed to the tables that settle follows is read within a minute, and is there until then."""
    if last is None:
        # It begins with the first subscription that it sees.
        return
    done, read = _ms(look.table(schemas.CURSORS), last[0]), last[1].note
    for field, table in FOLLOWED.items():
        if table is schemas.COMMANDS and field not in read:
            # An earlier version of this project wrote it.
            continue
        source, version = look.table(table), int(read.get(field, -1))
        rest = source.log.after((version + 1, -1))
        if rest is None:
            text = f"the log of {table.name} begins after version {version}, up to which settle has read it"
            yield error("source_cut", SETTLE, text, _NEW_LIVES)
            continue
        gone = source.gone(file["path"] for _, file in rest)
        if gone:
            text = f"{len(gone)} files of {table.name} that it has yet to read are gone: {gone[0]}"
            yield error("source_gone", SETTLE, text, "bring them back from a copy")
        late = max((_ms(source, place[0]) for place, _ in rest), default=0) - done
        if late > _PATIENCE_MS:
            count = len({place[0] for place, _ in rest})
            text = f"it has not read {count} versions of {table.name}, up to {late // 1_000} s after its last commit"
            yield warning("settle_behind", table.name, text, f"start the stages: {look.command('run')}")


def _ms(opened: Opened, version: int) -> int:
    """When a version was committed, ms UTC."""
    timestamp: Any = info_of(opened.log.actions(version) or []).get("timestamp")
    return int(timestamp) if isinstance(timestamp, int) else 0


"""So many of the last batches of settle are looked at."""
_RUN = ("topic", "subscription", "life", "ledger_id", "first_entry", "last_entry")
_RETRIES = (
    f"SELECT topic, subscriptions, redelivery_count, {schemas.ROUND} AS number, chunk FROM t WHERE kind = 'retry'"  # noqa: S608 - our own words
)
_OLD_RETRIES = _RETRIES.replace(schemas.ROUND, "redelivery_count")
_SHOWN = 3
_Round = tuple[Name, int, int]
"""Name, redelivery count, round."""
_NOTHING = PositionSet()


def opened(look: Look) -> Iterator[Finding]:
    """What was released is open or was settled by somebody; what waits to come again is in the index or was there."""
    last = look.table(schemas.CURSORS).log.last(SETTLE)
    names = _acknowledging(look)
    if last is None:
        return
    yield from _ahead(look, last[1], follows=bool(names or last[1].note.get("follows")))
    if not names:
        return
    cursors = by_name(query(NEWEST.format(rows="t"), t=look.table(schemas.CURSORS).delta))
    mine = {
        name: rows
        for name, rows in cursors.items()
        if name in names and name in look.lives and look.lives[name].number == rows.life and _whole(rows)
    }
    if mine:
        yield from _passed_over(look, mine)
        yield from _never_again(look, mine, int(last[1].note.get("released", -1)))


def _whole(rows: CursorRows) -> bool:
    """Whether they can be read; the check of settle tells when not."""
    try:
        rows.outstanding().check_invariants()
    except CorruptBytes:
        return False
    return True


def _ahead(look: Look, last: Commit, *, follows: bool) -> Iterator[Finding]:
    """Settle has read versions that a table does not have: its start is refused.

    While it follows nobody it begins at the present; of commands none is passed over.
    """
    for field, table in FOLLOWED.items():
        read, newest = last.note.get(field), look.table(table).log.newest
        if read is not None and int(read) > newest and (follows or table is schemas.COMMANDS):
            text = f"settle has read {table.name} up to version {read}, and the table ends with version {newest}"
            yield error("settle_ahead", table.name, text, "restore all tables from one copy (docs/operations.md)")


def _passed_over(look: Look, cursors: dict[Name, CursorRows]) -> Iterator[Finding]:
    """Batches of settle follow each other: none begins behind the end of the one before it."""
    redelivery, before = look.table(schemas.REDELIVERY), None
    lost: dict[Name, PositionSet] = {}
    for _, noted in look.table(schemas.CURSORS).log.notes(SETTLE, _BATCHES):
        begin = noted.note.get("begin")
        if begin and before is not None and before.get("follows"):
            for rows in _released(redelivery, int(before["released"]), int(begin["released"])):
                _add(lost, rows, cursors)
        before = noted.note
    for name, positions in sorted(lost.items()):
        for subject, text in _described(name, positions - _of(cursors[name])):
            yield error("passed_over", subject, f"{text} released and passed over by settle", _seek(look, name))


def _released(redelivery: Opened, after: int, upto: int) -> Iterator[pa.Table]:
    """What was released between the end of a batch and the beginning of the next one; mostly nothing."""
    for version in range(after + 1, upto + 1):
        for file in redelivery.log.added(version) or ():
            yield redelivery.rows(file["path"], _RUN)


def _add(found: dict[Name, PositionSet], rows: pa.Table, cursors: dict[Name, CursorRows]) -> None:
    for name, cursor in cursors.items():
        topic, subscription = (pc.equal(rows[column], each) for column, each in zip(_RUN[:2], name, strict=True))
        mine = rows.filter(pc.and_(pc.and_(topic, subscription), pc.equal(rows["life"], cursor.life)))
        found[name] = found.get(name, _NOTHING) | PositionSet.of(
            Positions.of(*(longs(mine, each) for each in _RUN[3:]))
        )


def _of(rows: CursorRows) -> PositionSet:
    """All that is open of a subscription."""
    return PositionSet.union(PositionSet.of(held.positions) for held in rows.outstanding().held(*Condition))


def _never_again(look: Look, cursors: dict[Name, CursorRows], released: int) -> Iterator[Finding]:
    """What waits to come again is in the index: a row of `segments` put it there, or it was released since."""
    waits: dict[_Round, PositionSet] = {}
    for name, rows in cursors.items():
        for held in rows.outstanding().held(Condition.WAITING):
            key = name, held.cell.redelivery_count, held.cell.round
            # What got another due time before its first delivery is in `messages`, too.
            if held.cell.redelivery_count:
                waits[key] = waits.get(key, _NOTHING) | PositionSet.of(held.positions)
    if not waits:
        return
    for row in _retries(look.table(schemas.SEGMENTS)):
        _take_out(waits, row, cursors)
    rest = look.table(schemas.REDELIVERY).log.after((released + 1, -1))
    if rest is None:
        # The check of settle says that its source is cut.
        return
    for _, file in rest:
        later: defaultdict[Name, PositionSet] = defaultdict(PositionSet)
        _add(later, look.table(schemas.REDELIVERY).rows(file["path"], _RUN), cursors)
        waits = {key: left - later[key[0]] for key, left in waits.items()}
    for name in sorted({key[0] for key in waits}):
        lost = PositionSet.union(left for key, left in waits.items() if key[0] == name)
        for subject, text in _described(name, lost):
            yield error("retry_gone", subject, f"{text} to come again, and in no row of `segments`", _seek(look, name))


def _retries(segments: Opened) -> Iterator[dict[str, Any]]:
    """The rows of what comes again, a batch of rows at a time."""
    has = any(field.name == "round" for field in segments.delta.schema().fields)
    for batch in batches_of(_RETRIES if has else _OLD_RETRIES, t=segments.delta):
        yield from batch.to_pylist()


def _take_out(waits: dict[_Round, PositionSet], row: dict[str, Any], cursors: dict[Name, CursorRows]) -> None:
    for who in row["subscriptions"]:
        name = row["topic"], who["name"]
        key = name, row["redelivery_count"], row["number"]
        if key in waits and who["life"] == cursors[name].life:
            waits[key] -= PositionSet.of_runs(Chunk.from_bytes(row["chunk"]).runs())


def _described(name: Name, positions: PositionSet) -> Iterator[tuple[str, str]]:
    """Positions for people, if there are any: of whom, how many, and the first of them."""
    count = len(positions)
    if count:
        some = [(ledger, entry) for ledger, entries in positions.by_ledger() for entry in entries[:_SHOWN]][:_SHOWN]
        more = ", ..." if count > _SHOWN else ""
        yield "/".join(name), f"{count:,} positions (ledger, entry) {', '.join(map(str, some))}{more} are"


def _seek(look: Look, name: Name) -> str:
    command = look.command("seek", *subscription_options(*name), "--earliest")
    return f"{command}, or to a later place before them: what is open comes again, too"
