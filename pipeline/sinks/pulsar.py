"""A topic of Pulsar, written by one producer for each of its partitions.

Each message has a sequence id that follows from its place, so it has the same one whenever it is sent again. A broker
that deduplicates drops what it has already; consumers of another one can, by the producer's name and the sequence id.
The place is noted by the sink, behind what the broker has confirmed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from threading import Condition
from typing import Any

from pipeline.brokers.pulsar import connected, package, secrets_in
from pipeline.config.errors import BadValue
from pipeline.sinks.topic import Refused, Row
from pipeline.subscriptions.destination import Destination, check_trusted
from pipeline.subscriptions.records import EVENT_TIME, ORDERING_KEY, whole_number
from pipeline.subscriptions.sinkplaces import Place, TurnPlace

_COUNT_BITS, _TURN_BITS = 24, 39
_FIRST_TURN = 1_735_689_600_000
"""2025-01-01; ids are good for 17 years."""
_LEAST_ID = 1 << 56
"""Ids of turns are larger; those of earlier versions, made of a version of `deliveries` and a row, are not."""
_ANSWER_S = 10.0
"""So long after a flush the client may take to tell of what it has flushed."""
_REFUSALS = ("InvalidMessage", "MessageTooBig")
"""Results of the client that say that a message will not be taken later either."""
_PENDING = 1_000
"""Messages that the client holds, without a setting."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)
_NO_COMPRESSION = "NONE"
_LEAST = {"max_pending_messages": 1, "send_timeout_millis": 1_000}
"""The least value of a setting; the client gives up after `send_timeout_millis`."""


class PulsarTopic:
    """A connection; a failed call of any method ends it, and another one is made."""

    columns: Sequence[str] = ("message_key", "properties", "publish_time", "deliver_at", "payload")
    keeps_place = False
    most = 10_000
    """So many are sent again after a crash."""

    def __init__(self, to: Destination, _producer: str, place: str) -> None:
        """Become the only producer of that name: the broker refuses a second one while the first is connected.

        Args:
            to: the topic.
            place: the name of the producer: another begin of a sink has another one, as its sequence ids begin anew.

        Raises:
            NoBrokerClient: the client is not installed.
            BadValue: a setting has a value that the client does not take, or the environment has secrets, and does not
                list the servers.
            Exception: of the client; the broker does not answer, or refuses.
        """
        settings, name = _settings(to), f"persistent://{to.topic}"
        check_trusted(to, os.environ, secrets_in(os.environ))
        client = connected(f"{to.scheme}://{to.servers}")
        try:
            # Messages are not sent in batches: a broker would know of a batch the id of its first message only.
            made = partial(client.create_producer, producer_name=place, block_if_queue_full=True, **settings)
            self._producers = [made(each) for each in client.get_topic_partitions(name)]
        except BaseException:
            client.close()
            raise
        self._client, self._ok = client, package().Result.Ok
        self._room = settings.get("max_pending_messages", _PENDING)
        self._sent, self._answered, self._news = 0, 0, Condition()
        self._failed = list[tuple[Any, TurnPlace]]()

    @property
    def passed(self) -> int:
        """The turn of the last message that the broker knows of the producers; 0: it knows none, or drops nothing."""
        last = max(producer.last_sequence_id() for producer in self._producers)
        return _FIRST_TURN + (last >> _COUNT_BITS) if last >= _LEAST_ID else 0

    def resume(self, noted: Place, *, begun: bool) -> Place:  # noqa: ARG002 - the broker may forget: the note counts
        """What is noted: it is never ahead of the broker, and what the broker has already has the same id again."""
        return noted

    def publish(self, rows: Sequence[Row], place: Place) -> None:  # noqa: ARG002 - the sink notes it
        """Send messages. With as many on their way as the client holds (`max_pending_messages`), wait for the broker.

        When the client gives up on messages, all that are on their way fail together. Nothing may be sent then: the
        broker would drop what failed when it comes again, as its id is behind. So the client never waits in the middle
        of a call, and the sink waits for the broker (`confirm`) long before the client gives up.

        Raises:
            OSError: a message has failed. Nothing was sent behind one that the client itself refuses.
            Refused: it will not be taken later either; what was sent before it is confirmed.
        """
        for order, row in rows:
            if self._failed or self._sent >= self._room:
                self.confirm()
            self._sent += 1
            answer = partial(self._answer, order)
            self._producer(order, row).send_async(row["payload"] or b"", answer, **record(order, row))
        if self._failed:
            self.confirm()

    def confirm(self) -> None:
        """Wait until the broker has confirmed what was sent.

        Raises:
            OSError: it has not.
            Refused: it has not taken one of them, and will not.
            Exception: of the client, after the time that a message is given (`send_timeout_millis`).
        """
        for producer in self._producers:
            producer.flush()
        # A flush may end before the client's own thread has told of the last message.
        with self._news:
            self._news.wait_for(lambda: self._answered == self._sent, _ANSWER_S)
        if self._failed:
            (result, order), *more = self._failed
            if result.name in _REFUSALS and not more and self._answered == self._sent:
                raise Refused(result.name, order)
            raise OSError(f"the broker has not taken a message: {result.name}")
        if self._answered != self._sent:
            raise OSError(f"the broker has confirmed {self._answered} of {self._sent} messages")
        self._answered, self._sent = 0, 0

    def close(self) -> None:
        """Let go of the connection."""
        with suppress(Exception):
            self._client.close()

    def _answer(self, order: TurnPlace, result: Any, _message: object) -> None:  # noqa: ANN401 - the client's, in a thread
        with self._news:
            self._answered += 1
            if result != self._ok:
                self._failed.append((result, order))
            self._news.notify()

    def _producer(self, order: TurnPlace, row: Mapping[str, Any]) -> Any:  # noqa: ANN401 - of the client
        return self._producers[partition(row["message_key"], order, len(self._producers))]


