"""A topic of Kafka, written by one transactional producer.

The place that a sink has reached is committed in the transaction that holds its messages, as an offset of a consumer
group that nobody joins: both are there, or neither. After any failure the connection is made anew: that fences an
earlier producer of the same name, ends what it left open, and only then the place is read.
"""

from __future__ import annotations

import json
import os
from base64 import b64decode
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from pipeline.config.errors import NoBrokerClient
from pipeline.sinks.topic import PlaceForgotten, Refused, Row
from pipeline.subscriptions.destination import SECRET, Destination, check_trusted, from_environment
from pipeline.subscriptions.records import HEADERS, KEY
from pipeline.subscriptions.sinkplaces import Place, place_of

Header = tuple[str, bytes | None]
_WAIT_S = 10.0
"""For an answer of the broker."""
_FULL_S = 0.1
_NOTED = {"key", "value"}
"""What a source notes of a header."""
_REFUSALS = ("INVALID_RECORD", "MSG_SIZE_TOO_LARGE", "RECORD_LIST_TOO_LARGE")
"""Errors of Kafka that say that a message will not be taken later either."""
MESSAGE_BYTES, _MOST_BYTES = 1_000_000, 1_000_000_000
"""What the client takes for the size of a message at most, without a setting and with any."""
_COMMON = ("client.id", "sasl.mechanism", "security.protocol", "socket.timeout.ms")
"""Settings of an address that a reader has, too."""


class KafkaTopic:
    """A connection; a failed call of any method ends it, and another one is made."""

    columns: Sequence[str] = ("message_key", "properties", "payload")
    keeps_place, passed = True, 0
    most = 50_000
    """A transaction has a fixed cost: with fewer it takes a quarter of the time when very many are due at once."""

    def __init__(self, to: Destination, producer: str, group: str, message_bytes: int = MESSAGE_BYTES) -> None:
        """Become the only producer of that name.

        Args:
            to: the topic.
            producer: the transactional id.
            group: the consumer group that keeps the place.
            message_bytes: the client is to take messages of that size, with key and headers, unless it is told else.

        Raises:
            NoBrokerClient: the client is not installed.
            BadValue: the environment has secrets, and does not list the servers.
            KafkaException: the broker does not answer, or refuses.
        """
        try:
            import confluent_kafka as client  # noqa: PLC0415 - an extra: who has no sink does not need it
        except ImportError as error:
            raise NoBrokerClient("kafka") from error
        named = from_environment(os.environ)
        check_trusted(to, os.environ, (name for name in named if name.startswith(SECRET)))
        shared = {**named, "bootstrap.servers": to.servers}
        # What goes wrong is raised; the client's own log repeats each failed attempt to connect.
        shared["log_level"] = "0"
        size = {"message.max.bytes": min(_MOST_BYTES, max(MESSAGE_BYTES, message_bytes))}
        options = {"partitioner": "murmur2_random", **size, **shared, **to.settings, "transactional.id": producer}
        options |= {"on_delivery": self._delivered, "delivery.report.only.error": True}
        reader = {"group.id": group, "enable.auto.commit": False, "isolation.level": "read_committed"}
        common = {key: value for key, value in to.settings.items() if key in _COMMON}
        self._topic, self._full, self._error = to.topic, BufferError, client.KafkaException
        self._refusals = {getattr(client.KafkaError, name) for name in _REFUSALS}
        self._refused: str | None = None
        self._producer: Any = client.Producer(options)
        self._place = client.TopicPartition
        self._producer.init_transactions(_WAIT_S)
        self._consumer: Any = client.Consumer({**shared, **common, **reader})

    def place(self) -> Place | None:
        """The place that was committed last; None: none was, or the broker has forgotten it."""
        (found,) = self._consumer.committed([self._place(self._topic, 0)], timeout=_WAIT_S)
        if found.error is not None:
            raise OSError(str(found.error))
        return None if found.offset < 0 else place_of(found.offset, int(json.loads(found.metadata)["rows"]))

    def resume(self, noted: Place, *, begun: bool) -> Place:
        """Where to go on. What is noted is further on where versions came that had nothing for the sink.

        Raises:
            PlaceForgotten: it had begun, and the broker knows no place.
        """
        known = self.place()
        if known is None and begun:
            raise PlaceForgotten
        if known is None:
            # Nothing is published yet. From here on the broker knows a place, or it has forgotten one.
            self.publish([], noted)
        return max(known or noted, noted)

    def publish(self, rows: Sequence[Row], place: Place) -> None:
        """Write messages, and the place behind them, in one transaction."""
        producer = self._producer
        producer.poll(0)
        producer.begin_transaction()
        for order, row in rows:
            try:
                self._produce(row["payload"], key_of(row), headers_of(row))
            except self._error as error:
                if error.args[0].code() in self._refusals:
                    raise Refused(str(error.args[0]), order) from error
                raise
        offset = self._place(self._topic, 0, place[0], metadata=json.dumps({"rows": place[1]}))
        try:
            producer.send_offsets_to_transaction([offset], self._consumer.consumer_group_metadata(), _WAIT_S)
            producer.commit_transaction(_WAIT_S)
        except self._error as error:
            producer.poll(0)
            if self._refused is not None:
                raise Refused(self._refused) from error
            raise

    def confirm(self) -> None:
        """What is published is committed."""

    def close(self) -> None:
        """Let go of the connection; what is not committed never happened."""
        with suppress(Exception):
            self._producer.purge()
        with suppress(Exception):
            self._consumer.close()

    def _delivered(self, error: Any, _message: object) -> None:  # noqa: ANN401 - of the client
        if error is not None and error.code() in self._refusals:
            self._refused = str(error)

    def _produce(self, value: bytes | None, key: bytes | None, headers: list[Header]) -> None:
        while True:
            try:
                self._producer.produce(self._topic, value, key, headers=headers)
            except self._full:
                self._producer.poll(_FULL_S)
            else:
                return


