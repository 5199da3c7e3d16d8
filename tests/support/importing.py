"""A cluster of Pulsar in memory, as an import meets it: readers, cursors, due times and acknowledgements."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from pipeline.brokers.pulsar import Cursor, Position
from pipeline.moving import pulsar as moving
from pipeline.moving.places import Wanted
from pipeline.moving.pulsar import Taken, take
from pipeline.subscriptions.topicnames import partition_of

BEGIN: Position = (-1, -1)
WANTED = Wanted("pulsar://a:1", "http://a:2", "public/default/t", "s", "orders", 60_000)


class Waits(Exception):
    """The client's error after 30 s in which no message came."""


@dataclass(frozen=True)
class Id:
    """A position, as the client has it; compared with its partition."""

    partition: int
    ledger: int
    entry: int
    index: int

    @property
    def place(self) -> tuple[int, int, int]:
        """Comparable within a partition."""
        return self.ledger, self.entry, self.index

    def ledger_id(self) -> int:
        """The ledger."""
        return self.ledger

    def entry_id(self) -> int:
        """The entry."""
        return self.entry

    def batch_index(self) -> int:
        """The place in a batch; -1: none."""
        return self.index


@dataclass(frozen=True)
class Message:
    """A message of a partition, and its due time, ms UTC; None: it has none."""

    at: Position
    due_ms: int | None
    data: bytes = b""
    key: str = ""
    properties: dict[str, str] = field(default_factory=dict)
    published_ms: int = 1
    event_ms: int = 0

    def of(self, partition: str) -> Any:  # noqa: ANN401 - of the client
        """As the client gives it."""
        fields = {
            "message_id": Id(partition_of(partition), *self.at, -1),
            "data": self.data,
            "properties": self.properties,
            "publish_timestamp": self.published_ms,
            "event_timestamp": self.event_ms,
            "partition_key": self.key,
            "ordering_key": "",
        }
        return SimpleNamespace(**{name: (lambda each=each: each) for name, each in fields.items()})


@dataclass
class Cluster:
    """The partitions of one topic, and what the subscription has acknowledged: up to a position, and single ones.

    The last position of a partition may be that of a ledger with nothing in it.
    """

    logs: Mapping[str, Sequence[Message]]
    before: dict[str, Position] = field(default_factory=dict)
    last: dict[str, Position] = field(default_factory=dict)
    acknowledged: set[tuple[str, Position]] = field(default_factory=set)

    def get_topic_partitions(self, _name: str) -> list[str]:
        """Their names."""
        return [f"persistent://{each}" for each in self.logs]

    def create_reader(self, name: str, begin: Id) -> Reader:
        """A reader behind a position."""
        partition = name.partition("://")[2]
        return Reader(partition, self.logs[partition], begin)

    def subscribe(self, name: str, _subscription: str, **_options: object) -> SimpleNamespace:
        """A consumer that acknowledges."""
        partition = name.partition("://")[2]

        def acknowledge(at: Id) -> None:
            self.acknowledged.add((partition, (at.ledger, at.entry)))

        return SimpleNamespace(acknowledge=acknowledge, close=lambda: None)

    def close(self) -> None:
        """Nothing is held."""

    def cursor(self, partition: str, _subscription: str) -> Cursor:
        """See `Admin`."""
        log, before = self.logs[partition], self.before.get(partition, BEGIN)
        single = sorted(at for name, at in self.acknowledged if name == partition)
        last = self.last.get(partition, log[-1].at if log else BEGIN)
        return Cursor(before, [(at, at) for at in single], last, "Shared", sum(each.at > before for each in log))

    def due_ms(self, partition: str, at: Position) -> int | None:
        """See `Admin`."""
        (found,) = (each for each in self.logs[partition] if each.at == at)
        return found.due_ms

    def taken(self, root: str, wanted: Wanted = WANTED, chunk: int = 5_000) -> list[Taken]:
        """Run an import; the last step of each partition."""
        made = type("MessageId", (), {"earliest": Id(-1, *BEGIN, -1), "__new__": lambda _, *at: Id(*at)})
        client = SimpleNamespace(
            MessageId=made, PulsarException=Waits, ConsumerType=SimpleNamespace(Shared="Shared", KeyShared="KeyShared")
        )
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(moving, "package", lambda: client)
            patched.setattr(moving, "connected", lambda _: self)
            patched.setattr(moving, "Admin", lambda _: self)
            return list({step.partition: step for step in take(root, wanted, chunk=chunk)}.values())


@dataclass
class Reader:
    """Stands behind a position. The client takes a position of another partition for one that is not the last."""

    partition: str
    log: Sequence[Message]
    begin: Id

    def __post_init__(self) -> None:
        """Begin behind it."""
        self._left: Iterator[Message] = (each for each in self.log if each.at > (self.begin.ledger, self.begin.entry))
        self._next = next(self._left, None)

    def has_message_available(self) -> bool:
        """Whether there is one."""
        if not self.log:
            return False
        return self._next is not None or self.begin != Id(partition_of(self.partition), *self.log[-1].at, -1)

    def read_next(self, _wait_ms: int) -> Any:  # noqa: ANN401 - of the client
        """The next one."""
        if self._next is None:
            raise Waits("TimeOut")
        found, self._next = self._next, next(self._left, None)
        self.begin = Id(partition_of(self.partition), *found.at, -1)
        return found.of(self.partition)

    def close(self) -> None:
        """Nothing is held."""
