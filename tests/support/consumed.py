"""A warehouse for tests of consumers: dispatch and settle as they write, in a few lines each, and a clock to be set.

`Dispatched` writes `redelivery` and `deliveries` as the stages do; `SettleFake` reads what consumers say and writes
`cursors` and `closed`, by the same core as the stage of settle.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from shutil import copyfile, copytree
from tempfile import mkdtemp
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, write_deltalake

from pipeline.client.choices import ConsumerType
from pipeline.client.clock import Clock
from pipeline.client.consuming.consumer import Consumer
from pipeline.client.consuming.engine import Engine
from pipeline.client.consuming.opening import new_consumer
from pipeline.client.consuming.options import ConsumerOptions
from pipeline.client.create import create_all
from pipeline.client.message import Message
from pipeline.config.paths import is_s3
from pipeline.delta.deltars import arrow_schema, create, path_of, rows_of
from pipeline.delta.logs.entries import Commit, actions, appended, newest
from pipeline.delta.properties import PROPERTIES
from pipeline.settle.core.events import ConsumerEvents, consumer_events, released_by
from pipeline.settle.core.fold import Outcome
from pipeline.settle.core.listener import Listener
from pipeline.settle.core.opened import CursorState
from pipeline.storage.files import Files
from pipeline.subscriptions.policies import Policies
from schemas import CLOSED, CONSUMER_EVENTS, CURSORS, DELIVERIES, REDELIVERY, Table
from state import Effect, Event, Positions, SubscriptionType
from state.units import Ms
from tests.support.client import at

TOPIC, SUBSCRIPTION, LIFE = "t", "s", 1
NOON = 1_700_000_000_000


@dataclass
class SetClock(Clock):
    """A clock that stands until it is moved; ms."""

    time: int = 1_000_000

    def now(self) -> int:
        """The time."""
        return self.time

    def wall(self) -> int:
        """The same, since some noon."""
        return NOON + self.time


def _make(root: str) -> str:
    """Make the tables of a warehouse; give its folder."""
    # Consumers open these again and again; a checkpoint now and then saves them the reading of a long log.
    for table in (CONSUMER_EVENTS, CURSORS):
        create(root, table, PROPERTIES | table.properties | {"delta.checkpointInterval": "10"})
    create_all(root)
    return root


@cache
def _made() -> str:
    """The folder of a warehouse just made, to be copied."""
    return _make(mkdtemp())


@lru_cache(maxsize=8)
def _opened(folder: str) -> DeltaTable:
    """A table held open: opening it anew reads all of its log, and a play has hundreds of commits."""
    return DeltaTable(folder)


def noted(root: str, table: Table, rows: list[dict[str, Any]], stage: str, note: dict[str, Any]) -> int:
    """Append rows in one commit with a stage's note; give the version."""
    opened = _opened(path_of(root, table))
    properties = CommitProperties(custom_metadata={"userMetadata": Commit(stage, "o", 0, note).dumps()})
    write_deltalake(opened, rows_of(table, rows), mode="append", commit_properties=properties)
    return opened.version()


def news(root: str, table: Table, after: int) -> list[tuple[int, pa.Table]]:
    """The rows of each version of a table after one."""
    files, folder, schema = Files(), path_of(root, table), arrow_schema(table)
    found = []
    for version in range(after + 1, newest(files, folder) + 1):
        paths = [f"{folder}/{add['path']}" for add in appended(actions(files, folder, version))]
        rows = [pq.read_table(files.open(path)).cast(schema) for path in paths]
        found.append((version, pa.concat_tables([schema.empty_table(), *rows]).combine_chunks()))
    return found


@dataclass
class Dispatched:
    """Releases messages and delivers them, as schedule and dispatch do."""

    root: str
    batch: int = 0
    life: int = LIFE

    @property
    def named(self) -> dict[str, Any]:
        """Whose rows these are."""
        return {"topic": TOPIC, "subscription": SUBSCRIPTION, "life": self.life}

    def deliver(self, *positions: tuple[int, int], count: int = 0, keys: Sequence[str] | None = None) -> None:
        """Release positions and deliver them, in this order, one commit each table."""
        self.show(positions, self.release(positions, count), count, keys)

    def release(self, positions: Iterable[tuple[int, int]], count: int = 0) -> int:
        """Release positions; give the version of `redelivery`."""
        due = at(NOON + self.batch)
        same = {
            "topic": TOPIC,
            "subscription": SUBSCRIPTION,
            "life": self.life,
            "redelivery_count": count,
            "cause": "due",
        }
        times = {"due_time": due, "message_due": due, "tick_ms": 1, "released_at": due, "batch_id": self.batch}
        runs = [{"ledger_id": ledger, "first_entry": entry, "last_entry": entry} for ledger, entry in positions]
        return noted(self.root, REDELIVERY, [{**same, **times, **run} for run in runs], "schedule", {})

    def show(
        self, positions: Iterable[tuple[int, int]], source: int, count: int = 0, keys: Sequence[str] | None = None
    ) -> None:
        """Deliver positions that were released in a version of `redelivery`."""
        due = at(NOON + self.batch)
        same = {
            "topic": TOPIC,
            "subscription": SUBSCRIPTION,
            "life": self.life,
            "redelivery_count": count,
            "cause": "due",
        }
        times = {"due_time": due, "released_at": due, "publish_time": due, "batch_id": self.batch}
        rows = [
            {**same, **times, "ledger_id": ledger, "entry_id": entry, "sequence": number + 1,
             "message_key": keys[number] if keys else None, "payload": f"{ledger}.{entry}".encode()}
            for number, (ledger, entry) in enumerate(positions)
        ]  # fmt: skip
        noted(self.root, DELIVERIES, rows, "dispatch", {"source": [source + 1, -1]})
        self.batch += 1