def key_of(row: Mapping[str, Any]) -> bytes | None:
    """The key; NULL stays NULL. One that came from a broker and is no UTF-8 is what it was."""
    key, properties = row["message_key"], row["properties"]
    if key is None:
        return None
    if properties and key == dict(properties).get(KEY):
        # Anybody may have written something else there.
        with suppress(ValueError):
            return b64decode(key, validate=True)
    return _bytes(str(key))


def headers_of(row: Mapping[str, Any]) -> list[Header]:
    """Properties as headers; a value that is NULL stays NULL. Headers that came from a broker are what they were.

    A note of them that no source has written is a property like any other one.
    """
    if not row["properties"]:
        return []
    properties = dict(row["properties"])
    properties.pop(KEY, None)
    came = _headers(properties.get(HEADERS))
    if came:
        del properties[HEADERS]
    known = {name for name, _ in came}
    others = [(name, text) for name, text in properties.items() if name not in known]
    made = [*came, *((name, None if text is None else _bytes(text)) for name, text in others)]
    return [(_name(name), value) for name, value in made]


def _headers(text: str | None) -> list[Header]:
    """What a source noted of headers; nothing when somebody else wrote something else there."""
    if not text:
        return []
    try:
        return [_header(each) for each in json.loads(text)]
    except (ValueError, TypeError, RecursionError):
        return []


def _header(note: object) -> Header:
    """One of them.

    Raises:
        ValueError: a source does not write it so.
    """
    if not isinstance(note, dict) or not isinstance(name := note.get("key"), str) or not note.keys() <= _NOTED:
        raise ValueError("no header")
    # Of a text with a lone surrogate there are no bytes.
    name.encode()
    return name, b64decode(note["value"], validate=True) if "value" in note else None


def _name(text: str) -> str:
    """The name of a header, as the client takes it: it dies of a lone surrogate, and ends a name at a NUL."""
    return _bytes(text).decode().replace("\0", "\ufffd")


def _bytes(text: str) -> bytes:
    return text.encode(errors="replace")
