"""Retention: rows that every subscription has got, and that are old enough, leave the tables.

Streams read the files that commits added, not the table as it is: a deletion is no news to them and takes nothing away
from a stage that stands still, as long as log and files stay (`pipeline.maintenance.cutlogs`). What reads tables as
they are (a rebuild of the schedule, a load, a backfill, dispatch's join) must not miss a row: so messages go only below
a mark under which all is settled, and their releases after them.
"""

import json
import logging
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

import schemas
from pipeline.config.paths import is_s3
from pipeline.config.routes import NotInDriver
from pipeline.config.settings import DAY_MS, HOUR_MS, LAST_INSTANT_MS
from pipeline.config.stages import DISPATCH, SETTLE
from pipeline.config.wallclock import wall_ms
from pipeline.delta.logs.entries import appended, entry, newest, rows_of
from pipeline.delta.logs.filestats import count as counted
from pipeline.delta.logs.filestats import first_ms, last_ms, span, span_ms
from pipeline.delta.logs.logstore import TableLog
from pipeline.delta.warehouse import Warehouse, ask
from pipeline.delta.writing.appender import removals
from pipeline.delta.writing.oncewriter import last_commit
from pipeline.dispatch.backlog import taken_since
from pipeline.dispatch.prepared import Visible
from pipeline.maintenance.exemptions import (
    COLUMNS,
    ExemptRows,
    Forgotten,
    OpenPositions,
    RetentionLimits,
    left_below,
    moves,
)
from pipeline.maintenance.readers import unread
from pipeline.maintenance.rewrite import Expired, Rewriting, RowPredicate, rest, sift
from pipeline.maintenance.unreleased import unreleased
from pipeline.subscriptions.incarnations import alive
from pipeline.subscriptions.markers import IngestMemory, Markers
from pipeline.subscriptions.settled import SettledMark, raise_to, read_mark
from schemas.columns import TIME
from state import tick_bits

_LOG = logging.getLogger(__name__)
_STEP_MS = 1 << 20
"""The mark moves in steps of 17 minutes or more: each move rewrites the files through which it goes."""
EVENTS_MS = HOUR_MS
"""Rows of `consumer_events` stay so long."""
_REASONS = ", ".join(f"'{reason}'" for reason in schemas.LEFT_OUT)
_BATCH, _LEDGER = "batch_id", "ledger_id"
_NOBODY = Forgotten()


class InTheWay(Exception):
    """Another commit took out files that were to be written anew. The next round tries again."""


def visible(warehouse: Warehouse) -> tuple[int, int]:
    """The instant of the last release that became visible, ms UTC, and the version of `redelivery` that it ends in.

    0 and 0 before the first one.
    """
    last = last_commit(warehouse, schemas.DELIVERIES, DISPATCH)
    if last is None:
        return 0, 0
    instant = max((released_at for *_, released_at in last.note["shown"]), default=0)
    return instant, Visible.of(last.note).source[0]


