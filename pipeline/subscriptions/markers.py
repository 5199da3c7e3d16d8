"""What ingest remembers between batches, and the marker rows of `segments` that carry it across restarts.

Markers are part of the commit that they describe, so no crash can part them. They survive a new checkpoint, and they
still know the last ledger when retention has emptied `messages`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from pipeline.config.lazyspark import F
from pipeline.config.routes import NotInDriver
from pipeline.config.stages import INGEST
from pipeline.delta.logs.entries import Commit, newest
from pipeline.delta.reading import messages
from pipeline.delta.reading.messages import Bounds, MessageFile, MessageLog
from pipeline.delta.warehouse import Warehouse, ask
from pipeline.delta.writing.oncewriter import last_commit
from pipeline.storage import arrays
from pipeline.subscriptions.incarnations import CHANGES, Incarnation, Joined, Name, alive, lives_by, next_lives
from pipeline.worker.encode import ARROW
from schemas import LEFT, MESSAGES, SEGMENTS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TOP = """
    SELECT MAX(marker) AS marker, MAX(loaded_until) AS loaded_until, MAX(next_ledger) AS next_ledger
    FROM {rows} WHERE marker IS NOT NULL
"""
_LAST_LEDGER = "SELECT MAX(ledger_id) AS ledger_id FROM {rows} WHERE ledger_id"
_FEW_LIVES = 1_000
"""Of subscriptions; no more than twice as many are held for nothing."""
_DENSE = 1_000
"""Rows of a file for each segment that it spans, from which on they are taken to be in all of them."""


@dataclass(frozen=True)
class Marker:
    """What one commit of `segments` changes.

    Attributes:
        number: orders markers; grows by one.
        loaded: what is due before this instant (ms) has been loaded.
        next_ledger: ledgers below it are used.
        joined: subscriptions that begin a life.
        left: subscriptions that are no longer registered, with the number of the life that ended.
    """

    number: int
    loaded: int
    next_ledger: int
    joined: Mapping[Name, Joined]
    left: Mapping[Name, int]


@dataclass(frozen=True)
class IngestMemory:
    """The sum of all markers, and the segments (by number) in which parked messages wait that are not loaded yet."""

    marker: int = 0
    loaded: int = 0
    next_ledger: int = 0
    lives: Mapping[Name, Incarnation] = field(default_factory=dict)
    parked: frozenset[int] = frozenset()

    @classmethod
    def addressed(cls, markers: Markers) -> IngestMemory:
        """What markers alone say: what was addressed to whom. A batch in the middle of its commits is not in it."""
        return cls(*markers.top(), markers.lives())

    @classmethod
    def of_tables(cls, warehouse: Warehouse, log: MessageLog, segment_ms: int) -> IngestMemory:
        """What the tables say; `log` is that of `messages`. Run once, at a start."""
        memory = cls.addressed(Markers(warehouse))
        (last,) = ask(warehouse, MESSAGES, f"{_LAST_LEDGER} >= {memory.next_ledger}")
        used = memory.next_ledger if last["ledger_id"] is None else last["ledger_id"] + 1
        parked, sparse = _parked_by_files(log.files([Bounds(first_due=memory.loaded)]), memory.loaded, segment_ms)
        try:
            parked |= _parked_here(log, sparse, memory.loaded, segment_ms)
        except NotInDriver:
            parked |= _parked(log.rows_of(sparse), memory.loaded, segment_ms)
        return replace(memory, next_ledger=used, parked=parked)

    def waits_before(self, instant: int, segment_ms: int) -> bool:
        """Whether anything parked is due before an instant (ms) that ends a segment."""
        return any(segment * segment_ms < instant for segment in self.parked)

    def after(self, marker: Marker, parked: frozenset[int], segment_ms: int) -> IngestMemory:
        """The memory after a commit that loaded what it could, and a batch that parked messages in some segments."""
        lives = next_lives(self.lives, marker.joined, marker.left)
        waiting = frozenset(each for each in self.parked | parked if each * segment_ms >= marker.loaded)
        return IngestMemory(marker.number, marker.loaded, marker.next_ledger, lives, waiting)


def marker_rows(marker: Marker) -> pa.Table:
    """The rows of `segments`, less `batch_id`, that say it."""
    rows = [_row(marker)]
    rows += [_row(marker, *name, each) for name, each in sorted(marker.joined.items())]
    rows += [_row(marker, *name, Joined(LEFT, 0, life=life)) for name, life in sorted(marker.left.items())]
    return pa.Table.from_pylist(rows, schema=ARROW)


def _row(marker: Marker, topic: str = "", name: str = "", joined: Joined | None = None) -> dict[str, object]:
    """A row of a marker, of somebody who joined or left; `count` is the first entry of the first ledger."""
    listeners = [] if joined is None else [{"name": name, "life": joined.life, "tick_ms": joined.tick_ms}]
    return {
        "topic": topic,
        "subscriptions": listeners,
        "count": 0 if joined is None else joined.entry,
        "kind": "marker",
        "loaded_until": marker.loaded * 1_000,
        "next_ledger": marker.next_ledger,
        "first_ledger": None if joined is None else joined.since,
        "marker": marker.number,
    }


class Markers:
    """The markers of `segments`, now or at a version."""

    def __init__(self, warehouse: Warehouse, version: int | None = None) -> None:
        self._warehouse = warehouse
        self._version = version
        self._most = _FEW_LIVES

    def bounded(self, memory: IngestMemory) -> IngestMemory:
        """Lives are read anew when they have doubled: those that maintenance has forgotten are among them."""
        if len(memory.lives) > 2 * self._most:
            memory = replace(memory, lives=self.lives())
            self._most = max(_FEW_LIVES, len(memory.lives))
        return memory

    def top(self) -> tuple[int, int, int]:
        """The last marker, the instant (ms) before which all is loaded, and the next ledger; 0 where none is told."""
        (row,) = ask(self._warehouse, SEGMENTS, _TOP, self._version)
        loaded = row["loaded_until"]
        return row["marker"] or 0, 0 if loaded is None else round(loaded.timestamp() * 1_000), row["next_ledger"] or 0

    def lives(self, last: int | None = None) -> dict[Name, Incarnation]:
        """Every subscription's last life, up to a marker; None: up to the last one."""
        return lives_by(ask(self._warehouse, SEGMENTS, CHANGES, self._version), last)


