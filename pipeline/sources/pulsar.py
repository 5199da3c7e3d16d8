"""A topic of Pulsar as a source, by the client's readers, and a subscription that keeps what was not read yet.

A reader gets a message when it is sent, also one with a `deliverAt`, which the client does not show. So a profile names
the due time among the properties. Key, properties, ordering key and the time of the event come without loss.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from pipeline.brokers.pulsar import connected, package
from pipeline.config.errors import BadSetting, SourceAway, SourcePlaceGone
from pipeline.config.sources import Source
from pipeline.sources.door import LOOK, NO_PROPERTIES, Place, destination
from pipeline.sources.pulsarstream import PulsarStream, kept, place_of
from pipeline.subscriptions.records import EVENT_TIME, ORDERING_KEY

_MOST_ROWS = 50_000
"""Of a batch: the process that reads holds them."""


class PulsarSource:
    """See `pipeline.sources.door.Door`."""

    derived: Mapping[str, str] = {
        "message_properties": f"""map_concat(properties,
            if(ordering_key IS NULL, {NO_PROPERTIES}, map('{ORDERING_KEY}', ordering_key)),
            if(event_time IS NULL, {NO_PROPERTIES}, map('{EVENT_TIME}', CAST(unix_millis(event_time) AS STRING))))""",
    }
    defaults: Mapping[str, str] = {
        "topic": "substring_index(topic, '/', -1)",
        "message_key": "key",
        "properties": "message_properties",
        "publish_time": "publish_time",
        "payload": "payload",
    }
    position = "concat(topic, ', partition ', partition, ', at ', ledger, ':', entry, ':', batch_index)"
    lasting, pause = False, LOOK

    def __init__(self, source: Source) -> None:
        """Read the address.

        Raises:
            BadSetting: it is none, or has settings, of which a reader takes none.
        """
        self._source, self._field = source, source.field("address")
        self._from = destination(source)
        if self._from.settings:
            raise BadSetting(self._field, next(iter(self._from.settings)), "no settings")
        self._subscription = f"delayline-{source.name}"
        self._service = f"{self._from.scheme}://{self._from.servers}"

    def check(self, spark: SparkSession) -> None:  # noqa: ARG002 - a door is asked with the session
        """See `Door`."""
        with self._partitions() as (client, partitions):
            for each in partitions:
                # The process before may not have left yet: the subscription is there then, and the query waits for it.
                with suppress(package().ConsumerBusy):
                    kept(client, each, self._subscription, self._source.start).close()

    def latest(self, spark: SparkSession) -> Place:  # noqa: ARG002 - a door is asked with the session
        """See `Door`. Only the subscription's consumer tells the last message of a partition."""
        with self._partitions() as (client, partitions):
            found = dict[str, str]()
            for each in partitions:
                keeper = kept(client, each, self._subscription, self._source.start)
                found[each] = place_of(keeper.get_last_message_id(), 0)
                keeper.close()
            return found

    @contextmanager
    def _partitions(self) -> Iterator[tuple[Any, list[str]]]:
        """A client, and the names of the topic's partitions; what the client raises is ours."""
        pulsar, client = package(), connected(self._service)
        try:
            yield client, list(client.get_topic_partitions(f"persistent://{self._from.topic}"))
        except pulsar.TopicNotFound as error:
            raise BadSetting(self._field, self._from.topic, "a topic that the cluster has") from error
        except pulsar.PulsarException as error:
            raise SourceAway(self._field, self._from.servers, str(error)) from error
        finally:
            client.close()

    def stream(self, spark: SparkSession, after: Place | None) -> DataFrame:
        """See `Door`. A partition that was not there when the place was noted begins with its first message."""
        options = {"service": self._service, "topic": self._from.topic, "subscription": self._subscription}
        options["max_rows"] = str(min(self._source.max_rows, _MOST_ROWS))
        if after is not None:
            if other := next((each for each in after if not self._has(each)), None):
                raise SourcePlaceGone(self._source.name, f"it has read {other} under this name")
            options["after"] = json.dumps(dict(after))
        spark.dataSource.register(PulsarStream)
        return spark.readStream.format(PulsarStream.name()).options(**options).load()

    def count(self, begin: Place, end: Place) -> int | None:
        """See `Door`."""
        return sum(_count(place) - _count(begin.get(partition, "0")) for partition, place in end.items())

    def behind(self, told: Mapping[str, Any]) -> int | None:  # noqa: ARG002 - the broker is not asked
        """See `Door`."""
        return None

    def _has(self, partition: str) -> bool:
        name, topic = partition.partition("://")[2], self._from.topic
        return name == topic or name.startswith(f"{topic}-partition-")


def _count(place: str) -> int:
    return int(place.rpartition(":")[2])
