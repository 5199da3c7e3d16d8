"""The checkpoint of a stage without a JVM, and the index as a list that lies in one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from typing import Any
from uuid import uuid4

import pyarrow as pa

from pipeline.config.options import Observer
from pipeline.config.stages import SCHEDULE
from pipeline.delta.checkpoints import EVERYTHING_BEFORE, Checkpoint, Position
from pipeline.delta.logs.entries import newest
from pipeline.delta.warehouse import Warehouse
from pipeline.delta.writing.oncewriter import Sink
from pipeline.schedule.stage import REBUILD
from pipeline.settle.sources import Source
from pipeline.storage.files import Files
from pipeline.worker.unpack import RUN
from schemas import REDELIVERY, SEGMENTS
from state.chunk import Chunk

_STATE = "state.json"


class Batches(Checkpoint):
    """The checkpoint of a stage, in the files that Spark writes, and which batch is to be done next."""

    def __init__(self, warehouse: Warehouse, stage: str) -> None:
        """Read the folder, if it is there."""
        super().__init__(Files(), warehouse.checkpoint(stage))
        self._planned, self._done = self.batches().stop, self.done

    @property
    def next(self) -> int:
        """The number of the batch that is to be done, or that died."""
        return 0 if self._done is None else self._done + 1

    @property
    def died(self) -> bool:
        """Whether that one was begun."""
        return self.next < self._planned

    def plan(self, end: Position, watermark: int | None = None) -> None:
        """Log where the next batch ends; its watermark is its instant, if nothing is said."""
        if self.owner is None:
            self._put("metadata", json.dumps({"id": str(uuid4())}))
        metadata = {"batchWatermarkMs": end.instant if watermark is None else watermark}
        place = {"reservoirVersion": end.version, "index": end.index}
        self._put(
            f"offsets/{self.next}", "\n".join(["v1", *map(json.dumps, (metadata, {"instant": end.instant}, place))])
        )
        self._planned = self.next + 1

    def commit(self) -> None:
        """Log that the batch is done."""
        self._put(f"commits/{self.next}", "v1\n{}")
        self._done = self.next

    def _put(self, name: str, content: str) -> None:
        self._files.write(f"{self.path}/{name}", content, lasting=False)


@dataclass(frozen=True)
class Placed:
    """A run of the index, for one subscription: topic, name, life and tick of that come first."""

    of: tuple[str, str, int, int]
    due: int
    ledger: int
    first: int
    last: int
    count: int
    number: int | None
    cause: str


class Schedule:
    """The index as a list: what `segments` hold, until it is due. It lies in the folder of the checkpoint."""

    def __init__(self, warehouse: Warehouse, observe: Observer) -> None:
        """Go on where the checkpoint ends."""
        self._source = Source(warehouse, SEGMENTS, SEGMENTS.schema.names)
        self.book, self._observe = Batches(warehouse, SCHEDULE), observe
        self._files, self._path = Files(), warehouse.path(SEGMENTS)
        self._sink = Sink(warehouse, REDELIVERY, SCHEDULE, self.book.wrote)
        self.sinks = [self._sink]
        text = self.book.text(_STATE)
        self.waiting = [] if text is None else [Placed(*each) for each in json.loads(text)]

    def step(self, instant: int) -> None:
        """Take in what is new, and release what is due, unless there is nothing to do; first a batch that died."""
        last = newest(self._files, self._path) + 1
        begin = self.book.start(self.book.next)
        if not self.book.died:
            if begin.version >= last and begin.instant >= instant:
                return
            self.book.plan(Position(max(instant, begin.instant), max(last, begin.version), EVERYTHING_BEFORE))
        number, end, rebuilt = self.book.next, self.book.position(self.book.next), self.book.origin.rebuilt
        waiting = list(self.waiting)
        for _, rows in self._source.versions(begin.version - 1, end.version - 1):
            of_me = (row for row in rows.to_pylist() if row["kind"] != REBUILD or row["batch_id"] == rebuilt)
            waiting += [each for row in of_me for each in _placed(row)]
        due = [each for each in waiting if each.due <= end.instant]
        if due:
            self._observe("schedule.counted", number)
            rows = pa.Table.from_pylist([_row(each, end.instant, number) for each in due], schema=RUN)
            self._sink.append(rows, self.book.owner or "", number, {**end.as_dict(), "begin": begin.offset})
            self._observe("schedule.redelivery", number)
            self._sink.appender.checkpoint()
        self.waiting = [each for each in waiting if each.due > end.instant]
        state = json.dumps([astuple(each) for each in self.waiting])
        self._files.write(f"{self.book.path}/{_STATE}", state, lasting=False)
        self.book.commit()


def _placed(row: dict[str, Any]) -> Iterator[Placed]:
    for who in row["subscriptions"] if row["chunk"] is not None else ():
        of = row["topic"], who["name"], who["life"], who["tick_ms"]
        release = row["redelivery_count"] or 0, row["round"], row["cause"] or "due"
        runs = Chunk.from_bytes(row["chunk"]).runs()
        columns = (runs.due, runs.ledger_ids, runs.first_entries, runs.last_entries)
        for run in zip(*(each.tolist() for each in columns), strict=True):
            due, ledger, first, last = run
            yield Placed(of, due, ledger, first, last, *release)


def _row(each: Placed, instant: int, batch: int) -> dict[str, Any]:
    topic, name, life, tick_ms = each.of
    return {
        "topic": topic,
        "subscription": name,
        "life": life,
        "tick_ms": tick_ms,
        "ledger_id": each.ledger,
        "first_entry": each.first,
        "last_entry": each.last,
        "due_time": each.due * 1_000,
        "message_due": each.due * 1_000,
        "released_at": instant * 1_000,
        "redelivery_count": each.count,
        "round": each.number,
        "cause": each.cause,
        "batch_id": batch,
    }
