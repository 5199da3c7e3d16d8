"""An import from Pulsar that meets no broker, or one in memory."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")
pytest.importorskip("pulsar", reason="the client of Pulsar is not installed (the extra `pulsar`)")

from jobs.commands.importing import report
from pipeline.brokers.pulsar import Position, ms_of, package
from pipeline.client.subscribing.topics import create_partitioned_topic
from pipeline.config.errors import BrokerRefused
from pipeline.config.wallclock import wall_ms
from pipeline.delta.deltars import open_table
from pipeline.moving import pulsar as moving
from pipeline.moving.places import Wanted
from pipeline.storage.files import Files
from pipeline.subscriptions.limits import Limits
from pipeline.subscriptions.topicnames import routed
from schemas import INBOX
from tests.support.client import new_warehouse
from tests.support.importing import WANTED, Cluster, Message

SERVICE = "pulsar://127.0.0.1:1"
HOUR_MS = 3_600_000
TOPIC = "public/default/t"


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A new warehouse."""
    new_warehouse(str(tmp_path))
    return str(tmp_path)


def inbox(root: str) -> dict[bytes, str]:
    """The topics of what was taken, by the payloads."""
    rows = open_table(root, INBOX).to_pyarrow_table().to_pylist()
    found = {row["payload"]: row["topic"] for row in rows}
    assert len(found) == len(rows), "none comes twice"
    return found


def test_what_the_client_raises_is_an_error_of_the_broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client says only that it is a timeout, and not of what; the connection ends."""
    closed = list[bool]()

    def partitions(_name: str) -> list[str]:
        raise package().Timeout("TimeOut")

    client = SimpleNamespace(get_topic_partitions=partitions, close=lambda: closed.append(True))
    monkeypatch.setattr(moving, "connected", lambda _: client)
    wanted = Wanted(SERVICE, "http://127.0.0.1:2", "public/default/t", "s", "t", 60_000)
    with pytest.raises(BrokerRefused, match=f"{SERVICE} does not answer"):
        list(moving.take(str(tmp_path), wanted))
    assert closed == [True]


def test_what_is_for_a_divided_topic_goes_to_its_partitions(root: str) -> None:
    """As producers send it, or in turns; it went to the topic itself, where nobody hears it, and Pulsar forgot it."""
    due = wall_ms() + HOUR_MS
    keyed = [Message((1, entry), due, b"%d" % entry, f"key {entry}") for entry in range(20)]
    others = [Message((2, entry), due, b"other %d" % entry) for entry in range(40)]
    create_partitioned_topic(root, "orders", 4)
    Cluster({TOPIC: [*keyed, *others]}).taken(root)
    found = inbox(root)
    assert [found[each.data] for each in keyed] == [routed("orders", each.key, 0, 4) for each in keyed]
    assert Counter(found[each.data] for each in others) == {f"orders-partition-{number}": 10 for number in range(4)}


@pytest.mark.parametrize("last", [(1, 0), (2, -1)], ids=["the last message", "a ledger that was begun"])
def test_a_partition_that_is_wholly_acknowledged_does_not_end_an_import(root: str, last: Position) -> None:
    """The reader waited there for a message for 30 s and gave up; partitions behind it were never reached."""
    due = wall_ms() + HOUR_MS
    first, second = (f"{TOPIC}-partition-{number}" for number in range(2))
    logs = {first: [Message((1, 0), due)], second: [Message((2, 0), due, b"a")]}
    cluster = Cluster(logs, before={first: (1, 0)}, last={first: last})
    assert [each.taken for each in cluster.taken(root)] == [1]
    assert inbox(root) == {b"a": "orders"}


def test_a_message_that_none_can_be_like_stays_with_pulsar_and_is_named(root: str) -> None:
    """One that is due in the year 10000 stood in the way of all behind it. A later run leaves it where it is."""
    due, never, large = wall_ms() + HOUR_MS, ms_of("+10000-01-01T00:00:00Z"), {"a": "x" * (1 << 22)}
    log = [
        Message((1, 0), due, b"a"),
        Message((1, 1), never, b"far"),
        Message((1, 2), due, b"large", properties=large),
        Message((1, 3), due, b"b", published_ms=1 << 62),
        Message((1, 4), never, b"last"),
    ]
    cluster = Cluster({TOPIC: log})
    (done,) = cluster.taken(root, chunk=2)
    assert (done.examined, done.taken, done.left, done.unfit) == (5, 2, 0, 3)
    assert [each.partition(" ")[0] for each in done.problems] == ["1:1:", "1:2:", "1:4:"]
    assert any("1:1: deliver_at" in line for line in report([done], dry=False))
    assert inbox(root) == {b"a": "orders", b"b": "orders"}
    (done,) = cluster.taken(root, replace(WANTED, acknowledge=True))
    assert (done.taken, done.before, done.unfit, done.acknowledged) == (0, 4, 1, 2)
    assert cluster.acknowledged == {(TOPIC, (1, 0)), (TOPIC, (1, 3))}


def test_what_the_job_would_reject_stays_with_pulsar(root: str) -> None:
    """It would be acknowledged there, and listed here."""
    Limits(10, HOUR_MS).put(Files(), root)
    now = wall_ms()
    log = [
        Message((1, 0), now + HOUR_MS, b"x" * 11, published_ms=now),
        Message((1, 1), now + 2 * HOUR_MS, b"late", published_ms=now),
        Message((1, 2), now + HOUR_MS, b"a", published_ms=now),
    ]
    (done,) = Cluster({TOPIC: log}).taken(root)
    assert (done.taken, done.unfit, inbox(root)) == (1, 2, {b"a": "orders"})
