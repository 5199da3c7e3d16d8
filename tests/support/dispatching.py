"""Dispatch without Spark: parts on the shelf of a warehouse, and the publisher that makes them visible, by a clock."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.config.options import nobody
from pipeline.config.stages import DISPATCH
from pipeline.config.timeline import Timeline
from pipeline.delta.deltars import path_of, rows_of
from pipeline.delta.logs.entries import Commit, newest
from pipeline.delta.writing.datafiles import DataFile
from pipeline.delta.writing.footers import statistics
from pipeline.delta.writing.oncewriter import Sink
from pipeline.dispatch.prepared import Part, Prepared, PreparedStore
from pipeline.dispatch.publisher import Publisher
from pipeline.storage.files import Files
from schemas import DELIVERIES
from state.units import EPOCH, Ms
from tests.support.client import at, delivery_row, message_row, new_warehouse

Named = tuple[int, str]
"""When a message is due, ms UTC, and what it says."""


T = 1_800_000_000_000
"""When a test begins, ms UTC."""


@dataclass
class Log:
    """The log of `deliveries`, written as dispatch does; of `publications` nothing is kept."""

    root: str
    last: Commit | None = None

    def found(self, owner: str, batch: int) -> Commit | None:
        """As `Sink.found`."""
        return self.last if self.last is not None and (self.last.owner, self.last.batch) >= (owner, batch) else None

    def since(self, _version: int) -> list[tuple[int, Commit]]:
        """As `Sink.since`: all is accounted for."""
        return []

    def put(self, _rows: pa.Table, _owner: str, _batch: int, _note: Mapping[str, Any]) -> None:
        """As `Sink.put`."""

    def commit(self, files: Iterable[DataFile], owner: str, batch: int, note: Mapping[str, Any]) -> int:
        """As `Sink.commit`."""
        self.last = Commit(DISPATCH, owner, batch, note)
        info = {"timestamp": 0, "operation": "WRITE", "userMetadata": self.last.dumps()}
        return self.add({"commitInfo": info}, *(each.action for each in files))

    def add(self, *actions: Mapping[str, Any]) -> int:
        """A version with such actions."""
        version = newest(Files(), path_of(self.root, DELIVERIES)) + 1
        path = Path(path_of(self.root, DELIVERIES)) / "_delta_log" / f"{version:020d}.json"
        path.write_text("".join(f"{json.dumps(each)}\n" for each in actions))
        return version


@dataclass
class Dispatching:
    """What outlives processes of dispatch, and the one that runs.

    Attributes:
        root: the warehouse.
        now: the time, ms UTC.
    """

    root: str
    now: int = T
    log: Log = field(init=False)
    publisher: Publisher = field(init=False)

    def __post_init__(self) -> None:
        """Start."""
        self.log = Log(self.root)
        self.start()

    @classmethod
    def of_new(cls, root: str) -> Dispatching:
        """Of a new warehouse."""
        new_warehouse(root)
        return cls(root)

    def start(self) -> None:
        """Another process."""

        class At(Timeline):
            def now(_self, _instant: Ms) -> Ms:  # noqa: N805 - what is around is self
                return Ms(self.now)

        store = PreparedStore(Files(), path_of(self.root, DELIVERIES))
        sinks = cast("Sink", self.log), cast("Sink", Log(self.root))
        self.publisher = Publisher(store, *sinks, At(live=False), nobody)

    def prepare(self, batch: int, *parts: Sequence[Named], subscription: str = "s") -> None:
        """Put a batch on the shelf; a part has a file or two, of messages in the order in which they are due."""
        before = [sum(map(len, parts[:place])) for place in range(len(parts))]
        made = tuple(
            Part.of(list(self._files(f"{batch}-{place}", part, subscription, (batch, before[place]))))
            for place, part in enumerate(parts)
        )
        self.publisher.take(Prepared("owner", batch, EPOCH, (batch, 0), made))

    def show(self, *files: Sequence[Named], subscription: str = "s") -> None:
        """Make files visible in a version that names no parts, as a restored table does."""
        made = [self._file(f"shown-{place}", part, subscription, (place, 0)) for place, part in enumerate(files)]
        self.log.add({"commitInfo": {"timestamp": 0}}, *(each.action for each in made))

    def publish(self) -> None:
        """Make visible what is due."""
        self.publisher.publish_due()

    def _files(self, name: str, part: Sequence[Named], subscription: str, after: tuple[int, int]) -> Iterator[DataFile]:
        (batch, before), half = after, len(part) // 2
        for place, some in enumerate(each for each in (part[:half], part[half:]) if each):
            yield self._file(f"{name}-{place}", some, subscription, (batch, before))
            before += len(some)

    def _file(self, name: str, part: Sequence[Named], subscription: str, after: tuple[int, int]) -> DataFile:
        """A file of messages of a batch, behind so many others of it."""
        batch, before = after
        rows = [
            {
                **delivery_row(message_row(1, n, due), before + n, subscription),
                "batch_id": batch,
                "due_time": at(due),
                "payload": text.encode(),
            }
            for n, (due, text) in enumerate(part, 1)
        ]
        path = Path(path_of(self.root, DELIVERIES)) / f"{name}.parquet"
        pq.write_table(rows_of(DELIVERIES, rows), path, coerce_timestamps="us")
        data = path.read_bytes()
        return DataFile(path.name, len(data), 0, *statistics(data, DELIVERIES.name, DELIVERIES.columns))
