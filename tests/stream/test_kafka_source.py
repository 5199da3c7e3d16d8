"""A topic of Kafka as a source, with a real broker: each record is in `inbox` once, as it was."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from pipeline.config.errors import BadSetting, SourceAway, SourcePlaceGone
from pipeline.config.sources import Source
from pipeline.sinks.kafka import headers_of, key_of
from pipeline.sources.kafka import KafkaSource
from pipeline.storage.files import Files
from pipeline.storage.notes import Notes
from pipeline.subscriptions.records import REFUSED, REFUSED_MS
from pipeline.subscriptions.sourcenotes import SourceState, source_states
from tests.support.client import new_warehouse
from tests.support.pages import span_of
from tests.support.sources import following, inbox, take_all

if TYPE_CHECKING:
    from benchmarks.support.kafka import Broker


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A new warehouse."""
    new_warehouse(str(tmp_path))
    return str(tmp_path)


@pytest.fixture
def topic(kafka: Broker, request: pytest.FixtureRequest) -> str:
    """A new topic with two partitions."""
    name: str = re.sub("[^a-z_]", "-", request.node.name)[:200]
    kafka.create(name, 2)
    return name


def source(kafka: Broker, of: str, **columns: Any) -> Source:  # noqa: ANN401 - of a profile
    """What a profile says; a due time that every record has."""
    return Source("orders", f"kafka://{kafka.servers}/{of}", **({"deliver_at": "timestamp"} | columns))


def payloads(root: str) -> list[str]:
    """What was taken."""
    return [row["payload"].decode() for row in inbox(root)]


def names(begin: int, end: int) -> list[str]:
    """Payloads."""
    return [f"m{number:02}" for number in range(begin, end)]


HEADERS: Sequence[list[tuple[str, bytes | None]] | None] = (
    None,
    [("a", b"1"), ("b", None), ("c", b"")],
    [("twice", b"1"), ("z", b"2"), ("twice", b"3")],
    [("bytes", b"\xff\x00"), ("text", "ü".encode())],
    [("delayline.headers", b"mine"), ("delayline.key", b"mine")],
)


def test_key_headers_and_value_go_in_and_out_without_loss(
    spark: SparkSession, root: str, kafka: Broker, topic: str
) -> None:
    """Headers that a map of texts has no room for come out again as they went in, and so do keys that are no text."""
    keys = (None, b"", b"k", b"\xfe\xff")
    wanted = [(key, headers) for key in keys for headers in HEADERS]
    kafka.send(topic, *({"key": k, "headers": h, "value": f"{n:02}"} for n, (k, h) in enumerate(wanted)))
    kafka.send(topic, {"key": b"gone", "value": None})
    take_all(spark, root, source(kafka, topic))
    rows = inbox(root)
    gone = next(row for row in rows if row["payload"] is None)
    assert gone["message_key"] == "gone"
    found = [(key_of(row), headers_of(row) or None) for row in rows if row["payload"] is not None]
    assert found == wanted
    plain = rows[1]
    assert (plain["message_key"], plain["properties"]) == (None, [("a", "1"), ("b", None), ("c", "")])
    assert all(row["topic"] == topic and row["deliver_after_ms"] is None for row in rows)
    assert abs(plain["publish_time"] - datetime.now(UTC)).total_seconds() < 600


def test_expressions_of_the_profile_make_the_columns(spark: SparkSession, root: str, kafka: Broker, topic: str) -> None:
    """From what is in the record; what they do not say is the record's own."""
    kafka.send(topic, {"key": "7", "value": '{"after": 5000, "kind": "a"}'})
    columns = {
        "topic": "concat(topic, '-partition-', partition)",
        "deliver_at": None,
        "deliver_after_ms": "CAST(get_json_object(CAST(value AS STRING), '$.after') AS BIGINT)",
        "properties": "map_concat(coalesce(properties, map()), map('offset', CAST(offset AS STRING)))",
        "payload": "get_json_object(CAST(value AS STRING), '$.kind')",
    }
    take_all(spark, root, source(kafka, topic, **columns))
    (row,) = inbox(root)
    assert row["topic"].startswith(f"{topic}-partition-")
    assert (row["deliver_after_ms"], row["payload"], row["properties"]) == (5_000, b"a", [("offset", "0")])