class SettleFake:
    """Settles one subscription, by the core of the stage of settle.

    Attributes:
        opened: what is open.
        outcome: all that came of what consumers said, and was not asked for yet.
    """

    def __init__(self, root: str, slots: int, policies: Policies, life: int = LIFE) -> None:
        self.policies, self.slots = policies, slots
        self._root, self._batch, self._events, self._released = root, 0, -1, -1
        self._listener = Listener((TOPIC, SUBSCRIPTION), life, 1, slots, policies)
        self.opened = CursorState.begun(self._listener, -1)
        self.outcome = Outcome(Ms(NOON), 3_600_000)

    def settle(self, now: int = NOON) -> None:
        """One batch, when there is anything for it."""
        said, given = news(self._root, CONSUMER_EVENTS, self._events), news(self._root, REDELIVERY, self._released)
        if not (said or given) and self._batch:
            return
        self._events, self._released = (
            max([before, *(version for version, _ in found)])
            for before, found in ((self._events, said), (self._released, given))
        )
        name = self._listener.name
        incoming = (
            consumer_events(pa.concat_tables([rows for _, rows in said]), {name: self._listener})
            if said
            else ConsumerEvents()
        )
        events: list[Event] = [
            each for version, rows in given for _, each in released_by(rows, version, {name: self._listener})
        ]
        effects = self.opened.handle([*events, *incoming.events[name]], incoming.leases[name], Ms(now))
        self.outcome.take(self._listener, effects)
        self._write(effects)

    def retries(self) -> dict[int, list[tuple[int, int]]]:
        """What is to come again, by redelivery count; it is not asked for again."""
        again: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for _, each in self.outcome.retries:
            again[each.redelivery_count] += places(each.positions)
        self.outcome.retries = []
        return dict(again)

    def causes(self) -> list[str]:
        """Why each retry that was not asked for comes again."""
        return [each.reason for _, each in self.outcome.retries for _ in places(each.positions)]

    @property
    def open(self) -> int:
        """How many messages are outstanding."""
        return self.opened.outstanding.counts.outstanding

    def _write(self, effects: Iterable[Effect]) -> None:
        self._batch += 1
        closed = Outcome(Ms(NOON), 3_600_000)
        closed.take(self._listener, effects)
        if closed.closed:
            noted(
                self._root,
                CLOSED,
                [row | {"batch_id": self._batch} for row in closed.closed_rows().to_pylist()],
                "settle",
                {},
            )
        covered = {"events": self._events, "released": self._released}
        rows = [{**row, **covered, "batch_id": self._batch} for row in self.opened.changed_rows()]
        self.opened.saved()
        noted(
            self._root, CURSORS, rows, "settle", {**covered, "refused": -1, "now": NOON, "lives": self._listener.life}
        )


def places(positions: Positions) -> list[tuple[int, int]]:
    """Ledger and entry of each."""
    return [(ledger, entry) for ledger, first, last in positions.runs() for entry in range(first, last + 1)]


class World:
    """A warehouse with one subscription, its stages, and any number of processes with consumers."""

    def __init__(
        self,
        root: str,
        kind: SubscriptionType = SubscriptionType.SHARED,
        slots: int = 8,
        policies: Policies | None = None,
    ) -> None:
        """Tables without rows; settle has had its first batch."""
        if is_s3(root):
            _make(root)
        else:
            copytree(_made(), root, copy_function=copyfile, dirs_exist_ok=True)
        self.root, self.kind, self.clock = root, kind, SetClock()
        self.dispatch = Dispatched(root)
        self.settle = SettleFake(root, kind.slots(slots), policies or Policies(ack=True))
        self.settle.settle()
        self.engines: list[Engine] = []

    def process(self) -> Engine:
        """Another process."""
        engine = Engine(self.root, self.clock)
        self.engines.append(engine)
        return engine

    def consumer(self, engine: Engine, name: str = "a", **options: Any) -> Consumer:  # noqa: ANN401 - as they are
        """A consumer."""
        choices = ConsumerOptions(ConsumerType(self.kind.value), name, **options)
        return new_consumer(engine, [TOPIC], SUBSCRIPTION, choices)

    def joined(self, name: str = "a", **options: Any) -> Consumer:  # noqa: ANN401 - as they are
        """A consumer in a process of its own, which has its part."""
        consumer = self.consumer(self.process(), name, **options)
        self.run(3)
        return consumer

    def run(self, seconds: float, *engines: Engine, settles: bool = True) -> None:
        """Let all processes, or some, and settle go on: five turns a second."""
        for _ in range(round(seconds * 5)):
            self.clock.time += 200
            for engine in engines or self.engines:
                engine.turn()
            if settles:
                self.settle.settle(self.clock.wall())

    def again(self) -> None:
        """Deliver what is to come again, whenever that is."""
        for count, positions in self.settle.retries().items():
            self.dispatch.deliver(*positions, count=count)

    def begin_anew(self, life: int) -> None:
        """The subscription begins another life; what the one before left open is nobody's."""
        self.dispatch.life = life
        self.settle = SettleFake(self.root, self.settle.slots, self.settle.policies, life)
        self.settle.settle()

    def crash(self, consumer: Consumer, *, seen: bool = False) -> None:
        """The process of a consumer is gone, without a word; or the kernel drops its locks, and so others see it."""
        self.engines.remove(consumer.engine)
        for file in consumer.engine.logs.sessions._held.values() if seen else ():
            os.close(file)


def drained(consumer: Consumer) -> list[Message]:
    """All that a consumer can have now."""
    return list(iter(lambda: consumer.next_message(0), None))


def names(messages: Iterable[Message]) -> list[tuple[int, int]]:
    """Ledger and entry of each."""
    return [message.message_id().position for message in messages]
