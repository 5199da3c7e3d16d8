"""One sink: takes up what is prepared or visible for a subscription, and publishes it when it is due.

The broker keeps the place, or else it is noted here soon after the broker has confirmed messages. Whatever fails, the
connection is dropped, and after a pause it begins again with the place that is known: there is no other way to recover.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from threading import Event, Thread
from typing import Any

from pipeline.client.tables.deliveries import Deliveries
from pipeline.config.errors import SinkPlaceGone
from pipeline.config.threads import panics_raised
from pipeline.config.wallclock import monotonic_ms, wall_ms
from pipeline.delta.deltars import append, open_table, rows_of
from pipeline.sinks.line import SinkConfig
from pipeline.sinks.taking import DeliveryFetcher
from pipeline.sinks.topic import Connect, PlaceForgotten, Refused, Row, Topic
from pipeline.storage.locks import StageLock
from pipeline.subscriptions.destination import Destination
from pipeline.subscriptions.policies import REJECT
from pipeline.subscriptions.sinkplaces import Place, SinkPlace, SinkPlaces, TurnPlace
from schemas import REFUSED_BY_BROKER, REJECTED_DISPATCH

_LOG = logging.getLogger(__name__)
_MOST_BYTES = 32 << 20
"""Of the payloads that are published together: they are held meanwhile."""
_NOTE_MS, _IDLE_MS = 5_000, 3_600_000
"""A place that the broker keeps is noted so often while it moves. An unchanged one is committed again every hour: Kafka
forgets idle offsets."""
_CONFIRMED_MS, _CONFIRMED = 200, 10_000
"""After so long, or so many messages, a broker without places has to confirm what was sent, and the place is noted."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 30.0
PATIENCE_S = 15.0
"""So long sinks that end together are waited for."""
_LEAST_PAUSE_S = 0.003
"""What becomes due in so short a time is sent together."""
_IDENTITY = (
    "batch_id",
    "life",
    "ledger_id",
    "entry_id",
    "due_time",
    "redelivery_count",
    "round",
    "cause",
    "message_key",
)
"""Columns of a delivery that a row about its refusal has, too."""
_ORDER_BITS = 22
"""Of a number that said in earlier versions which message a row is about; the turn had the others."""
_AHEAD_MS = 500
"""What is due so soon is read meanwhile."""


