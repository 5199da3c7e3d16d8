"""Positions into encoded chunks, map-side: one per (topic, segment) and task, by whole arrays.

A million messages leave as a few hundred rows, so that nothing but chunks is shuffled to the schedule.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.storage.arrays import IntArray, arrow_schema
from pipeline.worker.audience import Audience
from schemas import LISTENER, SEGMENTS
from schemas.columns import Columns
from state import encode_chunk

Key = tuple[str, str]
"""Kind of row, topic."""
Rows = tuple[IntArray, IntArray, IntArray]
"""The columns of `_POSITION` of some rows."""
_POSITION = ("ledger_id", "entry_id", "due_ms")
Row = dict[str, Any]
"""A row by its columns."""

ROW = Columns().and_optional(*((each.name, each.kind) for each in SEGMENTS.columns.fields if each.name != "batch_id"))
"""A row of `segments` before its batch is known."""
ARROW = arrow_schema(ROW)
_FLUSH_ROWS, _FLUSH_BYTES = 4_000_000, 256 << 20
"""Positions held in memory at once, about 100 bytes each while they are sorted, and bytes of them as they come."""
_BATCH_ROWS = 1_000


@dataclass(frozen=True)
class Encoder:
    """What a task has to know. `audiences` is by kind and topic; what nobody listens to is not encoded.

    What is due already is put into the segment of `now` (ms), so that a backlog wakes one key and not thousands.
    """

    audiences: Mapping[Key, Audience]
    segment_ms: int
    now: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Encode the (kind, topic, ledger_id, entry_id, due_ms) rows of one task into `ROW`s, for `mapInArrow`."""
        held: list[pa.RecordBatch] = []
        rows, size = 0, 0
        for batch in batches:
            # One in which nothing was found comes as well.
            if batch.num_rows:
                held.append(batch)
                rows, size = rows + batch.num_rows, size + batch.nbytes
            if rows >= _FLUSH_ROWS or size >= _FLUSH_BYTES:
                yield from together(self._flush(held), ARROW)
                held, rows, size = [], 0, 0
        yield from together(self._flush(held), ARROW)

    def _flush(self, held: list[pa.RecordBatch]) -> Iterator[Row]:
        if not held:
            return
        table = pa.Table.from_batches(held)
        for key, rows in _by_key(table):
            audience = self.audiences.get(key)
            if audience is not None:
                yield from self._chunks(key, audience, *rows)

    def _chunks(
        self, key: Key, audience: Audience, ledgers: IntArray, entries: IntArray, dues: IntArray
    ) -> Iterator[Row]:
        """One row per cohort and segment of one topic."""
        cohorts = _cohorts(audience, ledgers, entries)
        segments = np.maximum(dues, self.now) // self.segment_ms
        for rows in _groups(cohorts, segments):
            cohort, segment = int(cohorts[rows[0]]), int(segments[rows[0]])
            if cohort < 0:
                continue  # older than the first position that anybody listens to
            chunk = encode_chunk(ledgers[rows], entries[rows], dues[rows], audience.tick_ms(cohort))
            listeners = [dict(zip(LISTENER.names, each, strict=True)) for each in audience.listeners(cohort)]
            first, last = int(dues[rows].min()), int(dues[rows].max())
            yield {
                "kind": key[0],
                "topic": key[1],
                "subscriptions": listeners,
                "segment_start": segment * self.segment_ms * 1_000,
                "count": len(rows),
                "first_due": first * 1_000,
                "last_due": last * 1_000,
                "chunk": chunk,
            }


def _cohorts(audience: Audience, ledgers: IntArray, entries: IntArray) -> IntArray:
    """Which listeners each position is for; -1: nobody."""
    since = np.asarray(audience.since)
    if not audience.entries:
        return np.searchsorted(since, ledgers, side="right") - 1
    firsts = np.asarray(audience.entries)
    found = np.searchsorted(since, ledgers, side="left") - 1
    # Few audiences begin within a ledger: each of its positions is compared with them.
    for place in np.flatnonzero(np.isin(since, ledgers)):
        found += (ledgers == since[place]) & (entries >= firsts[place])
    return found


def together(rows: Iterator[Row], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Rows in batches: one for each takes kilobytes, whatever is in it."""
    while some := list(islice(rows, _BATCH_ROWS)):
        yield pa.RecordBatch.from_pylist(some, schema=schema)


def _by_key(table: pa.Table) -> Iterator[tuple[Key, Rows]]:
    """The rows of each (kind, topic)."""
    # Encoded first: an array of texts has no more than 2 GiB.
    encoded = (table.column(name).dictionary_encode().unify_dictionaries() for name in ("kind", "topic"))
    codes = [column.combine_chunks() for column in encoded]
    kinds, topics = (code.dictionary.to_pylist() for code in codes)
    ledgers, entries, dues = (table.column(name).to_numpy() for name in _POSITION)
    if len(kinds) == len(topics) == 1:
        yield (kinds[0], topics[0]), (ledgers, entries, dues)
        return
    kind, topic = (code.indices.to_numpy() for code in codes)
    for rows in _groups(kind, topic):
        yield (kinds[kind[rows[0]]], topics[topic[rows[0]]]), (ledgers[rows], entries[rows], dues[rows])


def _groups(major: IntArray, minor: IntArray) -> list[npt.NDArray[np.intp]]:
    """The row numbers of each pair of values, in the order of the pairs."""
    order = np.lexsort((minor, major))
    a, b = major[order], minor[order]
    cuts = np.flatnonzero((a[1:] != a[:-1]) | (b[1:] != b[:-1])) + 1
    return np.split(order, cuts)