def raise_mark(warehouse: Warehouse, retain_ms: int) -> SettledMark:
    """Raise the mark to `retain_ms` before what was delivered last, if all below it is settled; give the mark.

    What the last version of `deliveries` made visible was released at an instant, and comes from a place in
    `redelivery`: dispatch takes releases in the order of their commits, so what was committed before is prepared or
    visible, or held, for good. Time is that instant, so a stage that stands still holds the mark. Every position below
    the new mark is looked for among those releases; one that is not found, whatever the reason, holds the mark where it
    is. So does what is held: nothing that was due with it or later goes before it.
    """
    files = warehouse.files
    mark = read_mark(files, warehouse.root)
    instant, version = visible(warehouse)
    if not instant:
        return mark
    memory = IngestMemory.addressed(Markers(warehouse))
    lives = alive(memory.lives)
    # Buckets of all ticks nest: a step of the widest one parts the messages and the releases at the same place.
    step = max(_STEP_MS, *(1 << tick_bits(life.tick_ms) for life in lives.values()), 1)
    # Read after what is visible: what was released before that and is not held now has been handed over.
    until = min(instant - retain_ms, before_held(warehouse))
    wanted = SettledMark(until // step * step, memory.next_ledger, memory.marker)
    if wanted.due_ms <= mark.due_ms:
        return mark
    if moves(warehouse, mark) and left_out_unread(warehouse, wanted):
        _LOG.warning("nothing is deleted: settle has yet to put back what dispatch left out until %d ms", wanted.due_ms)
        return mark
    held = unreleased(warehouse, lives, mark, wanted, version)
    if held:
        _LOG.warning("nothing is deleted: of what was due until %d ms, %d ledgers are not settled", wanted.due_ms, held)
        return mark
    return raise_to(files, warehouse.root, wanted)


def left_out_unread(warehouse: Warehouse, wanted: SettledMark) -> bool:
    """Whether dispatch may have left out something below a mark that settle does not know of, and puts back.

    It comes in a later round: the mark waits for it.
    """
    files, path = warehouse.files, warehouse.path(schemas.REJECTED_DISPATCH)
    last = last_commit(warehouse, schemas.CURSORS, SETTLE)
    read = -1 if last is None else int(last.note["refused"])
    for version in range(read + 1, newest(files, path) + 1):
        actions = entry(files, path, version)
        if actions is None:
            return True
        if any(first_ms(file.get("stats"), "due_time", -math.inf) <= wanted.due_ms for file in appended(actions)):
            return True
    return False


def before_held(warehouse: Warehouse) -> int:
    """Before this time was due what is not held, and what left `held` and may not be visible yet, ms UTC."""
    if not newest(warehouse.files, warehouse.path(schemas.HELD)):
        return LAST_INSTANT_MS
    (held,) = ask(warehouse, schemas.HELD, "SELECT MIN(message_due) AS first FROM {rows}")
    taken_out = taken_since(warehouse, last_commit(warehouse, schemas.DELIVERIES, DISPATCH))
    if taken_out is None:
        return 0
    firsts = held["first"], pc.min(taken_out.column("message_due")).as_py()
    # A bucket has what was due up to a step before its end; the mark moves in steps of at least that.
    return min((round(each.timestamp() * 1_000) - 1 for each in firsts if each is not None), default=LAST_INSTANT_MS)


def going(
    mark: SettledMark,
    deliveries_until: int | None,
    retained: RetentionLimits,
    letters_until: int,
    gone: Forgotten = _NOBODY,
) -> list[Expired]:
    """The rows that may go below a mark, in the order in which they must: a release never goes before its message.

    `pipeline.maintenance.rounds` says until when, from the settings of maintenance.

    Args:
        mark: what is settled.
        deliveries_until: deliveries due until then (ms) go too, as far as they are below the mark; None: they stay.
        retained: what stays for subscriptions that acknowledge.
        letters_until: of topics of dead letters goes what was due until then (ms).
        gone: what is forgotten of who came and went. Where only Spark reaches the table it stays.
    """
    until, kept = f"timestamp_millis({mark.due_ms})", retained.open
    below, letters = {"ledger_id": mark.ledger - 1}, ExemptRows(retained.letters, letters_until)
    found = [
        Expired.within(schemas.MESSAGES, kept, {"due_time": mark.due_ms, **below}, letters),
        # A redelivery is of a message that was due long before.
        Expired.within(
            schemas.REDELIVERY, kept, {"message_due": mark.due_ms, "due_time": mark.due_ms, **below}, letters
        ),
        # The last marker is the memory of ingest; who joined and left when is told by others, too.
        Expired(
            schemas.SEGMENTS,
            f"(last_due <= {until} OR marker < {mark.marker} AND first_ledger IS NULL)",
            look=RowPredicate(("last_due", *COLUMNS), partial(_is_over, mark), gone.among if gone.before else None),
        ),
    ]
    if retained.closed is not None:
        found.append(Expired.within(schemas.CLOSED, retained.closed, {"closed_at": mark.due_ms}))
    if deliveries_until is None:
        return found
    due = min(mark.due_ms, deliveries_until)
    limits = {"due_time": due, **below}
    # What became of a command is told by deliveries: its rows do not outlive them.
    # Nor do those of what else was left out.
    said = Expired.within(schemas.COMMANDS, OpenPositions(), limits)
    left_out = Expired(
        schemas.REJECTED_DISPATCH,
        f"reason IN ({_REASONS}) AND due_time <= timestamp_millis({due})",
        look=RowPredicate(("reason", "due_time"), partial(_was_left_out, due)),
    )
    return [
        *found,
        said,
        left_out,
        Expired.within(schemas.DELIVERIES, kept, limits),
        Expired.within(schemas.PUBLICATIONS, OpenPositions(), {"last_due": due}),
    ]


def delete_replaced(warehouse: Warehouse, mark: SettledMark) -> int:
    """Delete rows of `replaced` whose messages are gone; give how many.

    Of a message that is left it says that nobody gets it: a command may have put it off before it knew that, and
    whoever joins as `earliest` is sent what `messages` has. So this comes after the deletion of messages.

    Raises:
        InTheWay: another commit took out files in which such rows are.
    """
    if newest(warehouse.files, warehouse.path(schemas.REPLACED)) <= 0:
        return 0
    limits = {"due_time": mark.due_ms, _LEDGER: mark.ledger - 1}
    return delete(warehouse, Expired.within(schemas.REPLACED, left_below(warehouse, mark), limits))


def _is_over(mark: SettledMark, rows: pa.Table) -> pa.ChunkedArray:
    """Which rows of `segments` are below a mark, or say what its marker says."""
    said = pc.and_kleene(pc.less(rows["marker"], mark.marker), pc.is_null(rows["first_ledger"]))
    return pc.or_kleene(pc.less_equal(rows["last_due"], _instant(mark.due_ms)), said)


def _was_left_out(due_ms: int, rows: pa.Table) -> pa.ChunkedArray:
    """Which rows of `rejected_dispatch` are of messages that are there, and were due until an instant."""
    return pc.and_kleene(
        pc.is_in(rows["reason"], pa.array(schemas.LEFT_OUT)), pc.less_equal(rows["due_time"], _instant(due_ms))
    )


def _instant(ms: int) -> pa.Scalar:
    return pa.scalar(ms * 1_000, pa.timestamp("us", "UTC"))


def delete(warehouse: Warehouse, rows: Expired) -> int:
    """Delete rows in one commit, but for those that a stage has yet to read; give how many.

    Delta's own DELETE gives way to every append that comes while it runs, and while messages come there is always one.
    What goes is settled, no append adds to it: so appends are not in the way of this one (decision 0016).

    Raises:
        InTheWay: another commit took out files in which such rows are.
    """
    ahead = unread(warehouse, rows.table)
    if ahead is None:
        return 0
    rows = replace(rows, batches=ahead.batches)
    try:
        return _take_out(warehouse, Rewriting.of(warehouse, rows.table), rows)
    except NotInDriver:
        if is_s3(warehouse.root):
            # Delta's own commit would replace one that somebody has just made (decision 0024).
            _LOG.warning("no rows of %s are deleted: the table is not what it was made as", rows.table.name)
            return 0
        row = warehouse.spark.sql(f"DELETE FROM delta.`{warehouse.path(rows.table)}` WHERE {rows.coarse}").first()  # noqa: S608 - our own words
        return 0 if row is None else int(row[0])


def _take_out(warehouse: Warehouse, table: Rewriting, rows: Expired) -> int:
    """Write the files in which some rows go anew without them; take out those in which all do.

    Raises:
        NotInDriver: the log does not say how many rows such a file has, or says it wrong.
        InTheWay: another commit took out such files.
    """
    if not table.files:
        return 0
    oldest = rows.kept.oldest
    if oldest is not None and table.folder is None:
        _LOG.info("%s: rows from ledger %d on stay, which only Spark could tell apart", rows.table.name, oldest)
        rows = Expired(rows.table, rows.coarse)
    files = {unquote(file["path"]): file for file in table.files}
    counts = {path: _gone_by_log(rows, file) for path, file in files.items()}
    going = {path: count for path, count in counts.items() if count is not None}
    doubtful = [path for path, count in counts.items() if count is None]
    if doubtful and not _is_sifted(table, rows):
        going = _counted(warehouse.read(table.table, table.seen).where(rows.going), table.table)
        if not going.keys() <= files.keys():
            raise NotInDriver
        doubtful = [path for path in going if _keeps(rows, files[path])]
    sifted, cut = sift(table, rows, doubtful)
    going |= sifted
    files = {path: file for path, file in files.items() if going.get(path)}
    if rows_of(files.values()) is None:
        raise NotInDriver
    left = {path: (rows_of([file]) or 0) - going[path] for path, file in files.items()}
    partly = [f"{table.path}/{path}" for path, count in left.items() if count and path not in sifted]
    fresh = table.appender.put(rest(table, rows, cut)) if cut else []
    if partly:
        found = warehouse.spark.read.schema(table.table.schema).parquet(*partly)
        fresh += table.appender.write(found.where(f"NOT coalesce({rows.going}, false)"))
    sizes = {file["path"]: file["size"] for file in files.values()}
    if sizes and not table.put_in_place(sizes, sum(left.values()), fresh, {}, fewer=True):
        raise InTheWay
    return sum(going[path] for path in files)


def _gone_by_log(rows: Expired, file: Mapping[str, Any]) -> int | None:
    """How many rows of a file go, when its entry in the log tells it: none, or all; else None."""
    stats, times = file["stats"], {each.name for each in rows.table.columns.fields if each.kind == TIME}
    try:
        spans = {name: span_ms(stats, name) if name in times else span(stats, name) for name in rows.limits}
        if any(spans[name][0] > top for name, top in rows.limits.items()):
            return 0
        first, last = span(stats, _BATCH)
    except KeyError:
        return None
    # Delta cuts times to milliseconds.
    old = all(spans[name][1] + (name in times) <= top for name, top in rows.limits.items()) and bool(spans)
    known = not rows.exempt.topics and not any(first <= batch <= last for batch in rows.batches)
    nulls = any(each.nullable for each in rows.table.columns.fields if each.name in rows.limits)
    return counted(stats) if old and known and not nulls and not _keeps(rows, file) else None


def _is_sifted(table: Rewriting, rows: Expired) -> bool:
    """Whether rows of a table are looked at as arrays, one by one."""
    needed = {_BATCH} if rows.look is not None else {_BATCH, _LEDGER, *rows.limits} if rows.limits else {""}
    return table.folder is not None and needed <= set(table.table.columns.names)


def _counted(old: DataFrame, table: schemas.Table) -> dict[str, int]:
    """How many rows of each file go, by its path. A job."""
    found = old.groupBy("_metadata.file_path").count().collect()
    return {unquote(row["file_path"]).rpartition(f"/{table.name}/")[2]: row["count"] for row in found}


def _keeps(rows: Expired, file: Mapping[str, Any]) -> bool:
    """Whether something in a file may be kept, by its entry in the log."""
    if rows.kept.oldest is None:
        return False
    try:
        return rows.kept.between(*span(file["stats"], _LEDGER))
    except KeyError:
        return True


def empty_inbox(warehouse: Warehouse, mark: SettledMark) -> int:
    """Take out the files of the inbox whose rows ingest has taken and were published below a mark; give how many rows.

    Rows of the inbox do not say which commit they are of, and need not say when they were published. So files go as a
    whole. A row without a time of publication stays no longer than its neighbours.
    """

    def old(file: Mapping[str, Any]) -> bool:
        return last_ms(file["stats"], "publish_time", math.inf) <= mark.due_ms

    return _take_out_files(warehouse, schemas.INBOX, old)


def forget_events(warehouse: Warehouse, now_ms: int) -> int:
    """Take out the files of `consumer_events` that settle has read and that are an hour old; give how many rows.

    No program reads them any more: settle and the clients follow the log, and who comes later begins with `cursors`. A
    person who wonders why a message came again finds what its consumers said of the last hour. More would be much: an
    event may be one message.
    """

    def old(file: Mapping[str, Any]) -> bool:
        # Consumers say the time, by clocks of their own.
        return not now_ms - EVENTS_MS < last_ms(file["stats"], "at", 0) < now_ms + DAY_MS

    return _take_out_files(warehouse, schemas.CONSUMER_EVENTS, old)


def _take_out_files(warehouse: Warehouse, table: schemas.Table, old: Callable[[Mapping[str, Any]], bool]) -> int:
    """Take out the old files of a table that have nothing that a stage has yet to read; give how many rows."""
    ahead = unread(warehouse, table)
    if ahead is None:
        return 0
    log = TableLog(warehouse.session, warehouse.path(table))
    while True:
        version, files = log.files()
        gone = [file for file in files if file["path"] not in ahead.files and old(file)]
        # A lost race for the version is run again, on what the table is then.
        if not gone or log.add(version + 1, _removal(gone)):
            return rows_of(gone) or 0


def _removal(files: Iterable[Mapping[str, Any]]) -> list[str]:
    """The actions of a version that takes files out of a table that has no partitions."""
    info = {"timestamp": wall_ms(), "operation": "DELETE", "operationParameters": {}, "engineInfo": "delayline"}
    gone = removals({file["path"]: file["size"] for file in files}, changes=True)
    return [json.dumps(action) for action in ({"commitInfo": info}, *gone)]
