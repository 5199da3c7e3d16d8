"""What a rebuild of the schedule puts into the index, by whole arrays: the same rows as Spark makes of it.

Without a session `pipeline.service.rebuild` asks here. The rules are stated there (`pending_rows`, `retry_rows`), and
one test compares both.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.delta.deltars import batches_of
from pipeline.delta.logs.opening import table_at
from pipeline.delta.reading.messages import Bounds, MessageLog, messages
from pipeline.delta.warehouse import Warehouse
from pipeline.dispatch.release import taken_apart
from pipeline.schedule.stage import REBUILD
from pipeline.storage.arrays import IntArray, arrow_schema, grouped, longs, rounds
from pipeline.subscriptions.incarnations import Incarnation, Name, Subscription, audiences
from pipeline.subscriptions.settled import SettledMark
from pipeline.worker.audience import Audience
from pipeline.worker.encode import ARROW, ROW, Encoder
from pipeline.worker.express import Express
from schemas import CLOSED, REDELIVERY, ROUND, SEGMENTS, Table
from state.runs import MAX_ENTRY

Listener = tuple[str, str, int]
"""Topic, subscription, life."""
Again = tuple[str, str, int, int, int]
"""Topic, subscription, life, redelivery count, round."""
_MESSAGE = ("topic", "ledger_id", "entry_id", "due_time")
_RUN = ("ledger_id", "first_entry", "last_entry")
_NAMED = ("topic", "subscription", "life", "redelivery_count")
_EVERY = 1 << 62
_ENTRY_BITS = MAX_ENTRY.bit_length()
_BITS = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Range:
    """What concerns the schedule of what the tables hold.

    Attributes:
        segments: version of `segments`.
        loaded: parked messages that are due before it were loaded, ms.
        next_ledger: ledgers before it were addressed.
        lives: who listens.
        retries: says in SQL which rows of `segments` are of what comes again.
        mark: below it all was released.
        segment_ms: the span of a segment.
        instant: what is due already goes into the segment of this instant, ms.
    """

    segments: int
    loaded: int
    next_ledger: int
    lives: Mapping[Name, Incarnation]
    retries: str
    mark: SettledMark
    segment_ms: int
    instant: int


class RunSet:
    """Positions of one topic as runs, which may overlap. To ask for n positions is O(n log runs)."""

    def __init__(self, ledgers: IntArray, firsts: IntArray, lasts: IntArray) -> None:
        """The runs, in any order; both ends are included."""
        self._ledgers = np.unique(ledgers)
        begin = np.searchsorted(self._ledgers, ledgers) << _ENTRY_BITS
        order = np.argsort(begin + firsts, kind="stable")
        self._firsts = (begin + firsts)[order]
        self._lasts = np.maximum.accumulate((begin + lasts)[order])

    def holds(self, ledgers: IntArray, entries: IntArray) -> _BITS:
        """Which positions are in it."""
        row = np.minimum(np.searchsorted(self._ledgers, ledgers), len(self._ledgers) - 1)
        places = (row << _ENTRY_BITS) + entries
        run = np.searchsorted(self._firsts, places, side="right") - 1
        found: _BITS = (self._ledgers[row] == ledgers) & (run >= 0) & (self._lasts[run] >= places)
        return found


def pending_pieces(warehouse: Warehouse, held: Range) -> Iterator[pa.Table]:
    """Rows of `segments`, less `batch_id`: what was addressed to each subscription and is not released yet.

    Raises:
        NotInDriver: only Spark reaches the tables, or they are not what their contracts say.
    """
    audience = {
        (name, topic): audiences([Subscription(topic, name, life.tick_ms, earliest=False)], held.lives)[topic]
        for (topic, name), life in held.lives.items()
    }
    encoder = Encoder(audience, held.segment_ms, held.instant)
    yield from _with_kind(encoder(_pending(warehouse, held)))


def _pending(warehouse: Warehouse, held: Range) -> Iterator[pa.RecordBatch]:
    """Rows for `Encoder`: a subscription as the kind, and a position of its topic that waits for it."""
    if not held.next_ledger or not held.lives:
        return
    released = _runs(warehouse, REDELIVERY, f"{ROUND} = 0", _NAMED[:3])
    within = Bounds(last_ledger=held.next_ledger - 1, last_due=held.loaded - 1)
    listeners = defaultdict[str, list[tuple[Listener, int]]](list)
    for (topic, name), life in held.lives.items():
        listeners[topic].append(((topic, name, life.number), life.since or 0))
    for batch in messages(MessageLog(warehouse), within, _MESSAGE):
        rows = pa.Table.from_batches([batch])
        settled = held.mark.below(rows, "due_time").to_numpy()
        rows = rows.filter(pa.array(~settled)) if settled.any() else rows
        for values, mine in grouped(rows, ["topic"]):
            if values["topic"] not in listeners:
                continue
            own = rows if len(mine) == rows.num_rows else rows.take(pa.array(mine))
            for listener, since in listeners[values["topic"]]:
                yield _waiting(own, listener, since, released.get(listener))


def _waiting(rows: pa.Table, listener: Listener, since: int, released: RunSet | None) -> pa.RecordBatch:
    """Those of some messages that wait for a listener."""
    ledgers, entries, due = (longs(rows, name) for name in _MESSAGE[1:])
    waits = ledgers >= since
    if released is not None:
        waits &= ~released.holds(ledgers, entries)
    topic, name, _ = listener
    return _positions(name, topic, ledgers[waits], entries[waits], np.floor_divide(due[waits], 1_000))


def _positions(kind: str, topic: str, ledgers: IntArray, entries: IntArray, due_ms: IntArray) -> pa.RecordBatch:
    """Rows for `Encoder`."""
    same = [pa.repeat(text, len(ledgers)) for text in (kind, topic)]
    columns = [*same, *(pa.array(each, pa.int64()) for each in (ledgers, entries, due_ms))]
    return pa.RecordBatch.from_arrays(columns, names=["kind", "topic", "ledger_id", "entry_id", "due_ms"])


def retry_pieces(warehouse: Warehouse, held: Range) -> Iterator[pa.Table]:
    """Rows of `segments`, less `batch_id`, for what is to come again, less what came again or is closed.

    Raises:
        NotInDriver: as for `pending_pieces`.
    """
    waiting = _again(warehouse, held)
    if not waiting.num_rows:
        return
    closed = _runs(warehouse, CLOSED, "true", _NAMED)
    released = _runs(warehouse, REDELIVERY, f"{ROUND} > 0", (*_NAMED, ROUND))
    waiting = waiting.append_column("number", pa.array(rounds(waiting)))
    for values, mine in grouped(waiting, [*_NAMED, "number"]):
        key: Again = tuple(values.values())
        yield from _put_again(waiting.take(pa.array(mine)), [closed.get(key[:-1]), released.get(key)], held)


def _again(warehouse: Warehouse, held: Range) -> pa.Table:
    """Runs that were to come again to those who listen, in the columns of `redelivery`."""
    opened = table_at(warehouse.path(SEGMENTS), held.segments)
    columns = ", ".join(ROW.names)
    batches = batches_of(f"SELECT {columns} FROM opened WHERE {held.retries}", opened=opened)  # noqa: S608 - our own words
    chunks = (each for batch in batches for each in pa.Table.from_batches([batch]).cast(ARROW).to_batches())
    found = pa.Table.from_batches(Express(0, 0)(chunks), arrow_schema(REDELIVERY.columns))
    lives = {(*name, life.number) for name, life in held.lives.items()}
    alive = [mine for values, mine in grouped(found, _NAMED[:3]) if tuple(values.values()) in lives]
    found = found.take(pa.array(np.sort(np.concatenate(alive)) if alive else [], pa.int64()))
    return found.filter(pa.array(~held.mark.below(found, "due_time").to_numpy()))


def _put_again(runs: pa.Table, less: Sequence[RunSet | None], held: Range) -> Iterator[pa.Table]:
    """Rows for runs of one life, count and round, less some positions; each position once."""
    run, entries = taken_apart(runs, _EVERY)
    ledgers, due = longs(runs, "ledger_id")[run], longs(runs, "due_time")[run] // 1_000
    waits = np.ones(len(run), np.bool_)
    for each in less:
        waits &= True if each is None else ~each.holds(ledgers, entries)
    # Batches of settle that a copy did not know have put the same there as those that took their place.
    _, first = np.unique(np.stack([ledgers, entries]), axis=1, return_index=True)
    once = np.zeros(len(run), np.bool_)
    once[first] = True
    for values, mine in grouped(runs, ["topic", "subscription", "life", "tick_ms", "cause"]):
        rows = np.flatnonzero(waits & once & np.isin(run, mine))
        audience = Audience((0,), ((values["subscription"], values["life"], values["tick_ms"]),))
        encoder = Encoder({("", values["topic"]): audience}, held.segment_ms, held.instant)
        batch = _positions("", values["topic"], ledgers[rows], entries[rows], due[rows])
        count, order = runs.column("redelivery_count")[0], runs.column("round")[0]
        same = {"redelivery_count": count, "round": order, "cause": pa.scalar(values["cause"])}
        yield from _with_kind(encoder(iter([batch])), same)


def _with_kind(batches: Iterator[pa.RecordBatch], same: Mapping[str, pa.Scalar] | None = None) -> Iterator[pa.Table]:
    """The rows of a rebuild, with some values that all of them have."""
    for batch in batches:
        rows = pa.Table.from_batches([batch])
        for name, value in {"kind": pa.scalar(REBUILD), **(same or {})}.items():
            column = pa.repeat(value.cast(ARROW.field(name).type), rows.num_rows)
            rows = rows.set_column(rows.schema.get_field_index(name), ARROW.field(name), column)
        yield rows


def of_batch(rows: pa.Table, number: int) -> pa.Table:
    """These rows as those of a rebuild with a number."""
    return rows.append_column("batch_id", pa.repeat(number, rows.num_rows))


def _runs(warehouse: Warehouse, table: Table, where: str, by: Sequence[str]) -> dict[tuple[object, ...], RunSet]:
    """Runs of a table by the values of some columns."""
    names = {each: f"k{number}" for number, each in enumerate(by)}
    columns = ", ".join([*(f"{each} AS {name}" for each, name in names.items()), *_RUN])
    opened = table_at(warehouse.path(table))
    rows = batches_of(f"SELECT {columns} FROM opened WHERE {where}", opened=opened).read_all()  # noqa: S608 - our own words
    texts = [field.name for field in rows.schema if pa.types.is_string_view(field.type)]
    for name in texts:
        rows = rows.set_column(rows.schema.get_field_index(name), name, rows.column(name).cast(pa.string()))
    found = {}
    for values, mine in grouped(rows, list(names.values())):
        ledgers, firsts, lasts = (longs(rows, name)[mine] for name in _RUN)
        found[tuple(values.values())] = RunSet(ledgers, firsts, lasts)
    return found
