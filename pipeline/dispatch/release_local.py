"""A release in this process, by whole arrays: no job is planned or started.

Whether Spark made a batch (`pipeline.dispatch.release_spark`) or this, its rows do not tell.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import groupby, pairwise
from operator import itemgetter, or_

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.config.options import Delivered
from pipeline.config.routes import SIZE, NotInDriver
from pipeline.config.settings import Settings
from pipeline.delta.checkpoints import Position
from pipeline.delta.reading.messages import Bounds, MessageLog, message_groups
from pipeline.delta.warehouse import Warehouse
from pipeline.delta.writing.appender import Appender
from pipeline.delta.writing.numbering import order_of
from pipeline.dispatch.closed import Closed, still_open
from pipeline.dispatch.core.holding import cut
from pipeline.dispatch.core.runs import at_time, with_reason
from pipeline.dispatch.prepared import Part
from pipeline.dispatch.priority import NO_PRIORITIES, Priorities, rank
from pipeline.dispatch.release import (
    ENTRY_BITS,
    LOOKED_UP,
    ORDER,
    Matched,
    Stamp,
    Window,
    again_bounds,
    taken_apart,
    window_of,
)
from pipeline.dispatch.withdrawnlog import withdrawn_rows
from pipeline.storage.arrays import IntArray, arrow_schema, longs, sizes
from pipeline.storage.gather import TEXTS, Gathered, cuts
from pipeline.storage.parquet import RowGroup, whole
from pipeline.subscriptions.incarnations import Name
from schemas import DELIVERIES, MESSAGE_MISSING, MESSAGES, REDELIVERY
from state.units import Ms, us

_OF_MESSAGE = ("topic", "ledger_id", "entry_id", "publish_time", "deliver_at", "sequence_id")


def local_runs(warehouse: Warehouse, begin: Position, end: Position, settings: Settings) -> pa.Table:
    """The rows of a batch of `redelivery`.

    Raises:
        NotInDriver: only Spark reaches them, or they are too many.
    """
    if begin.offset == end.offset and settings.driver_rows:
        return arrow_schema(REDELIVERY.columns).empty_table()
    found = warehouse.files_between(REDELIVERY, begin, end, settings.driver_rows)
    return whole(REDELIVERY, [path for _, path in found], settings.driver_bytes)


@dataclass(frozen=True)
class Found:
    """The positions of runs, and their messages.

    Attributes:
        window: what the runs span.
        run: the number of its run, for each position.
        entry: the entry of each position.
        wanted: tells ledger and entry of each position, and sorts like them.
        messages: the messages of the positions, in any order.
        found: positions that have a message.
        message: the number of their message.
    """

    window: Window
    run: IntArray
    entry: IntArray
    wanted: IntArray
    messages: Gathered
    found: IntArray
    message: IntArray

    @classmethod
    def of(cls, runs: pa.Table, log: MessageLog, settings: Settings) -> "Found":
        """The messages of some runs, at least one.

        Raises:
            NotInDriver: they are too many positions, or too many bytes without the texts of messages.
        """
        window = window_of(runs)
        run, entry = taken_apart(runs, settings.driver_rows)
        ledgers, place = np.unique(longs(runs, "ledger_id"), return_inverse=True)
        wanted = (place[run] << ENTRY_BITS) | entry
        messages, keys = _messages(log, window.bounds, ledgers, np.sort(wanted), settings.driver_bytes)
        found, message = matched(wanted, keys)
        same = pc.equal(_taken(runs, "topic", run[found]), _taken(messages.rows, "topic", message)).to_numpy(
            zero_copy_only=False
        )
        return cls(window, run, entry, wanted, messages, found[same], message[same])

    def pieces(self) -> Iterator[pa.Table]:
        """The messages of the positions that have one, in the columns `LOOKED_UP`; a piece is no larger than a file."""
        texts = self.messages.texts
        for first, last in cuts(texts.sizes[self.message], max(1, len(self.message))):
            found, message = self.found[first:last], self.message[first:last]
            columns = {"run": pa.array(self.run[found]), "entry_id": pa.array(self.entry[found])}
            own = texts.take(message)
            columns |= {name: own.column(name) for name in TEXTS}
            columns |= {name: _taken(self.messages.rows, name, message) for name in LOOKED_UP if name not in columns}
            yield pa.table(columns).select(LOOKED_UP)


@dataclass(frozen=True)
class LocalRelease:
    """The positions that somebody listens to, at least one, and their messages.

    Attributes:
        runs: what was released to subscriptions that are still there.
        matches: their positions and messages; those that have a message are in the order of delivery.
    """

    runs: pa.Table
    matches: Found

    @property
    def window(self) -> Window:
        """What the runs span."""
        return self.matches.window

    @classmethod
    def of(
        cls,
        runs: pa.Table,
        lives: Mapping[Name, int],
        log: MessageLog,
        settings: Settings,
        closed: Closed,
        priorities: Priorities = NO_PRIORITIES,
    ) -> "LocalRelease | None":
        """The release of a batch; None when nobody listens to any of it.

        Raises:
            NotInDriver: it has too many positions, or too many bytes without the texts of messages.
        """
        runs = _open(_listened(runs, lives), settings, closed)
        if not runs.num_rows:
            return None
        each = Found.of(runs, log, settings)
        if int(sizes(runs)[each.run].sum()) > settings.driver_bytes:
            raise NotInDriver(SIZE)
        run, key = each.run[each.found], each.wanted[each.found]
        ranks = rank(priorities, runs, run, each.messages.texts, each.message)
        order = order_of(Matched(runs, run, ranks, key, each.messages.rows, each.message), ORDER)
        return cls(runs, replace(each, found=each.found[order], message=each.message[order]))

    def write(self, appender: Appender, settings: Settings, stamp: Stamp, now: Ms) -> tuple[Part, ...]:
        """Write the files of the deliveries. What is due by now (ms) is one part; later ones are cut by time."""
        matches = self.matches
        due = longs(self.runs, "due_time")[matches.run[matches.found]] // 1_000
        ahead = np.maximum(0, -((now - due) // settings.publish_ms)) if self.window.last_bucket > now else due * 0
        ends = [0, *(np.flatnonzero(np.diff(ahead)) + 1), len(due)]
        places, parts, texts = [], [], matches.messages.texts.sizes[matches.message]
        for number, (first, last) in enumerate(pairwise(ends)):
            for start, past in cuts(texts[first:last], settings.share(last - first)):
                places.append((first + start, first + past))
                parts.append(number)
        files = appender.put(self._deliveries(*place, stamp) for place in places)
        of_part = groupby(zip(parts, files, strict=True), key=itemgetter(0))
        return tuple(Part.of([file for _, file in each]) for _, each in of_part)

    def shares(self, parts: Sequence[Part]) -> list[list[Delivered]]:
        """What the subscriptions have of each part that `write` gave."""
        of_part = np.repeat(np.arange(len(parts)), [part.count for part in parts])
        taken = self.matches.run[self.matches.found]
        pairs, counts = np.unique(of_part * self.runs.num_rows + taken, return_counts=True)
        part, run = np.divmod(pairs, self.runs.num_rows)
        names = {name: _taken(self.runs, name, run) for name in ("topic", "subscription")}
        due = longs(self.runs, "due_time")[run] // 1_000
        grouped = pa.table({"part": part, **names, "count": counts, "due": due}).group_by(["part", *names])
        spans = grouped.aggregate([("count", "sum"), ("due", "min"), ("due", "max")])
        found: list[list[Delivered]] = [[] for _ in parts]
        columns = ("part", *names, "count_sum", "due_min", "due_max")
        for number, *share in zip(*(spans.column(name).to_pylist() for name in columns), strict=True):
            found[number].append(Delivered(*share))
        return found

    def missing(self, batch_id: int) -> pa.Table:
        """Rows of `rejected_dispatch`: positions that became due and have no message in the log."""
        gone = np.setdiff1d(np.arange(len(self.matches.run)), self.matches.found)
        run, entry = self.matches.run[gone], self.matches.entry[gone]
        runs = with_reason(cut(self.runs, run, entry, entry), MESSAGE_MISSING)
        return withdrawn_rows(at_time(runs, self.window.released_at), batch_id, len(gone))

    def _deliveries(self, first: int, last: int, stamp: Stamp) -> pa.Table:
        """The rows of `deliveries` from a place in the order to another; `sequence` counts from 1."""
        message = self.matches.message[first:last]
        texts = self.matches.messages.texts.take(message)
        known = {name: _taken(self.matches.messages.rows, name, message) for name in _OF_MESSAGE}
        known |= {name: texts.column(name) for name in TEXTS}
        same = {"batch_id": stamp.batch_id, "released_at": us(stamp.released_at)}
        known |= {name: pa.repeat(value, last - first) for name, value in same.items()}
        known["sequence"] = pa.array(np.arange(first, last) + 1)
        schema, run = arrow_schema(DELIVERIES.columns), self.matches.run[self.matches.found[first:last]]
        columns = [known[name] if name in known else _taken(self.runs, name, run) for name in schema.names]
        return pa.Table.from_arrays(columns, names=schema.names).cast(schema)


def _listened(runs: pa.Table, lives: Mapping[Name, int]) -> pa.Table:
    """The runs of subscriptions that are still there, in their present life."""
    columns = zip(*((*name, life) for name, life in lives.items()), strict=True) if lives else ((), (), ())
    keys = ("topic", "subscription", "life")
    types = (pa.string(), pa.string(), pa.int64())
    present = pa.table({key: pa.array(each, kind) for key, each, kind in zip(keys, columns, types, strict=True)})
    return runs.join(present, list(keys), join_type="left semi").combine_chunks()


def _open(runs: pa.Table, settings: Settings, closed: Closed) -> pa.Table:
    """Runs less the redeliveries that are not to be made. Without redeliveries nothing is asked.

    Raises:
        NotInDriver: what is closed cannot be read here, or is too much.
    """
    ledgers = longs(runs, "ledger_id")[longs(runs, "redelivery_count") > 0]
    if not len(ledgers):
        return runs
    return still_open(runs, closed.rows(again_bounds(ledgers), settings), settings)


def _messages(
    log: MessageLog, bounds: Sequence[Bounds], ledgers: IntArray, wanted: IntArray, most: int
) -> tuple[Gathered, IntArray]:
    """The messages of wanted keys, and their keys.

    Raises:
        NotInDriver: only Spark reaches them, or they are more bytes than `most` without their texts.
    """
    keys = [np.empty(0, np.int64)]

    def groups() -> Iterator[tuple[RowGroup, IntArray]]:
        for group, rows, key in hits(log, bounds, ledgers, wanted):
            keys.append(key)
            yield group, rows

    return Gathered.read(MESSAGES, groups(), most), np.concatenate(keys)


def hits(
    log: MessageLog, bounds: Sequence[Bounds], ledgers: IntArray, wanted: IntArray
) -> Iterator[tuple[RowGroup, IntArray, IntArray]]:
    """The row groups that have messages of wanted keys, ascending ones; which rows they are, and their keys.

    Raises:
        NotInDriver: only Spark reaches them.
    """
    for group in message_groups(log, *bounds):
        places = group.read(("ledger_id", "entry_id", "due_time"))
        ledger, due = longs(places, "ledger_id"), np.floor_divide(longs(places, "due_time"), 1_000)
        inside = np.flatnonzero(reduce(or_, (_held(each, ledger, due) for each in bounds)))
        ledger, entry = ledger[inside], longs(places, "entry_id")[inside]
        place = np.minimum(np.searchsorted(ledgers, ledger), len(ledgers) - 1)
        key = (place << ENTRY_BITS) | entry
        at = np.minimum(np.searchsorted(wanted, key), len(wanted) - 1)
        found = np.flatnonzero((ledgers[place] == ledger) & (wanted[at] == key))
        if len(found):
            yield group, inside[found], key[found]


def _held(bounds: Bounds, ledger: IntArray, due: IntArray) -> npt.NDArray[np.bool_]:
    """Which messages are within bounds, by ledger and due time (ms)."""
    inside: npt.NDArray[np.bool_] = (due >= bounds.first_due) & (due <= bounds.last_due)
    return inside & (ledger >= bounds.first_ledger) & (ledger <= bounds.last_ledger)


def matched(wanted: IntArray, keys: IntArray) -> tuple[IntArray, IntArray]:
    """Which wanted keys are there, and where."""
    if not len(keys):
        return keys, keys
    order = np.argsort(keys, kind="stable")
    at = order[np.minimum(np.searchsorted(keys, wanted, sorter=order), len(keys) - 1)]
    found = np.flatnonzero(keys[at] == wanted)
    return found, at[found]


def _taken(table: pa.Table, column: str, rows: IntArray) -> pa.ChunkedArray:
    return table.column(column).take(pa.array(rows))