def test_a_row_without_the_due_time_that_the_profile_states_is_refused(
    spark: SparkSession, root: str, kafka: Broker, topic: str
) -> None:
    """It would be delivered at once; its neighbours are taken, and the row says why and where it is."""
    kafka.send(topic, {"key": "k", "value": "soon"}, {"key": "k", "value": "1700000000000"})
    columns = {"deliver_at": "timestamp_millis(CAST(CAST(value AS STRING) AS BIGINT))"}
    take_all(spark, root, source(kafka, topic, **columns))
    good, bad = inbox(root)
    assert (good["deliver_after_ms"], good["deliver_at"]) == (None, datetime.fromtimestamp(1_700_000_000, UTC))
    assert bad["deliver_after_ms"] == REFUSED_MS
    where = re.fullmatch(f"source orders: no due time, {topic}-(\\d+) at (\\d+)", dict(bad["properties"])[REFUSED])
    assert where is not None
    (record,) = (
        each for each in kafka.read(topic, 2) if (each.partition(), each.offset()) == tuple(map(int, where.groups()))
    )
    assert record.value() == b"soon"
    written = span_of("kafka.md", "coalesce(").replace("...", columns["deliver_at"])
    kafka.send(topic, {"key": "k", "value": "at once"})
    take_all(spark, root, source(kafka, topic, deliver_at=written))
    (came,) = (each for each in inbox(root) if each["payload"] == b"at once")
    assert (came["deliver_after_ms"], came["deliver_at"]) == (None, came["publish_time"])


@pytest.mark.parametrize("step", ["files", "inbox"])
def test_a_batch_that_dies_around_its_commit_is_taken_once(
    spark: SparkSession, root: str, kafka: Broker, topic: str, step: str
) -> None:
    """Before the commit it was not taken, behind it it was: the next start goes on from there, with no checkpoint."""
    kafka.send(topic, *({"value": name} for name in names(0, 10)))

    def die(seen: str, _batch: int) -> None:
        if seen == f"source-orders.{step}":
            raise RuntimeError(seen)

    with pytest.raises(StreamingQueryException, match="source-orders"):
        take_all(spark, root, source(kafka, topic), die)
    assert len(payloads(root)) == (10 if step == "inbox" else 0)
    kafka.send(topic, *({"value": name} for name in names(10, 15)))
    take_all(spark, root, source(kafka, topic))
    assert payloads(root) == names(0, 15)


def test_each_start_goes_on_behind_the_last_commit(spark: SparkSession, root: str, kafka: Broker, topic: str) -> None:
    """Small batches and large ones, and partitions that were added meanwhile."""
    with following(spark, root, source(kafka, topic)) as loop:
        for begin in range(0, 30, 10):
            kafka.send(topic, *({"value": name} for name in names(begin, begin + 10)))
            assert loop.query is not None
            loop.query.processAllAvailable()
    assert payloads(root) == names(0, 30)
    kafka.divide(topic, 4)
    kafka.send(topic, *({"value": name, "partition": 3} for name in names(30, 40)))
    take_all(spark, root, source(kafka, topic, start="latest"))
    assert payloads(root) == names(0, 40)


def test_a_source_that_begins_with_what_is_new_begins_there_once(
    spark: SparkSession, root: str, kafka: Broker, topic: str
) -> None:
    """Records that come before the second start are taken, although the first one died before its first batch."""
    kafka.send(topic, *({"value": name} for name in names(0, 10)))
    with following(spark, root, source(kafka, topic, start="latest")):
        pass
    kafka.send(topic, *({"value": name} for name in names(10, 15)))
    take_all(spark, root, source(kafka, topic, start="latest"))
    assert payloads(root) == names(10, 15)


def test_a_topic_that_was_made_again_is_another_one(spark: SparkSession, root: str, kafka: Broker) -> None:
    """It is longer than the first one was, so its first records would be left out without a word."""
    kafka.create("again")
    kafka.send("again", *({"value": name} for name in names(0, 2)))
    take_all(spark, root, source(kafka, "again"))
    kafka.delete("again")
    kafka.create("again")
    kafka.send("again", *({"value": name} for name in names(2, 7)))
    with pytest.raises(SourcePlaceGone, match="made again"):
        take_all(spark, root, source(kafka, "again"))
    assert payloads(root) == names(0, 2)
    take_all(spark, root, replace(source(kafka, "again"), name="other"))
    assert payloads(root) == names(0, 7)


def test_a_topic_of_which_records_were_deleted_unread_stands_still_until_it_has_another_name(
    spark: SparkSession, root: str, kafka: Broker, topic: str
) -> None:
    """Retention was shorter than the time for which nothing ran. What is left comes, and what was taken does not."""
    for partition in range(2):
        kafka.send(
            topic, *({"value": name, "partition": partition} for name in names(10 * partition, 10 * partition + 3))
        )
    take_all(spark, root, source(kafka, topic))
    for partition in range(2):
        kafka.send(
            topic, *({"value": name, "partition": partition} for name in names(10 * partition + 3, 10 * partition + 7))
        )
    kafka.forget(topic, 0, 5)
    with pytest.raises(SourcePlaceGone, match="partitions 0") as refused:
        take_all(spark, root, source(kafka, topic))
    _, _, place = str(refused.value).partition("start = '")
    take_all(spark, root, replace(source(kafka, topic, start=place.partition("'")[0]), name="other"))
    assert payloads(root) == [*names(0, 3), *names(5, 7), *names(10, 17)]


