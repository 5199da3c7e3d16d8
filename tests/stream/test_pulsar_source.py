"""A topic of Pulsar as a source, with a real broker: each message is in `inbox` once, as it was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from pipeline.config.errors import BadSetting, SourceAway
from pipeline.config.sources import Source
from pipeline.sinks.pulsar import record
from pipeline.sources.pulsar import PulsarSource
from pipeline.sources.pulsarstream import PulsarReader
from pipeline.storage.files import Files
from pipeline.subscriptions.records import EVENT_TIME, ORDERING_KEY
from pipeline.subscriptions.sinkplaces import TurnPlace
from pipeline.subscriptions.sourcenotes import source_states
from tests.support.brokers import pulsar_client
from tests.support.client import new_warehouse
from tests.support.sources import following, inbox, take_all

if TYPE_CHECKING:
    from benchmarks.support.pulsar import Broker


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A new warehouse."""
    new_warehouse(str(tmp_path))
    return str(tmp_path)


@pytest.fixture
def topic(pulsar: Broker, request: pytest.FixtureRequest) -> str:
    """A new topic with two partitions."""
    return pulsar.create(request.node.name.replace("[", "-").replace("]", ""), 2)


def source(pulsar: Broker, topic: str, **columns: Any) -> Source:  # noqa: ANN401 - of a profile
    """What a profile says; a due time that every message has."""
    return Source("orders", f"{pulsar.service}/{topic}", **({"deliver_at": "publish_time"} | columns))


def send(pulsar: Broker, topic: str, names: Sequence[str], *, batches: bool = False, **options: Any) -> None:  # noqa: ANN401 - the client's
    """Send messages; their payloads are their names."""
    settings = {"batching_enabled": batches, "batching_max_publish_delay_ms": 1_000}
    with pulsar.connected() as found:
        producer = found.create_producer(f"persistent://{topic}", **settings)
        for name in names:
            producer.send_async(name.encode(), lambda *_: None, **options)
        producer.flush()


def payloads(root: str) -> list[str]:
    """What was taken."""
    return [row["payload"].decode() for row in inbox(root)]


def names(begin: int, end: int) -> list[str]:
    """Payloads."""
    return [f"m{number:02}" for number in range(begin, end)]


def test_a_message_goes_in_and_out_without_loss(spark: SparkSession, root: str, pulsar: Broker, topic: str) -> None:
    """Ordering key and time of the event are among the properties meanwhile."""
    full: dict[str, Any] = {
        "partition_key": "k",
        "ordering_key": "o",
        "event_timestamp": 7,
        "properties": {"a": "1", "é": "", "b": "x"},
    }
    send(pulsar, topic, ["bare"])
    send(pulsar, topic, ["full"], **full)
    take_all(spark, root, source(pulsar, topic))
    bare, found = inbox(root)
    assert (bare["topic"], bare["message_key"], bare["properties"]) == (topic.rpartition("/")[2], None, [])
    assert dict(found["properties"]) == {**full["properties"], ORDERING_KEY: "o", EVENT_TIME: "7"}
    assert found["deliver_at"] == found["publish_time"]
    assert abs((datetime.now(UTC) - found["publish_time"]).total_seconds()) < 600
    again = record(TurnPlace(1_800_000_000_000, 1), found)
    assert {name: again[name] for name in full} == full


def test_each_message_of_a_batch_is_taken_once(spark: SparkSession, root: str, pulsar: Broker) -> None:
    """They share ledger and entry, and a batch of Spark may end within one; the place says the index."""
    topic = pulsar.create("in-batches")
    send(pulsar, topic, names(0, 20), batches=True)
    assert len({(m.message_id().ledger_id(), m.message_id().entry_id()) for m in pulsar.read(topic)}) < 20
    for _ in range(2):
        with following(spark, root, source(pulsar, topic, max_rows=3)) as loop:
            assert loop.query is not None
            loop.query.processAllAvailable()
    assert payloads(root) == names(0, 20)
    wanted = "concat(ledger, ':', entry, ':', batch_index)"
    take_all(spark, root, Source("again", f"{pulsar.service}/{topic}", deliver_at="publish_time", message_key=wanted))
    keys = [row["message_key"] for row in inbox(root) if row["message_key"]]
    assert len(set(keys)) == len(keys) == 20


@pytest.mark.parametrize("step", ["files", "inbox"])
def test_a_batch_that_dies_around_its_commit_is_taken_once(
    spark: SparkSession, root: str, pulsar: Broker, topic: str, step: str
) -> None:
    """Before the commit it was not taken, behind it it was: the next start goes on from there, with no checkpoint."""
    send(pulsar, topic, names(0, 10))

    def die(seen: str, _batch: int) -> None:
        if seen == f"source-orders.{step}":
            raise RuntimeError(seen)

    with pytest.raises(StreamingQueryException, match="source-orders"):
        take_all(spark, root, source(pulsar, topic), die)
    assert len(payloads(root)) == (10 if step == "inbox" else 0)
    send(pulsar, topic, names(10, 15))
    take_all(spark, root, source(pulsar, topic))
    assert payloads(root) == names(0, 15)


