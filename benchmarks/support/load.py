"""The workloads of the live benchmark, and the producer: what is sent when, with which delays."""

from __future__ import annotations

import time
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import pyarrow as pa
from deltalake import write_deltalake
from numpy.typing import NDArray

from benchmarks.support import WORKLOADS
from benchmarks.support.rows import inbox_table
from benchmarks.support.sizes import entries, merged
from pipeline.client.subscribing.subscriptions import Subscription
from pipeline.delta.deltars import append
from schemas import INBOX

FILE = WORKLOADS / "live.toml"
_PAUSE_S = 0.5
_BULK_ROWS, _PARKED_ROWS = 50_000, 150_000
"""Rows of one append of a bulk, and of messages that are parked."""
_GUARD_ROWS = 250_000
"""Rows of one file of the table that guards read."""
GUARD = "NOT EXISTS (SELECT 1 FROM paid p WHERE p.order_id = message_key)"
_DAY_US = 86_400_000_000


@dataclass(frozen=True)
class Workload:
    """One entry of the workload file in one of its sizes; see its head."""

    name: str
    seed: int
    payload_bytes: int
    tick_ms: int
    topics: int
    subscriptions: int
    patience_s: int
    warm_s: int
    rate: int
    seconds: int
    low_ms: int
    high_ms: int
    profile: Mapping[str, Mapping[str, Any]]
    parked: int = 0
    bulk: int = 0
    due_s: int = 0
    spread_ms: int = 0
    guard_rows: int = 0
    quiet_s: int = 0
    baseline: Mapping[str, Any] = field(default_factory=dict)

    @property
    def listeners(self) -> list[Subscription]:
        """Who listens to what."""
        names = [(f"t{topic}", f"s{number}") for topic in range(self.topics) for number in range(self.subscriptions)]
        return [Subscription(topic, name, tick_ms=self.tick_ms) for topic, name in names]

    @property
    def appends(self) -> int:
        """Appends of the stream."""
        return round(self.seconds / _PAUSE_S)

    @property
    def sent(self) -> int:
        """Messages: parked, stream and bulk."""
        return self.parked + self.appends * round(self.rate * _PAUSE_S) + self.bulk

    @property
    def awaited(self) -> int:
        """Rows of `deliveries` when the run is over."""
        appends = [round(self.rate * _PAUSE_S)] * self.appends
        whole, rest = divmod(self.awaited_bulk, _BULK_ROWS)
        appends += [_BULK_ROWS] * whole + [rest]
        return sum(count - (count // 2 if self.guard_rows else 0) for count in appends) * self.subscriptions

    @property
    def awaited_bulk(self) -> int:
        """Messages of the bulk that are waited for: none when it only lies there while the job idles."""
        return 0 if self.quiet_s else self.bulk

    def bulk_due(self, begin: int) -> int:
        """When the first of the bulk is due, in a stream that begins at `begin`; ms UTC."""
        return begin + (self.seconds + self.due_s) * 1_000

    def measured_from(self, begin: int) -> int:
        """What is due from here on is warm; ms UTC."""
        return self.bulk_due(begin) if self.awaited_bulk else begin + self.warm_s * 1_000

    def last_due(self, begin: int) -> int:
        """When the last one that is waited for is due, about; ms UTC."""
        if self.awaited_bulk:
            return self.bulk_due(begin) + self.spread_ms
        return begin + self.seconds * 1_000 + self.high_ms


def workloads(*, full: bool) -> dict[str, Workload]:
    """The workloads by name, in the order of their file."""
    return {entry["name"]: Workload(**entry) for entry in entries(FILE, full=full)}


def changed(workload: Workload, texts: list[str]) -> Workload:
    """A workload with what the command line says, values as in TOML: `section.key=value` for its profile, or a size.

    Raises:
        ValueError: there is no such size, or it is no whole number.
    """
    lines = [tomllib.loads(each) for each in texts]
    profile = [{key: value for key, value in line.items() if isinstance(value, dict)} for line in lines]
    sizes = {key: value for line in lines for key, value in line.items() if not isinstance(value, dict)}
    for name, value in sizes.items():
        if not isinstance(getattr(workload, name, None), int) or not isinstance(value, int):
            message = f"{name}={value}: not a whole number for a size of {workload.name}"
            raise ValueError(message)  # noqa: TRY004 - of what somebody typed
    kept = {name: value for name, value in workload.baseline.items() if name not in sizes}
    return replace(workload, profile=merged(workload.profile, *profile), baseline=kept, **sizes)


def fill_guard(path: str, count: int) -> None:
    """The table that guards read: so many keys."""
    for first in range(0, count, _GUARD_ROWS):
        keys = [f"paid-{number}" for number in range(first, min(count, first + _GUARD_ROWS))]
        write_deltalake(path, pa.table({"order_id": pa.array(keys)}), mode="append")


class Producer:
    """Sends a workload. Rows have the wall time of their append as `publish_time`, and wait from then on."""

    def __init__(self, workload: Workload, root: str) -> None:
        """Draw nothing yet."""
        self._workload, self._root = workload, root
        self._random = np.random.default_rng(workload.seed)

    def park(self) -> Iterator[int]:
        """Send what is parked, due within the 29 days from tomorrow on; give how many are sent after each append."""
        for first in range(0, self._workload.parked, _PARKED_ROWS):
            count, now = min(_PARKED_ROWS, self._workload.parked - first), time.time_ns() // 1_000
            append(self._root, INBOX, self.rows(now, now + self._random.integers(_DAY_US, 30 * _DAY_US, count)))
            yield first + count

    def send(self, begin: int) -> None:
        """Send the stream from `begin` (ms UTC) on, then the bulk.

        An append that is not ready in time comes late, with its delays counted from then; none is left out.
        """
        workload = self._workload
        count = round(workload.rate * _PAUSE_S)
        for number in range(workload.appends):
            time.sleep(max(0.0, begin / 1_000 + number * _PAUSE_S - time.time()))
            delays = self._random.integers(workload.low_ms, workload.high_ms, count, endpoint=True) * 1_000
            delays[0] = 0
            now = time.time_ns() // 1_000
            append(self._root, INBOX, self.rows(now, now + delays))
        time.sleep(max(0.0, begin / 1_000 + workload.seconds - time.time()))
        for first in range(0, workload.bulk, _BULK_ROWS):
            count = min(_BULK_ROWS, workload.bulk - first)
            drawn = self._random.integers(0, workload.spread_ms * 1_000, count, endpoint=True)
            append(self._root, INBOX, self.rows(time.time_ns() // 1_000, workload.bulk_due(begin) * 1_000 + drawn))

    def rows(self, published: int, deliver_at: NDArray[np.int64]) -> pa.Table:
        """Rows of the inbox; times in microseconds."""
        topics = self._names.take(pa.array(self._random.integers(0, self._workload.topics, len(deliver_at))))
        rows = inbox_table(self._random, topics, published, deliver_at, self._workload.payload_bytes)
        return rows if not self._workload.guard_rows else rows.set_column(1, rows.field(1), self._keys(len(deliver_at)))

    def _keys(self, count: int) -> pa.Array:
        """Every second one is in the table of the guard."""
        drawn = self._random.integers(0, self._workload.guard_rows, count).tolist()
        return pa.array([f"{'paid' if place % 2 else 'open'}-{number}" for place, number in enumerate(drawn)])

    @cached_property
    def _names(self) -> pa.Array:
        return pa.array([f"t{number}" for number in range(self._workload.topics)])


def produce(workload: Workload, root: str, door: Connection) -> None:
    """The main of the producer's process: says that it is there, is told when to begin (ms UTC), and sends."""
    producer = Producer(workload, root)
    door.send(None)
    producer.send(door.recv())