def test_a_topic_that_is_made_again_while_it_is_read_is_seen(
    spark: SparkSession, root: str, kafka: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its records may be read before anybody looks; they are not taken for those of the first one."""
    kafka.send(topic, {"value": "m00"})
    with following(spark, root, source(kafka, topic)) as loop:
        assert loop.query is not None
        loop.query.processAllAvailable()
        monkeypatch.setattr(KafkaSource, "identity", lambda *_: "another")
        kafka.send(topic, {"value": "m01"})
        with pytest.raises(StreamingQueryException, match="SourcePlaceGone"):
            loop.query.processAllAvailable()
    assert payloads(root) == ["m00"]


def test_what_cannot_be_is_refused_at_the_start(spark: SparkSession, root: str, kafka: Broker, topic: str) -> None:
    """The error names the field of the profile."""
    for columns in ({"deliver_at": "nowhere"}, {"topic": "1 +"}, {"deliver_at": "offset"}, {"properties": "key"}):
        with pytest.raises(BadSetting) as refused:
            take_all(spark, root, source(kafka, topic, **columns))
        assert refused.value.field == f"source.orders.{next(iter(columns))}"
    with pytest.raises(BadSetting) as missing:
        take_all(spark, root, source(kafka, "nothing-of-this-name"))
    assert missing.value.field == "source.orders.from"


def test_a_broker_that_is_not_there_refuses_the_start_until_the_address_is_right(
    spark: SparkSession, root: str, kafka: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No message tells a secret."""
    monkeypatch.setattr("pipeline.sources.kafka._WAIT_S", 1)
    monkeypatch.setenv("DELAYLINE_KAFKA_SASL_USERNAME", "u")
    monkeypatch.setenv("DELAYLINE_KAFKA_SASL_PASSWORD", "unspeakable")
    with pytest.raises(SourceAway) as away:
        take_all(spark, root, Source("orders", "kafka://127.0.0.1:9/t"))
    assert "unspeakable" not in str(away.value)
    monkeypatch.undo()
    kafka.send(topic, {"value": "a"})
    take_all(spark, root, source(kafka, topic))
    assert payloads(root) == ["a"]


@pytest.mark.soak
def test_a_source_goes_on_by_itself_when_its_broker_is_back(
    spark: SparkSession, root: str, kafka: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Meanwhile it says why it stands still."""
    monkeypatch.setattr("pipeline.sources.loop._LONGEST_PAUSE_S", 1.0)
    monkeypatch.setattr("pipeline.sources.loop._NOTE_MS", 0)
    states = source_states(Files(), root)
    kafka.send(topic, *({"value": name} for name in names(0, 10)))
    with following(spark, root, source(kafka, topic)) as loop:
        loop.watch()
        until(lambda: len(payloads(root)) == 10)
        kafka.kill()
        until(lambda: error_of(states) is not None)
        kafka.start()
        kafka.send(topic, *({"value": name} for name in names(10, 20)))
        until(lambda: len(payloads(root)) == 20)
        until(lambda: error_of(states) is None)
    assert payloads(root) == names(0, 20)
    state = states.get("orders")
    assert state is not None
    assert state.taken == 20


def test_no_plan_shows_a_secret(
    spark: SparkSession, root: str, kafka: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark prints plans into its log and its pages, with the options of what they read."""
    monkeypatch.setenv("DELAYLINE_KAFKA_SASL_USERNAME", "somebody")
    monkeypatch.setenv("DELAYLINE_KAFKA_SASL_PASSWORD", "unspeakable")
    kafka.send(topic, {"value": "m"})
    with following(spark, root, source(kafka, topic)) as loop:
        query: Any = loop.query
        query.processAllAvailable()
        plan = query._jsq.explainInternal(True)  # noqa: FBT003 - Spark has no name for it
    assert "kafka" in plan.lower()
    assert "unspeakable" not in plan


def error_of(states: Notes[SourceState]) -> str | None:
    """Why the source stands still."""
    state = states.get("orders")
    return None if state is None else state.error


def until(holds: Callable[[], bool]) -> None:
    """Wait for something that threads and another process do."""
    waited = Event()
    for _ in range(1_200):
        if holds():
            return
        waited.wait(0.1)
    pytest.fail("it did not come about within two minutes")
