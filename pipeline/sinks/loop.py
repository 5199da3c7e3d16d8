"""One sink: reads what became visible for a subscription, and publishes it, from the place that is known.

The broker keeps the place, or else it is noted here behind each message that the broker has confirmed. Whatever fails,
the connection is dropped, and after a pause it begins again with that place: there is no other way to recover.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import dropwhile
from threading import Event, Thread

from pipeline.client.reading.deliveries import Deliveries
from pipeline.client.subscribing.subscriptions import Subscription
from pipeline.config.errors import SinkPlaceGone
from pipeline.config.wallclock import monotonic_ms
from pipeline.sinks.connect import connect as connect_to
from pipeline.sinks.topic import Connect, Place, PlaceForgotten, Row, Topic
from pipeline.subscriptions.destination import Destination
from pipeline.subscriptions.sinkplaces import SinkPlace, SinkPlaces

_LOG = logging.getLogger(__name__)
_MOST_BYTES = 32 << 20
"""Of the payloads that are published together: they are held meanwhile."""
_NOTE_MS, _IDLE_MS = 5_000, 3_600_000
"""So often a place that the broker keeps is noted while it moves, and committed while it does not: brokers forget."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 30.0
_PATIENCE_S = 15.0


@dataclass(frozen=True)
class Line:
    """A sink of the registry.

    Attributes:
        topic: of the subscription.
        subscription: its name.
        sink: the address.
        after: the version of `deliveries` behind which it begins. Command and client state the newest one when
            the sink is named; None, in a registry that another program wrote: the newest one when it is first seen.
    """

    topic: str
    subscription: str
    sink: str
    after: int | None

    @classmethod
    def of(cls, line: Subscription) -> Line | None:
        """From the registry; None: the subscription has no sink."""
        told = line.policies
        return None if told.sink is None else cls(line.topic, line.name, told.sink, told.sink_after)

    def producer(self, table: str) -> str:
        """Who publishes for the subscription, of a table by its id: of two, the later one stops the earlier one."""
        return _hashed(table, self.topic, self.subscription)

    def name(self, table: str) -> str:
        """What the place is kept under: another one for each begin of each sink."""
        return _hashed(table, self.topic, self.subscription, self.sink, str(self.after))


def _hashed(*told: str) -> str:
    return f"delayline-{hashlib.sha256(chr(0).join(told).encode()).hexdigest()[:24]}"