class PresentIncarnations:
    """The lives that markers tell of, up to a marker. Who left long ago is forgotten, and asked for by nobody.

    Markers change only after the registry has. So they are looked at when the registry has moved, until ingest has seen
    it move, and not otherwise.
    """

    def __init__(self, warehouse: Warehouse) -> None:
        self._warehouse = warehouse
        self._markers = Markers(warehouse)
        self._settled, self._seen = (-1, -1), -1
        self._last: Commit | None = None
        self._known: tuple[int, dict[Name, Incarnation]] = (-1, {})

    def marker(self, registry: int) -> int:
        """The number of the marker up to which ingest had said something of a version of the registry by now."""
        settled, marker = self._settled
        if registry <= settled:
            return marker
        # The commit first: what it and those before it say is then among the markers.
        last = self._last_of_ingest()
        marker, _, _ = self._markers.top()
        if last is not None:
            self._settled = (int(last.note["registry"]), marker)
        return marker

    def noticed(self, registry: int) -> bool:
        """Whether ingest had seen a version of the registry when its marker was asked for."""
        return registry <= self._settled[0]

    def _last_of_ingest(self) -> Commit | None:
        """Settle writes to the table, too: what was passed over once is not looked at again."""
        seen, self._seen = self._seen, newest(self._warehouse.files, self._warehouse.path(SEGMENTS))
        self._last = last_commit(self._warehouse, SEGMENTS, INGEST, seen) or self._last
        return self._last

    def at(self, marker: int, registered: Mapping[Name, object]) -> dict[Name, int]:
        """The number of the present life of each registered subscription that ingest knows, up to a marker."""
        return {name: life.number for name, life in self.incarnations(marker).items() if name in registered}

    def incarnations(self, marker: int) -> Mapping[Name, Incarnation]:
        """The present life of each subscription that ingest knows, up to a marker."""
        if self._known[0] != marker:
            self._known = (marker, alive(self._markers.lives(marker)))
        return self._known[1]


def _parked_by_files(
    files: Sequence[MessageFile], loaded: int, segment_ms: int
) -> tuple[frozenset[int], list[MessageFile]]:
    """The segments in which parked messages wait, as far as the log says it, and the files of which it does not.

    A file with many rows for each segment between its first and its last one is taken to have some in all of them; a
    load finds nothing where it has none. So a start reads no more than `_DENSE` rows for each segment of each file,
    however many messages wait.
    """
    found, sparse = set[int](), list[MessageFile]()
    for file in files:
        first, last = max(file.held.first_due, loaded) // segment_ms, file.held.last_due // segment_ms
        if file.rows >= _DENSE * (last + 1 - file.held.first_due // segment_ms):
            found.update(range(first, last + 1))
        else:
            sparse.append(file)
    return frozenset(found), sparse


def _parked_here(log: MessageLog, files: Sequence[MessageFile], loaded: int, segment_ms: int) -> frozenset[int]:
    """The segments in which parked messages of files wait that are due from `loaded` (ms) on, by whole arrays.

    Raises:
        NotInDriver: only Spark reaches them, or they are not what the table says.
    """
    found: set[int] = set()
    for rows in messages.messages(log, Bounds(first_due=loaded), ("due_time", "parked"), files):
        due = arrays.longs(rows, "due_time")[rows.column("parked").to_numpy(zero_copy_only=False)]
        segments = due // (segment_ms * 1_000)
        # Files are sorted by due time: most neighbours are of one segment.
        found.update(segments[np.flatnonzero(np.diff(segments, prepend=segments[:1] - 1))].tolist())
    return frozenset(found)


def _parked(messages: DataFrame, loaded: int, segment_ms: int) -> frozenset[int]:
    """The segments with parked messages, found by Spark."""
    later = messages.where(F.col("parked") & (F.col("due_time") >= F.timestamp_millis(F.lit(loaded))))
    segment = F.floor(F.unix_millis("due_time") / F.lit(segment_ms))
    return frozenset(row[0] for row in later.select(segment).distinct().collect())
