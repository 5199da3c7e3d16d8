"""A topic of Pulsar as a stream of Spark's: rows by the client's readers, one for each partition.

An offset says for each partition up to which message it was read: `LEDGER:ENTRY:INDEX:COUNT`. INDEX is the place in a
batch of the producer, whose messages share ledger and entry; -1 where the entry is one message. COUNT is how many
messages were read until there. The readers belong to the process that plans the batches, beside the driver.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import cycle
from typing import Any

from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader
from pyspark.sql.types import StructType

from pipeline.brokers.pulsar import connected, package, time_of
from pipeline.config.sources import EARLIEST, LATEST
from pipeline.subscriptions.records import EVENT_TIME
from pipeline.subscriptions.topicnames import partition_of

Offset = dict[str, str]
Row = tuple[Any, ...]
SCHEMA = (
    "topic STRING, partition INT, ledger BIGINT, entry BIGINT, batch_index INT, key STRING, ordering_key STRING, "
    "properties MAP<STRING, STRING>, publish_time TIMESTAMP, event_time TIMESTAMP, payload BINARY"
)
_BEGIN = "-1:-1:-1:0"
"""Before the first message."""
_WAIT_MS = 10_000


class PulsarStream(DataSource):
    """The format's options: `service`, `topic`, `subscription`, `max_rows`, and `after`, an offset, or nothing."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "delayline_pulsar"

    def schema(self) -> str:
        """A message."""
        return SCHEMA

    def simpleStreamReader(self, schema: StructType) -> SimpleDataSourceStreamReader:  # noqa: N802, ARG002 - Spark's signature
        """The reader that the options ask for."""
        return PulsarReader(self.options)


class PulsarReader(SimpleDataSourceStreamReader):
    """All partitions of a topic; those that come later are read from their beginning."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options, self._topic = dict(options), options["topic"]
        self._after: Offset = json.loads(options.get("after", "{}"))
        self._client: Any = None
        self._readers, self._keepers = dict[str, Any](), dict[str, Any]()
        self._at: Offset = {}

    def __getstate__(self) -> dict[str, Any]:
        """Without connections: Spark pickles it for executors, which read a batch only if the planner has lost it."""
        return {**self.__dict__, "_client": None, "_readers": {}, "_keepers": {}, "_at": {}}

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's signature
        """Where a query begins."""
        return self._after

    def read(self, start: Offset) -> tuple[Iterator[Row], Offset]:
        """What is there, up to `max_rows`, taken from the partitions in turn."""
        rows, end = list[Row](), dict(start)
        for partition in self._partitions():
            self._move(partition, end.setdefault(partition, _BEGIN))
        waiting = cycle(list(self._readers))
        left, most = len(self._readers), int(self._options["max_rows"])
        while left and len(rows) < most:
            partition = next(waiting)
            row = self._next(partition)
            left = left - 1 if row is None else len(self._readers)
            if row is not None:
                rows.append(row)
                end[partition] = self._at[partition]
        return iter(rows), end

    def readBetweenOffsets(self, start: Offset, end: Offset) -> Iterator[Row]:  # noqa: N802 - Spark's signature
        """The rows between two offsets once more."""
        for partition, last in end.items():
            begin = start.get(partition, _BEGIN)
            self._move(partition, begin)
            for _ in range(count_of(last) - count_of(begin)):
                row = self._next(partition)
                if row is None:
                    raise OSError(f"{partition} has no messages up to {last} any more")
                yield row

    def commit(self, end: Offset) -> None:
        """What is up to there need not be kept."""
        for partition, place in end.items():
            if partition in self._keepers and count_of(place):
                self._keepers[partition].acknowledge_cumulative(_message_id(partition, place))

    def _partitions(self) -> list[str]:
        if self._client is None:
            self._client = connected(self._options["service"])
        found = list(self._client.get_topic_partitions(f"persistent://{self._topic}"))
        for each in found:
            if each not in self._keepers:
                # A partition that came later is read, and so kept, from its beginning.
                self._keepers[each] = kept(self._client, each, self._options["subscription"], EARLIEST)
        return found

    def _move(self, partition: str, place: str) -> None:
        """Let the reader of a partition stand behind a place."""
        if partition in self._readers and self._at[partition] == place:
            return
        if self._client is None:
            self._client = connected(self._options["service"])
        with suppress(KeyError):
            self._readers.pop(partition).close()
        self._readers[partition] = self._client.create_reader(partition, _message_id(partition, place))
        self._at[partition] = place

    def _next(self, partition: str) -> Row | None:
        reader = self._readers[partition]
        if not reader.has_message_available():
            return None
        message = reader.read_next(_WAIT_MS)
        self._at[partition] = place_of(message.message_id(), count_of(self._at[partition]) + 1)
        return self._row(partition, message)

    def _row(self, partition: str, message: Any) -> Row:  # noqa: ANN401 - of the client
        event_ms, properties = message.event_timestamp(), dict(message.properties())
        event_time = time_of(event_ms) if event_ms else None
        if event_ms and event_time is None:
            properties[EVENT_TIME] = str(event_ms)
        return (
            self._topic,
            partition_of(partition),
            *_position(message.message_id()),
            message.partition_key() or None,
            message.ordering_key() or None,
            properties,
            time_of(message.publish_timestamp()),
            event_time,
            None if message.has_null_value() else message.data(),
        )


def kept(client: Any, partition: str, subscription: str, start: str) -> Any:  # noqa: ANN401 - of the client
    """A consumer that asks for nothing, of the subscription that keeps what was not read. There is one at a time."""
    pulsar = package()
    begin = pulsar.InitialPosition.Latest if start == LATEST else pulsar.InitialPosition.Earliest
    return client.subscribe(partition, subscription, receiver_queue_size=0, initial_position=begin)


def place_of(message_id: Any, count: int) -> str:  # noqa: ANN401 - of the client
    """The place behind a message, as an offset has it; so many messages were read until there."""
    return ":".join(map(str, (*_position(message_id), count)))


def _position(message_id: Any) -> tuple[int, int, int]:  # noqa: ANN401 - of the client
    return message_id.ledger_id(), message_id.entry_id(), message_id.batch_index()


def _message_id(partition: str, place: str) -> Any:  # noqa: ANN401 - of the client
    """The client compares partitions, too: with another one the last message of a partition would seem to be new."""
    ledger, entry, index, _ = map(int, place.split(":"))
    found = package().MessageId
    return found.earliest if ledger < 0 else found(partition_of(partition), ledger, entry, index)


def count_of(place: str) -> int:
    """How many messages were read until a place."""
    return int(place.rpartition(":")[2])