def record(order: TurnPlace, row: Mapping[str, Any]) -> dict[str, Any]:
    """What the client takes beside the payload: sequence id, key, properties, and the due time as time of the event."""
    # Pulsar has no property without a value.
    properties = {name: text for name, text in row["properties"] or () if text is not None}
    fields = {
        "sequence_id": _sequence_id(order),
        "partition_key": row["message_key"],
        "ordering_key": properties.pop(ORDERING_KEY, None),
        "event_timestamp": _event_ms(row, properties.pop(EVENT_TIME, "")),
        "properties": properties,
    }
    return {name: each for name, each in fields.items() if each is not None}


def _sequence_id(order: TurnPlace) -> int:
    turn, number = order.turn - _FIRST_TURN, order.deliveries
    if number >> _COUNT_BITS:
        raise BadValue("deliveries", number, f"{(1 << _COUNT_BITS) - 1} at most that are due in one ms, in Pulsar")
    if not 0 < turn < 1 << _TURN_BITS:
        raise BadValue("turn", order.turn, "the years 2025 to 2042")
    return turn << _COUNT_BITS | number


def _event_ms(row: Mapping[str, Any], text: str) -> int | None:
    """What a message from Pulsar had, else the due time, rounded up as due times are; None: before 1970."""
    if (happened := whole_number(text)) is not None:
        return happened
    due = max(each for each in (row["publish_time"], row["deliver_at"]) if each is not None)
    ms = -(-(due - _EPOCH) // _MS)
    return ms if ms > 0 else None


def partition(key: str | None, order: TurnPlace, count: int) -> int:
    """Which partition a message is for: the one that Java's producers choose for the key, else one by its place."""
    if count == 1:
        return 0
    if key is None:
        return sum(order) % count
    code = 0
    for low, high in zip(*[iter(key.encode("utf-16-le"))] * 2, strict=True):
        code = (31 * code + (high << 8 | low)) & 0xFFFFFFFF
    return (code & 0x7FFFFFFF) % count


def _settings(to: Destination) -> dict[str, Any]:
    """The settings of an address, as the client takes them."""
    numbers: dict[str, Any] = {
        name: _number(name, text, _LEAST[name]) for name, text in to.settings.items() if name != "compression_type"
    }
    name = to.settings.get("compression_type", _NO_COMPRESSION).upper()
    kinds = {str(each).upper(): kind for each, kind in package().CompressionType.__members__.items()}
    if name not in kinds:
        raise BadValue("compression_type", name, ", ".join(kinds))
    return {**numbers, "compression_type": kinds[name]}


def _number(name: str, text: str, least: int) -> int:
    number = whole_number(text)
    if number is None or not least <= number <= 1_000_000:
        raise BadValue(name, text, f"{least} to 1000000")
    return number
