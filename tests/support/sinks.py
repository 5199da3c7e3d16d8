"""Sinks under test: a warehouse with deliveries for one, and a broker that lives in memory."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from pipeline.delta.deltars import path_of
from pipeline.delta.logs.entries import newest
from pipeline.sinks.line import SinkConfig
from pipeline.sinks.loop import SinkLoop
from pipeline.sinks.topic import Connect, PlaceForgotten, Refused, Row
from pipeline.storage.files import Files
from pipeline.subscriptions.destination import Destination
from pipeline.subscriptions.sinkplaces import LogPlace, Place, SinkPlaces
from schemas import DELIVERIES
from tests.support.client import delivery_row, message_row, put
from tests.support.dispatching import Dispatching

ADDRESS = "kafka://127.0.0.1:9092/out"


def delivered(root: str, *names: str, subscription: str = "s", **columns: Any) -> int:  # noqa: ANN401 - values of columns
    """Make messages visible, by one version; their payloads are their names. Gives the version."""
    rows = [delivery_row(message_row(1, n, 1_000), n, subscription) for n, _ in enumerate(names, 1)]
    put(
        root, DELIVERIES, *({**row, "payload": name.encode(), **columns} for row, name in zip(rows, names, strict=True))
    )
    return version(root)


def version(root: str) -> int:
    """The newest version of `deliveries`."""
    return newest(Files(), path_of(root, DELIVERIES))


def places(root: str) -> SinkPlaces:
    """What is noted of sinks."""
    return SinkPlaces(Files(), root)


def sink(
    root: str,
    connect: Connect,
    address: str = ADDRESS,
    after: int | None = 0,
    most: int = 1 << 30,
    refused: str = "stop",
) -> SinkLoop:
    """The sink of the subscription `s` of the topic `t`; it does nothing until it is told to step."""
    return SinkLoop(root, "table", SinkConfig("t", "s", address, after, refused), places(root), connect, most)


def ahead(
    dispatch: Dispatching,
    broker: MemoryBroker,
    most: int = 1 << 30,
    after: int | None = 0,
    noted: SinkPlaces | None = None,
) -> SinkLoop:
    """The same by the clock of dispatch, with notes of its own if they are given."""
    line = SinkConfig("t", "s", ADDRESS, after)
    notes = places(dispatch.root) if noted is None else noted
    return SinkLoop(dispatch.root, "table", line, notes, broker.connect, most, lambda: dispatch.now)


def run(loop: SinkLoop) -> None:
    """Let a sink publish all that is there, or is due."""
    while loop.step():
        pass


def run_until_up(loop: SinkLoop) -> None:
    """Let a sink publish all that is there, to a broker that has just come back."""
    for _ in range(30):
        try:
            run(loop)
        except Exception as error:  # noqa: BLE001 - of the client
            last = error
        else:
            return
    raise last


class Killed(Exception):
    """Stands for the death of the process, or of the broker."""


@dataclass
class MemoryBroker:
    """One topic, and the place of one sink, if it keeps places; `fails` says when the next publication does.

    One that keeps none drops what has a place that is not behind that of the last message; and it may hold what it was
    sent until somebody waits for it: of that half is there when the sender dies behind it, and nothing when it dies
    before. It takes none of the payloads that it `refuses`, and says which one it was if it `names_refused`.
    """

    payloads: list[bytes | None] = field(default_factory=list)
    keeps_place: bool = True
    holds: bool = False
    last: Place = field(default_factory=lambda: LogPlace(-1, 0))
    place: Place | None = None
    refuses: Collection[bytes] = ()
    names_refused: bool = True
    fails: Sequence[str] = ()
    connections: int = 0

    def connect(self, _to: Destination, _producer: str, _group: str) -> MemoryTopic:
        """A connection that ends all earlier ones."""
        self.connections += 1
        return MemoryTopic(self, self.connections, keeps_place=self.keeps_place)


@dataclass
class MemoryTopic:
    """A connection."""

    broker: MemoryBroker
    number: int

    columns: Sequence[str] = ("payload",)
    keeps_place: bool = True
    most: int = 10_000
    sent: Sequence[Row] = ()

    @property
    def passed(self) -> int:
        """The turn of the last message."""
        return 0 if self.keeps_place else max(0, self.broker.last[0])

    def resume(self, noted: Place, *, begun: bool) -> Place:
        """The place that was committed, or the one that is noted."""
        known = self.broker.place
        if not self.keeps_place:
            return noted
        if known is None and begun:
            raise PlaceForgotten
        if known is None:
            self.publish([], noted)
        return max(known or noted, noted)

    def publish(self, rows: Sequence[Row], place: Place) -> None:
        """Messages and place, both or neither; then fail if that is wanted."""
        for order, row in rows:
            if row["payload"] in self.broker.refuses:
                if not self.keeps_place:
                    self.publish([each for each in rows if each[0] < order], place)
                    self.confirm()
                raise Refused("too large", order if self.broker.names_refused or not self.keeps_place else None)
        when = self._next()
        if self.number != self.broker.connections or when == "before":
            raise Killed
        self.sent = [*self.sent, *rows]
        if not self.broker.holds:
            self._arrive(len(self.sent))
        self.broker.place = place
        if when == "after":
            self._arrive(len(self.sent) // 2)
            raise Killed

    def confirm(self) -> None:
        """All that was sent is there."""
        when = self._next() if self.broker.holds else ""
        if when == "before":
            raise Killed
        self._arrive(len(self.sent))
        if when == "after":
            raise Killed

    def _next(self) -> str:
        when, *rest = [*self.broker.fails, ""]
        self.broker.fails = rest[:-1] if rest else ()
        return when

    def _arrive(self, count: int) -> None:
        for order, row in self.sent[:count]:
            if self.keeps_place or order > self.broker.last:
                self.broker.payloads.append(row["payload"])
                self.broker.last = order
        self.sent = self.sent[count:]

    def close(self) -> None:
        """Nothing is held."""
