"""A topic of Kafka as a source, by Spark's connector.

Headers and key go to properties and message key without loss. A header that a map of texts has no room for (its name
comes twice, or its value is no UTF-8) is among the properties as far as it fits, and all headers are in one property
(`HEADERS`) that a sink takes them from. So it is with a key that is no UTF-8 (`KEY`).

Sinks publish with Kafka's C client, sources read with its Java client; both take their secrets from the same variables.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from pipeline.config.errors import BadSetting, BadValue, NoSourceConnector, SourceAway, SourcePlaceGone
from pipeline.config.jvm import java_class
from pipeline.config.sources import EARLIEST, Source
from pipeline.config.sparkversion import kafka_connector
from pipeline.sources.door import NO_PROPERTIES, NOTHING_YET, Place, TopicDoor, columns_of_topic
from pipeline.subscriptions.destination import SECRET, Destination, check_strength, from_environment
from pipeline.subscriptions.records import HEADERS, KEY

_SAME = {
    "security.protocol": "security.protocol",
    "sasl.mechanism": "sasl.mechanism",
    "sasl.mechanisms": "sasl.mechanism",
    "client.id": "client.id",
    "ssl.key.password": "ssl.key.password",
}
_CA, _CERTIFICATE, _KEY = "ssl.ca.location", "ssl.certificate.location", "ssl.key.location"
_USER, _PASSWORD = "sasl.username", "sasl.password"
_PLAIN_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM_LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule"


def java_settings(to: Destination, field: str, variables: Mapping[str, str]) -> dict[str, str]:
    """What a reader of a topic is told.

    Args:
        to: the topic.
        field: what the profile calls its address.
        variables: the environment.

    Raises:
        BadSetting: the address has a setting of producers, or weakens what the environment says.
    """
    for name in to.settings:
        if name not in _SAME:
            raise BadSetting(
                field, f"setting {name}", "client.id, sasl.mechanism, security.protocol; others from the environment"
            )
    named = from_environment(variables)
    try:
        check_strength(to, variables, [name for name in named if name.startswith(SECRET)])
    except BadValue as error:
        raise BadSetting(field, error.value, error.allowed) from error
    settings = {**named, **to.settings}
    made = {_SAME[name]: value for name, value in settings.items() if name in _SAME}
    if _USER in settings and _PASSWORD in settings:
        made["sasl.jaas.config"] = _login(made.get("sasl.mechanism", "PLAIN"), settings[_USER], settings[_PASSWORD])
    if _CA in settings:
        made |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": settings[_CA]}
    if _CERTIFICATE in settings and _KEY in settings:
        made |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": Path(settings[_CERTIFICATE]).read_text(encoding="utf-8"),
            "ssl.keystore.key": Path(settings[_KEY]).read_text(encoding="utf-8"),
        }
    return made | {"bootstrap.servers": to.servers}


def _login(mechanism: str, user: str, password: str) -> str:
    module = _SCRAM_LOGIN if mechanism.upper().startswith("SCRAM") else _PLAIN_LOGIN
    return f"{module} required username={_quoted(user)} password={_quoted(password)};"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


_WAIT_S = 10
"""For an answer of the broker, before a start."""
_TASK_ROWS = 100_000
"""Rows of a task at most: a large batch of few partitions is shared."""
_PATIENCE = {
    "kafka.default.api.timeout.ms": "15000",
    "kafka.request.timeout.ms": "10000",
    "fetchOffset.numRetries": "1",
}
"""A broker that is away ends the query after some seconds, and it is begun again; Kafka would wait for minutes."""
_EARLIEST = -2
"""What Spark calls the first offset that a partition has."""

_TEXT_KEY = "coalesce(is_valid_utf8(CAST(key AS STRING)), true)"
_IS_TEXT = f"((h.value IS NULL OR is_valid_utf8(CAST(h.value AS STRING))) AND h.key NOT IN ('{HEADERS}', '{KEY}'))"
_FIT = f"""(headers IS NULL OR size(headers) = size(array_distinct(transform(headers, h -> h.key)))
    AND forall(headers, h -> {_IS_TEXT}))"""
_PLAIN = f"map_from_entries(transform(filter(headers, h -> {_IS_TEXT}), h -> struct(h.key, CAST(h.value AS STRING))))"
_ALL = "to_json(transform(headers, h -> struct(h.key AS key, base64(h.value) AS value)))"
_DERIVED = {
    "message_key": f"if({_TEXT_KEY}, CAST(key AS STRING), base64(key))",
    "properties": f"""CASE WHEN headers IS NULL AND {_TEXT_KEY} THEN NULL ELSE map_concat(
        coalesce({_PLAIN}, {NO_PROPERTIES}),
        if({_FIT}, {NO_PROPERTIES}, map('{HEADERS}', {_ALL})),
        if({_TEXT_KEY}, {NO_PROPERTIES}, map('{KEY}', base64(key)))) END""",
}


class KafkaSource(TopicDoor):
    """A topic of a cluster."""

    derived = _DERIVED
    defaults = columns_of_topic("topic", "message_key", "properties", "timestamp", "value")
    position = "concat(topic, '-', partition, ' at ', offset)"

    def __init__(self, source: Source) -> None:
        """Read the address, and what the environment says of brokers.

        Raises:
            BadSetting: it is none, or a setting of it is not one of a reader.
        """
        super().__init__(source)
        self._settings = java_settings(self._from, self._field, os.environ)
        self._connected: tuple[SparkSession, Any] | None = None

    def check(self, spark: SparkSession) -> None:
        """See `SourceConnector`."""
        self._partitions(spark)

    def identity(self, spark: SparkSession) -> str | None:
        """See `SourceConnector`. The connection for it is kept, as it is asked with each batch."""
        if self._connected is None:
            self._connected = spark, self._connect(spark)
        try:
            with self._understood():
                known = self._described(*self._connected).topicId()
        except BaseException:
            self.close()
            raise
        return (
            None if known.equals(java_class(spark, "org.apache.kafka.common.Uuid").ZERO_UUID) else str(known.toString())
        )

    def close(self) -> None:
        """See `SourceConnector`."""
        connected, self._connected = self._connected, None
        if connected is not None:
            _close(*connected)

    def stated(self, start: str) -> Place | None:
        """See `SourceConnector`. A partition that it leaves out begins with its first record."""
        with suppress(ValueError):
            place = json.loads(start)
            offsets = place.get(self._from.topic)
            known = isinstance(offsets, dict) and all(type(each) is int and each >= 0 for each in offsets.values())
            return dict(place) if known and len(place) == 1 else None
        return None

    def latest(self, spark: SparkSession) -> Place:
        """See `SourceConnector`. A transaction that is open lies behind it."""
        with self._admin(spark) as admin:
            return {self._from.topic: self._offsets(spark, admin, "latest")}

    def _offsets(self, spark: SparkSession, admin: Any, which: str) -> dict[str, int]:  # noqa: ANN401 - of the JVM
        """The first offset of each partition (`earliest`), or that behind the last record (`latest`)."""
        found = java_class(spark, "java.util.HashMap")()
        spec = getattr(java_class(spark, "org.apache.kafka.clients.admin.OffsetSpec"), which)()
        for number in range(self._count_of(spark, admin)):
            found.put(java_class(spark, "org.apache.kafka.common.TopicPartition")(self._from.topic, number), spec)
        committed = java_class(spark, "org.apache.kafka.common.IsolationLevel").READ_COMMITTED
        how = java_class(spark, "org.apache.kafka.clients.admin.ListOffsetsOptions")(committed)
        offsets = admin.listOffsets(found, how).all().get()
        return {str(each.partition()): offsets[each].offset() for each in offsets}

    def stream(self, spark: SparkSession, after: Place | None) -> DataFrame:
        """See `SourceConnector`. A partition that was not there when the place was noted begins with its first row.

        Raises:
            SourcePlaceGone: another topic was read under this name, or records were deleted that were not read.
            NoSourceConnector: Spark has no connector.
        """
        with self._admin(spark) as admin:
            first = self._offsets(spark, admin, "earliest")
        start = EARLIEST
        if after is not None:
            known = after.get(self._from.topic)
            if known is None:
                problem = f"it has read {', '.join(after)} under this name"
                raise SourcePlaceGone(self._source.name, problem)
            self._check(known, first)
            start = json.dumps({self._from.topic: {each: known.get(each, _EARLIEST) for each in first}})
        options = {f"kafka.{name}": value for name, value in self._settings.items()} | _PATIENCE
        options |= {"subscribe": self._from.topic, "startingOffsets": start, "includeHeaders": "true"}
        options |= {"kafka.isolation.level": "read_committed", "maxRecordsPerPartition": str(_TASK_ROWS)}
        options |= {"maxOffsetsPerTrigger": str(self._source.max_rows), "failOnDataLoss": "true"}
        try:
            return spark.readStream.format("kafka").options(**options).load()
        except AnalysisException as error:
            raise NoSourceConnector(self._field, kafka_connector()) from error

    def _check(self, known: Mapping[str, int], first: Mapping[str, int]) -> None:
        """Whether each record behind a place is there.

        Raises:
            SourcePlaceGone: the cluster has deleted some; it says the `start` of another name that goes on there.
        """
        gone = [each for each, offset in first.items() if known.get(each, offset) < offset]
        if gone:
            there = json.dumps({self._from.topic: {each: at for each, at in known.items() if each not in gone}})
            problem = f"records of {self._from.topic} that it has not read were deleted (partitions {', '.join(gone)})"
            raise SourcePlaceGone(self._source.name, f"{problem}; what is left comes with start = '{there}'")

    def count(self, begin: Place, end: Place) -> int | None:
        """See `SourceConnector`. Records that say how a transaction ended are counted, too."""
        return _less(end, begin)

    def behind(self, progress: Mapping[str, Any]) -> int | str:
        """See `SourceConnector`."""
        latest, end = progress.get("latestOffset"), progress.get("endOffset")
        return _less(latest, end) if isinstance(latest, dict) and isinstance(end, dict) else NOTHING_YET

    def _partitions(self, spark: SparkSession) -> int:
        """How many partitions the topic has.

        Raises:
            BadSetting: there is no such topic.
            SourceAway: no broker answers.
            NoSourceConnector: Spark has no connector.
        """
        with self._admin(spark) as admin:
            return self._count_of(spark, admin)

    def _count_of(self, spark: SparkSession, admin: Any) -> int:  # noqa: ANN401 - of the JVM
        return int(self._described(spark, admin).partitions().size())

    def _described(self, spark: SparkSession, admin: Any) -> Any:  # noqa: ANN401 - of the JVM
        topics = java_class(spark, "java.util.List").of(self._from.topic)
        return admin.describeTopics(topics).allTopicNames().get().get(self._from.topic)

    @contextmanager
    def _admin(self, spark: SparkSession) -> Iterator[Any]:
        """Kafka's own client for questions; what it raises is ours."""
        admin = self._connect(spark)
        try:
            with self._understood():
                yield admin
        finally:
            _close(spark, admin)

    def _connect(self, spark: SparkSession) -> Any:  # noqa: ANN401 - of the JVM
        """Kafka's own client.

        Raises:
            SourceAway: no address of a broker can be resolved.
            NoSourceConnector: Spark has no connector.
        """
        settings = java_class(spark, "java.util.Properties")()
        for name, value in self._settings.items():
            settings.setProperty(name, value)
        settings.setProperty("default.api.timeout.ms", str(_WAIT_S * 1_000))
        settings.setProperty("request.timeout.ms", str(_WAIT_S * 1_000))
        try:
            return java_class(spark, "org.apache.kafka.clients.admin.AdminClient").create(settings)
        except Py4JJavaError as error:
            raise SourceAway(self._field, self._from.servers, _reason(error)) from error
        except Py4JError as error:
            raise NoSourceConnector(self._field, kafka_connector()) from error

    @contextmanager
    def _understood(self) -> Iterator[None]:
        try:
            yield
        except Py4JJavaError as error:
            if "UnknownTopicOrPartitionException" in _reason(error):
                raise BadSetting(self._field, self._from.topic, "a topic that the cluster has") from error
            raise SourceAway(self._field, self._from.servers, _reason(error)) from error


def _close(spark: SparkSession, admin: Any) -> None:  # noqa: ANN401 - of the JVM
    admin.close(java_class(spark, "java.time.Duration").ZERO)


def _less(later: Mapping[str, Any], earlier: Mapping[str, Any]) -> int:
    """How many offsets lie between two places."""
    return sum(
        max(0, int(offset) - int(earlier.get(topic, {}).get(partition, 0)))
        for topic, partitions in later.items()
        for partition, offset in partitions.items()
    )


def _reason(error: Py4JJavaError) -> str:
    """The innermost exception, without its stack."""
    thrown = error.java_exception
    while thrown.getCause() is not None:
        thrown = thrown.getCause()
    return str(thrown.toString())
