"""A topic of Pulsar as a source, by the client's readers, and a subscription that keeps what was not read yet.

A reader gets a message when it is sent, also one with a `deliverAt`, which the client does not show. So a profile names
the due time among the properties. Key, properties, ordering key and the time of the event come without loss.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from pipeline.brokers.pulsar import Admin, connected, package
from pipeline.config.errors import BadSetting, BadValue, BrokerRefused, SourceAway, SourcePlaceGone
from pipeline.config.sources import Source
from pipeline.config.wallclock import monotonic_ms
from pipeline.sources.door import NO_PROPERTIES, NOTHING_YET, Place, TopicDoor, columns_of_topic
from pipeline.sources.pulsarstream import PulsarStream, count_of, kept, place_of
from pipeline.subscriptions.records import EVENT_TIME, ORDERING_KEY

_MOST_ROWS = 50_000
"""Of a batch: the process that reads holds them."""
_LOOK_MS, _PATIENCE_S = 5_000, 5
"""So often the REST interface is asked how far the source is behind, and so long its answer is waited for."""


class PulsarSource(TopicDoor):
    """A topic of a cluster."""

    derived: Mapping[str, str] = {
        "message_properties": f"""map_concat(properties,
            if(ordering_key IS NULL, {NO_PROPERTIES}, map('{ORDERING_KEY}', ordering_key)),
            if(event_time IS NULL, {NO_PROPERTIES}, map('{EVENT_TIME}', CAST(unix_millis(event_time) AS STRING))))""",
    }
    defaults = columns_of_topic(
        "substring_index(topic, '/', -1)", "key", "message_properties", "publish_time", "payload"
    )
    position = "concat(topic, ', partition ', partition, ', at ', ledger, ':', entry, ':', batch_index)"

    def __init__(self, source: Source) -> None:
        """Read the address.

        Raises:
            BadSetting: it is none, or has settings, of which a reader takes none; or `admin` is no address.
        """
        super().__init__(source)
        if self._from.settings:
            raise BadSetting(self._field, next(iter(self._from.settings)), "no settings")
        self._subscription = f"delayline-{source.name}"
        self._admin = self._admin_of(source)
        self._asked = -_LOOK_MS
        self._behind: int | str = NOTHING_YET
        self._service = f"{self._from.scheme}://{self._from.servers}"

    @staticmethod
    def _admin_of(source: Source) -> Admin | None:
        if source.admin is None:
            return None
        try:
            return Admin(source.admin, _PATIENCE_S)
        except BadValue as error:
            raise BadSetting(source.field("admin"), error.value, error.allowed) from error

    def check(self, spark: SparkSession) -> None:  # noqa: ARG002 - a door is asked with the session
        """See `SourceConnector`."""
        with self._partitions() as (client, partitions):
            for each in partitions:
                # The process before may not have left yet: the subscription is there then, and the query waits for it.
                with suppress(package().ConsumerBusy):
                    kept(client, each, self._subscription, self._source.start).close()

    def latest(self, spark: SparkSession) -> Place:  # noqa: ARG002 - a door is asked with the session
        """See `SourceConnector`. Only the subscription's consumer tells the last message of a partition."""
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
        """See `SourceConnector`. A partition that is new since the place was noted begins with its first message."""
        options = {"service": self._service, "topic": self._from.topic, "subscription": self._subscription}
        options["max_rows"] = str(min(self._source.max_rows, _MOST_ROWS))
        if after is not None:
            if other := next((each for each in after if not self._has(each)), None):
                raise SourcePlaceGone(self._source.name, f"it has read {other} under this name")
            options["after"] = json.dumps(dict(after))
        spark.dataSource.register(PulsarStream)
        return spark.readStream.format(PulsarStream.name()).options(**options).load()

    def count(self, begin: Place, end: Place) -> int | None:
        """See `SourceConnector`."""
        return sum(count_of(place) - count_of(begin.get(partition, "0")) for partition, place in end.items())

    def behind(self, progress: Mapping[str, Any]) -> int | str:
        """See `SourceConnector`. A batch of a producer counts as one.

        The client says only whether there is more. The REST interface counts, and is asked now and then.
        """
        end = progress.get("endOffset")
        if self._admin is None:
            return "the profile does not name `admin`, and only the REST interface of Pulsar counts messages"
        if not isinstance(end, dict):
            return NOTHING_YET
        if monotonic_ms() - self._asked >= _LOOK_MS:
            self._asked, self._behind = monotonic_ms(), self._counted(self._admin, end)
        return self._behind

    @staticmethod
    def _counted(admin: Admin, end: Place) -> int | str:
        with closing(admin):
            try:
                return sum(admin.entries_after(_name(each), _entry(place)) for each, place in end.items())
            except BrokerRefused as refused:
                return str(refused)

    def _has(self, partition: str) -> bool:
        name, topic = _name(partition), self._from.topic
        return name == topic or name.startswith(f"{topic}-partition-")


def _name(partition: str) -> str:
    """A partition without its scheme."""
    return partition.partition("://")[2]


def _entry(place: str) -> tuple[int, int]:
    """The position of a place, without the index in a batch."""
    ledger, entry, *_ = map(int, place.split(":"))
    return ledger, entry