def test_two_warehouses_follow_one_topic_under_names_of_their_own(
    spark: SparkSession, root: str, pulsar: Broker, topic: str
) -> None:
    """Under one name the second one gets nothing while the process of the first one runs, which is not disturbed."""
    ours, options = source(pulsar, topic), {"service": pulsar.service, "topic": topic, "max_rows": "50"}
    first = PulsarReader(options | {"subscription": f"delayline-{ours.name}"})
    send(pulsar, topic, names(0, 10))
    rows, end = first.read(first.initialOffset())
    with pytest.raises(StreamingQueryException, match="ConsumerBusy"):
        take_all(spark, root, ours)
    take_all(spark, root, replace(ours, name="orders-of-second"))
    send(pulsar, topic, names(10, 15))
    later, _ = first.read(end)
    take_all(spark, root, replace(ours, name="orders-of-second"))
    assert payloads(root) == sorted(row[-1].decode() for row in (*rows, *later)) == names(0, 15)


@pytest.mark.soak
def test_each_start_goes_on_behind_the_last_commit(spark: SparkSession, root: str, pulsar: Broker, topic: str) -> None:
    """Several batches, a broker that was killed, and partitions that were added meanwhile."""
    with following(spark, root, source(pulsar, topic)) as loop:
        for begin in range(0, 30, 10):
            send(pulsar, topic, names(begin, begin + 10))
            assert loop.query is not None
            loop.query.processAllAvailable()
    assert payloads(root) == names(0, 30)
    pulsar.kill()
    pulsar.start()
    pulsar.admin("POST", f"persistent/{topic}/partitions", 4)
    send(pulsar, topic, names(30, 50))
    take_all(spark, root, source(pulsar, topic, start="latest"))
    assert payloads(root) == names(0, 50)


def test_the_topic_keeps_what_was_not_read_and_nothing_else(
    spark: SparkSession, root: str, pulsar: Broker, topic: str
) -> None:
    """Nobody else waits for it: without a subscription the broker would forget it."""
    with following(spark, root, source(pulsar, topic)) as loop:
        assert loop.query is not None
        for begin in range(0, 30, 10):
            send(pulsar, topic, names(begin, begin + 10))
            loop.query.processAllAvailable()
    send(pulsar, topic, names(30, 35))
    stats = pulsar.admin("GET", f"persistent/{topic}/partitioned-stats?perPartition=false")
    backlog = stats["subscriptions"]["delayline-orders"]["msgBacklog"]
    # Spark says of a batch that it is done with when it begins the next one.
    assert 5 <= backlog < 35
    take_all(spark, root, source(pulsar, topic))
    assert payloads(root) == names(0, 35)


def test_the_rest_interface_says_how_far_a_source_is_behind(
    spark: SparkSession, root: str, pulsar: Broker, topic: str
) -> None:
    """From the place in the notes on; without its address, or when it does not answer, the state says why not."""
    wanted = source(pulsar, topic, admin=pulsar.admin_url)
    send(pulsar, topic, names(0, 10))
    take_all(spark, root, wanted)
    found = source_states(Files(), root).get("orders")
    assert found is not None
    progress = {"endOffset": found.place}
    assert PulsarSource(wanted).behind(progress) == 0
    send(pulsar, topic, names(10, 17))
    assert PulsarSource(wanted).behind(progress) == 7
    assert "`admin`" in str(PulsarSource(source(pulsar, topic)).behind(progress))
    assert "no answer from 127.0.0.1:9" in str(
        PulsarSource(source(pulsar, topic, admin="http://127.0.0.1:9")).behind(progress)
    )


def test_a_batch_is_read_once_more_by_its_offsets(pulsar: Broker, topic: str) -> None:
    """What executors do when the planner has lost what it read."""
    options = {"service": pulsar.service, "topic": topic, "subscription": "r", "max_rows": "15"}
    send(pulsar, topic, names(0, 20))
    reader = PulsarReader(options)
    begin, seen = reader.initialOffset(), list[str]()
    for count in (15, 5):
        rows, end = reader.read(begin)
        found = sorted(row[-1].decode() for row in rows)
        again = PulsarReader(options).readBetweenOffsets(begin, end)
        assert sorted(row[-1].decode() for row in again) == found
        assert len(found) == count
        begin, seen = end, seen + found
    assert sorted(seen) == names(0, 20)


@pytest.mark.parametrize("batches", [False, True])
def test_a_source_that_begins_with_what_is_new_begins_there_once(
    spark: SparkSession, root: str, pulsar: Broker, topic: str, *, batches: bool
) -> None:
    """Messages that come before the second start are taken, although the first one died before its first batch.

    A partition in which nothing is new holds up nobody.
    """
    send(pulsar, f"{topic}-partition-0", names(0, 5), batches=batches)
    with following(spark, root, source(pulsar, topic, start="latest")):
        pass
    send(pulsar, f"{topic}-partition-1", names(5, 15), batches=batches)
    for _ in range(2):
        take_all(spark, root, source(pulsar, topic, start="latest"))
    assert payloads(root) == names(5, 15)


def test_what_cannot_be_is_refused_at_the_start(spark: SparkSession, root: str, pulsar: Broker) -> None:
    """The error names the field of the profile, and no secret."""
    for address in (f"{pulsar.service}/public/default/gone", f"{pulsar.service}/a", f"{pulsar.service}/a/b/c?x=1"):
        with pytest.raises(BadSetting) as refused:
            take_all(spark, root, Source("orders", address))
        assert refused.value.field == "source.orders.from"


def test_a_broker_that_is_not_there_refuses_the_start(
    spark: SparkSession, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No message tells a secret."""
    pulsar_client()
    monkeypatch.setattr("pipeline.brokers.pulsar._WAIT_S", 1)
    monkeypatch.setenv("DELAYLINE_PULSAR_TOKEN", "unspeakable")
    with pytest.raises(SourceAway) as away:
        take_all(spark, root, Source("orders", "pulsar://127.0.0.1:9/public/default/t"))
    assert "unspeakable" not in str(away.value)