class SinkLoop:
    """A sink at work: in a thread, or step by step.

    Attributes:
        name: what its place is kept under.
        version: the version of `deliveries` of which something is next.
        settled: set in a thread when the broker has all that was there at its begin, or the sink stands still.
    """

    def __init__(
        self,
        root: str,
        table: str,
        line: SinkConfig,
        places: SinkPlaces,
        connect: Connect,
        most: int = 1 << 30,
        clock: Callable[[], int] = wall_ms,
        name: str | None = None,
    ) -> None:
        """Note that it is there, so that the log stays.

        Args:
            root: the warehouse.
            table: the id of its `deliveries`.
            line: of the registry.
            places: where the place is noted.
            connect: makes a connection.
            most: messages that are published together, where the topic does not ask for fewer.
            clock: what time it is, ms UTC: nothing is published before it is due, but for what is visible.
            name: what its place is kept under; None: it is looked up.
        """
        self._clock, self._pause_s, self._looked_ms, self._more = clock, 0.0, 0, False
        self._root, self._line, self._places, self._connect, self._most = root, line, places, connect, most
        self.name, self._producer = name or line.name(table, places.all()), line.producer(table)
        self._to = Destination.parse(line.sink)
        found = places.get(self.name)
        self._noted = replace(found or self._first_place(), sink=line.sink, after=line.after)
        self._lock, self._locked = StageLock(self.name, places.folder), False
        self._place: Place = self._noted.place
        self._sent: Place | None = None
        self._published, self._noted_ms, self._committed_ms = self._noted.published, 0, 0
        self._topic: Topic | None = None
        self._taking: DeliveryFetcher | None = None
        self.version = self._noted.version
        self._found: Sequence[Row] = ()
        self._few: int | None = None
        self._over: TurnPlace | None = None
        self._ended, self._left, self.settled = Event(), Event(), Event()
        self._thread: Thread | None = None
        if found is None:
            places.put(self.name, self._noted)

    def _first_place(self) -> SinkPlace:
        after = Deliveries(self._root, earliest=False).newest if self._line.after is None else self._line.after
        return SinkPlace(self._line.topic, self._line.subscription, after + 1, 0)

    def start(self, pause_s: float) -> None:
        """Work in a thread that looks for news so often."""
        self._pause_s = pause_s
        self._thread = Thread(target=self._run, name=f"delayline-sink-{self.name}", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Begin nothing more; `stop` waits for the end."""
        self._ended.set()

    def stop(self, patience_s: float = PATIENCE_S) -> None:
        """End. What a broker has not confirmed after that time is published by the next one."""
        self._ended.set()
        if self._thread is None:
            self._end()
        else:
            self._thread.join(patience_s)
            # One that waits for a broker ends later, and what it would note then is nobody's.
            if self._thread.is_alive():
                self._left.set()

    def step(self) -> bool:
        """Publish some of what is there; whether anything was.

        Raises:
            SinkPlaceGone: nobody knows where to go on.
            Refused: the broker does not take a message, and the policy is to stop.
            Exception: of the client, or of the table; the next step begins with a new connection.
        """
        try:
            return self._step()
        except Refused as refused:
            try:
                self._sift(refused)
            finally:
                self._drop()
            return True
        except BaseException:
            self._drop()
            raise

    def _step(self) -> bool:
        topic, taking = self._connected()
        queue = taking.queue
        now, most, late = self._clock(), min(self._most_of(topic), self._few or topic.most), self._more
        if not late and monotonic_ms() - self._looked_ms >= 1_000 * self._pause_s:
            self._look(taking, now, most)
        found, self._more = queue.take(now, most, _MOST_BYTES)
        if late and not found:
            self._look(taking, now, most)
            found, self._more = queue.take(now, most, _MOST_BYTES)
        self._found = found
        place = queue.behind(found[-1][0]) if found else self._sent or taking.place
        if found or (self._committed_ms and monotonic_ms() - self._committed_ms >= _IDLE_MS):
            topic.publish([each for each in found if each[0] != self._over], place)
            if self._few is not None:
                topic.confirm()
                self._few = None if 2 * self._few > self._most_of(topic) else 2 * self._few
            self._sent, self._committed_ms = place, monotonic_ms()
            if topic.keeps_place:
                taking.published(place)
        else:
            while queue.read_ahead(now + _AHEAD_MS, _MOST_BYTES) and (queue.next_due() or 0) > self._clock():
                pass
        self._moved(topic, taking, len(found))
        return bool(found)

    def _sift(self, refused: Refused) -> None:
        """Find the message that the broker refuses, or go on without it.

        When the broker does not say which one it is, fewer are published together, until it is one alone.

        Raises:
            Refused: it is found, and the policy is to stop.
        """
        found, topic, taking = self._found, self._topic, self._taking
        assert topic is not None and taking is not None  # noqa: S101, PT018 - it has published by them
        known = (number for number, (order, _) in enumerate(found) if order == refused.order)
        at = next(known, 0 if len(found) == 1 and refused.order is None else None)
        if at is None:
            self._few = max(1, len(found) // 2)
        elif at:
            self._few = at
            if not topic.keeps_place:
                taking.published(found[at - 1][0])
                self._place = taking.place
                self._note(self._now(self._noted.error))
        elif self._line.refused != REJECT:
            self._few = 1
            raise refused
        elif "ledger_id" in found[0][1]:
            self._reject(*found[0], str(refused))
        else:
            # It is read again, with what a row about it needs.
            self._few = 1

    def _reject(self, order: TurnPlace, row: Mapping[str, Any], problem: str) -> None:
        """Append the row of a message that is passed over from now on; once, whoever dies when."""
        where = f"{self._line.topic}/{self._line.subscription}"
        _LOG.warning("sink of %s: the broker refuses %s:%s: %s", where, row["ledger_id"], row["entry_id"], problem)
        columns = {name: row[name] for name in _IDENTITY} | {
            "reason": REFUSED_BY_BROKER,
            "message_key": row["message_key"],
        }
        columns |= {"topic": self._line.topic, "subscription": self._line.subscription}
        rows = rows_of(REJECTED_DISPATCH, [columns | {"rejected_at": datetime.now(UTC)}])
        if order > self._listed_before():
            once, within = (f"{self.name}-turn", order.turn), (f"{self.name}-deliveries", order.deliveries)
            append(self._root, REJECTED_DISPATCH, rows, once=once, within=within)
        self._over = order

    def _listed_before(self) -> TurnPlace:
        """The last message about which an earlier version of delayline has listed a row."""
        noted = open_table(self._root, REJECTED_DISPATCH).transaction_version(self.name) or 0
        return TurnPlace(noted >> _ORDER_BITS, noted & (1 << _ORDER_BITS) - 1)

    def _most_of(self, topic: Topic) -> int:
        return min(self._most, topic.most)

    def _look(self, taking: DeliveryFetcher, now: int, most: int) -> None:
        taking.look(now, most)
        self._looked_ms, self.version = monotonic_ms(), taking.version

    def _connected(self) -> tuple[Topic, DeliveryFetcher]:
        if self._topic is None or self._taking is None:
            self._topic = self._connect(self._to, self._producer, self.name)
            place, passed = self._begin(self._topic), self._topic.passed
            # The broker has cut off whoever published before.
            epoch = self._places.begin(self.name)
            taken = epoch.taken_up()
            if taken is None and (isinstance(place, TurnPlace) or passed):
                raise self._gone("what it has taken up is noted nowhere")
            self._place = place if taken is None else max(place, taken.place)
            wanted = {"topic": self._line.topic, "subscription": self._line.subscription}
            columns = [*self._topic.columns, *(_IDENTITY if self._few is not None else ())]
            self._taking = DeliveryFetcher(self._root, wanted, columns, self._place, passed, epoch, self._left)
            if not self._taking.goes_on:
                raise self._gone("it has published more than `deliveries` or its notes say; they were set back")
            self._committed_ms = monotonic_ms()
        return self._topic, self._taking

    def _gone(self, problem: str) -> SinkPlaceGone:
        return SinkPlaceGone(self._line.topic, self._line.subscription, problem)

    def _begin(self, topic: Topic) -> Place:
        """Where to go on."""
        try:
            place = topic.resume(self._noted.place, begun=self._noted.begun)
        except PlaceForgotten as error:
            raise self._gone("the broker has forgotten up to where it has published") from error
        if not self._noted.begun:
            self._note(replace(self._noted, begun=True))
        return place

    def _moved(self, topic: Topic, taking: DeliveryFetcher, count: int) -> None:
        self._published += count
        since_ms, moved = monotonic_ms() - self._noted_ms, self._published - self._noted.published
        due = moved and not topic.keeps_place and (since_ms >= _CONFIRMED_MS or moved >= _CONFIRMED)
        if due or self._noted.error is not None or since_ms >= _NOTE_MS:
            self._confirm(topic, taking)
            if since_ms >= _NOTE_MS:
                taking.tidy()
            self._note(self._now(None))

    def _confirm(self, topic: Topic, taking: DeliveryFetcher) -> None:
        topic.confirm()
        if self._sent is not None:
            taking.published(self._sent)
        self._place, self._sent = taking.place, None

    def _now(self, error: str | None) -> SinkPlace:
        version = self._noted.version if self._taking is None else self._taking.noted_version
        turn = self._place.turn if isinstance(self._place, TurnPlace) else 0
        rows = self._place[1]
        return replace(self._noted, version=version, rows=rows, turn=turn, published=self._published, error=error)

    def _note(self, place: SinkPlace) -> None:
        """Write it down; that it has begun has to outlive a power cut."""
        if place != self._noted and not self._left.is_set():
            self._places.put(self.name, place, lasting=place.begun and not self._noted.begun)
            self._noted = place
        self._noted_ms = monotonic_ms()

    def _drop(self) -> None:
        topic, self._topic, self._taking, self._sent, self._more = self._topic, None, None, None, False
        if topic is not None:
            topic.close()

    def _run(self) -> None:
        wait_s = _FIRST_PAUSE_S
        while not self._ended.is_set():
            try:
                with panics_raised():
                    self._take_over()
                    more = self.step()
                wait_s = _FIRST_PAUSE_S
                if not more and (self._sent is None or self._topic is None or self._topic.keeps_place):
                    self.settled.set()
                if not self._more:
                    self._ended.wait(self._until_next_s())
            except Exception as error:  # noqa: BLE001 - whatever it is, others go on, and so does this one later
                self._drop()
                self.failed(error)
                self.settled.set()
                self._ended.wait(wait_s)
                wait_s = min(2 * wait_s, _LONGEST_PAUSE_S)
        self._end()

    def _take_over(self) -> None:
        """Begin with what is noted when no other process has the sink any more. In a store nothing tells of one.

        Raises:
            StageRunning: one has it: that of a job before may wait for its broker for some seconds.
        """
        if self._locked:
            return
        self._lock.take()
        self._locked = True
        noted = self._places.get(self.name) or self._noted
        self._noted = replace(noted, sink=self._line.sink, after=self._line.after)
        self._place, self._published = self._noted.place, self._noted.published
        if noted != self._noted:
            self._places.put(self.name, self._noted)

    def _until_next_s(self) -> float:
        """How long nothing is to be done."""
        due = None if self._taking is None else self._taking.queue.next_due()
        left_s = self._pause_s if due is None else (due - self._clock()) / 1_000
        return min(self._pause_s, max(_LEAST_PAUSE_S, left_s))

    def _end(self) -> None:
        if self._topic is not None and self._taking is not None:
            # What is not confirmed is published by the next one.
            with suppress(Exception):
                self._confirm(self._topic, self._taking)
                self._taking.tidy()
        try:
            if self._locked or self._thread is None:
                self._note(self._now(self._noted.error))
        finally:
            self._drop()
            self._lock.release()

    def failed(self, error: Exception) -> None:
        """Say why it stands still, once for each reason that can be noted; not when nobody waits for it any more."""
        if self._left.is_set():
            return
        text = f"{type(error).__name__}: {error}"
        if text != self._noted.error:
            where = f"{self._line.topic}/{self._line.subscription}"
            _LOG.warning("sink of %s stands still and tries again: %s", where, text)
            # The store of the notes may be what does not answer. While another process has the sink, its notes count.
            with suppress(Exception):
                if self._locked or self._thread is None:
                    self._note(self._now(text))
