"""Check of what is open of subscriptions that acknowledge: what was released is known to settle, and what waits comes.

A message that was released and is not open counts as settled. So one that settle passed over comes to nobody again.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import schemas
from pipeline.config.stages import SETTLE
from pipeline.delta.deltars import batches_of, query
from pipeline.delta.logs.entries import Commit
from pipeline.doctor.finding import Finding, error
from pipeline.doctor.look import Look, Opened
from pipeline.settle.plan import FOLLOWED
from pipeline.storage.arrays import longs
from pipeline.subscriptions.cursors import NEWEST, CursorRows, by_name
from pipeline.subscriptions.incarnations import Name
from state import Condition, CorruptBytes, Positions
from state.chunk import Chunk
from state.positionset import PositionSet

_BATCHES = 500
"""So many of the last batches of settle are looked at."""
_ACKNOWLEDGE = "SELECT topic, subscription FROM t WHERE active AND policies['ack'] = 'true'"
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
    names = {
        (row["topic"], row["subscription"]) for row in query(_ACKNOWLEDGE, t=look.table(schemas.SUBSCRIPTIONS).delta)
    }
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
    topic, subscription = name
    command = look.command(f"seek --topic {topic} --subscription {subscription} --earliest")
    return f"{command}, or to a later place before them: what is open comes again, too"