class SinkLoop:
    """A sink at work: in a thread, or step by step."""

    def __init__(
        self,
        root: str,
        table: str,
        line: Line,
        places: SinkPlaces,
        connect: Connect = connect_to,
        most: int = 1 << 30,
    ) -> None:
        """Note that it is there, so that the log stays.

        Args:
            root: the warehouse.
            table: the id of its `deliveries`.
            line: of the registry.
            places: where the place is noted.
            connect: makes a connection.
            most: messages that are published together, where the topic does not ask for fewer.
        """
        self._root, self._line, self._places, self._connect, self._most = root, line, places, connect, most
        self.name, self._producer, self._to = line.name(table), line.producer(table), Destination.parse(line.sink)
        self._noted = places.get(self.name) or self._first_place()
        self._place: Place = self._noted.version, self._noted.rows
        self._published, self._noted_ms, self._committed_ms = self._noted.published, 0, 0
        self._topic: Topic | None = None
        self._deliveries: Deliveries | None = None
        self._rows: Iterator[Row] = iter(())
        self._ended, self._left = Event(), False
        self._thread: Thread | None = None
        places.put(self.name, self._noted)

    def _first_place(self) -> SinkPlace:
        after = Deliveries(self._root, earliest=False).newest if self._line.after is None else self._line.after
        return SinkPlace(self._line.topic, self._line.subscription, after + 1, 0)

    @property
    def version(self) -> int:
        """The version of `deliveries` of which it publishes next."""
        return self._place[0]

    def start(self, pause_s: float) -> None:
        """Work in a thread that looks for news so often."""
        self._thread = Thread(target=self._run, args=(pause_s,), name=f"delayline-sink-{self.name}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End. What a broker has not confirmed by then is published by the next one."""
        self._ended.set()
        if self._thread is None:
            self._end()
        else:
            self._thread.join(_PATIENCE_S)
            # One that waits for a broker ends later, and what it would note then is nobody's.
            self._left = self._thread.is_alive()

    def step(self) -> bool:
        """Publish some of what is there; whether anything was.

        Raises:
            SinkPlaceGone: nobody knows where to go on.
            Exception: of the client, or of the table; the next step begins with a new connection.
        """
        try:
            return self._step()
        except BaseException:
            self._drop()
            raise

    def _step(self) -> bool:
        topic, deliveries = self._connected()
        found, more = self._some(min(self._most, topic.most))
        if not more:
            self._rows = deliveries.rows(self._line.topic, self._line.subscription, topic.columns)
        place = found[-1][0] if more else (deliveries.next_version, 0)
        if found or (self._committed_ms and monotonic_ms() - self._committed_ms >= _IDLE_MS):
            topic.publish(found, place)
            self._committed_ms = monotonic_ms()
        self._moved(place, len(found))
        return bool(found)

    def _some(self, most: int) -> tuple[list[Row], bool]:
        """What is published together; whether there may be more."""
        found, size = list[Row](), 0
        for order, row in self._rows:
            found.append((order, row))
            size += len(row["payload"] or b"")
            if len(found) == most or size >= _MOST_BYTES:
                return found, True
        return found, False

    def _connected(self) -> tuple[Topic, Deliveries]:
        if self._topic is None or self._deliveries is None:
            self._topic = self._connect(self._to, self._producer, self.name)
            self._place = self._begin(self._topic)
            self._deliveries = Deliveries(self._root, begin=self._place[0])
            if self._deliveries.next_version > self._deliveries.newest + 1:
                problem = f"it has published up to version {self._place[0]}, which `deliveries` does not have"
                raise SinkPlaceGone(self._line.topic, self._line.subscription, problem)
            fresh = self._deliveries.rows(self._line.topic, self._line.subscription, self._topic.columns)
            place = self._place
            self._rows = dropwhile(lambda found: found[0] <= place, fresh)
            self._committed_ms = monotonic_ms()
        return self._topic, self._deliveries

    def _begin(self, topic: Topic) -> Place:
        """Where to go on."""
        try:
            place = topic.resume((self._noted.version, self._noted.rows), begun=self._noted.begun)
        except PlaceForgotten as error:
            problem = "the broker has forgotten up to where it has published"
            raise SinkPlaceGone(self._line.topic, self._line.subscription, problem) from error
        if not self._noted.begun:
            self._note(replace(self._noted, begun=True))
        return place

    def _moved(self, place: Place, count: int) -> None:
        self._place, self._published = place, self._published + count
        moved = count and self._topic is not None and not self._topic.keeps_place
        if moved or self._noted.error is not None or monotonic_ms() - self._noted_ms >= _NOTE_MS:
            self._note(self._now(None))

    def _now(self, error: str | None) -> SinkPlace:
        version, rows = self._place
        return replace(self._noted, version=version, rows=rows, published=self._published, error=error)

    def _note(self, place: SinkPlace) -> None:
        """Write it down; that it has begun has to outlive a power cut."""
        if place != self._noted and not self._left:
            self._places.put(self.name, place, lasting=place.begun and not self._noted.begun)
            self._noted = place
        self._noted_ms = monotonic_ms()

    def _drop(self) -> None:
        topic, self._topic, self._deliveries, self._rows = self._topic, None, None, iter(())
        if topic is not None:
            topic.close()

    def _run(self, pause_s: float) -> None:
        wait_s = _FIRST_PAUSE_S
        while not self._ended.is_set():
            try:
                more = self.step()
                wait_s = _FIRST_PAUSE_S
                if not more:
                    self._ended.wait(pause_s)
            except Exception as error:  # noqa: BLE001 - whatever it is, others go on, and so does this one later
                self.failed(error)
                self._ended.wait(wait_s)
                wait_s = min(2 * wait_s, _LONGEST_PAUSE_S)
        self._end()

    def _end(self) -> None:
        self._drop()
        self._note(self._now(self._noted.error))

    def failed(self, error: Exception) -> None:
        """Say why it stands still, once for each reason."""
        text = f"{type(error).__name__}: {error}"
        if text != self._noted.error:
            where = f"{self._line.topic}/{self._line.subscription}"
            _LOG.warning("sink of %s stands still and tries again: %s", where, text)
            self._note(self._now(text))
