"""What waits, message by message."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from pipeline.client.client import Client
from pipeline.client.commanding.commands import cancel, reschedule
from pipeline.client.insight.pending import pending
from pipeline.client.insight.pendingrows import pending_rows
from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from pipeline.client.subscribing.topics import create_partitioned_topic
from pipeline.config.errors import BadValue
from schemas import DELIVERIES, MESSAGES
from tests.support.client import at, delivery_row, message_row, noticed, put

NOON = 3_999_960_000_000


def named(rows: pa.Table, *names: str) -> list[tuple[Any, ...]]:
    """Some columns, row by row."""
    return [tuple(row[name] for name in names) for row in rows.to_pylist()]


@pytest.fixture
def orders(root: str) -> str:
    """Six messages: the first was there before `s`, which got the second; `all` got none."""
    for name, start in (("all", "earliest"), ("s", "latest")):
        subscribe(root, Subscription("t", name, start=start))
    rows = [{**message_row(1 + (each > 0), each, NOON + 60_000 - each), "message_key": f"k{each}"} for each in range(6)]
    rows = [{**row, "payload": b"x" * number, "properties": [("n", str(number))]} for number, row in enumerate(rows)]
    put(root, MESSAGES, *rows)
    noticed(root, "all", 0)
    noticed(root, "s", 2)
    put(root, DELIVERIES, delivery_row(rows[1]))
    return root


def test_a_row_is_what_a_subscription_waits_for_by_due_time(orders: str) -> None:
    """With what was sent, and no row for what was there before, or has come."""
    rows = pending_rows(orders, "t", "s", payload=True)
    assert named(rows, "message_key", "due_time", "payload", "payload_bytes", "properties") == [
        (f"k{each}", at(NOON + 60_000 - each), b"x" * each, each, [("n", str(each))]) for each in (5, 4, 3, 2)
    ]
    assert set(named(rows, "topic", "subscription", "redelivery_count")) == {("t", "s", 0)}
    assert [each.count for each in pending(orders).backlogs] == [6, 4]
    assert pending_rows(orders).num_rows == 10
    assert "payload" not in pending_rows(orders).column_names


def test_what_is_withdrawn_is_no_row_and_what_is_moved_is_due_then(orders: str) -> None:
    """As for the commands that come after."""
    cancel(orders, "t", "s", key="k5")
    reschedule(orders, "t", "s", key="k2", to=at(NOON))
    rows = pending_rows(orders, subscription="s")
    assert named(rows, "message_key", "due_time") == [
        (f"k{each}", at(due)) for each, due in ((2, NOON), (4, NOON + 59_996), (3, NOON + 59_997))
    ]


@pytest.mark.parametrize("spelled_out", [1_000, 1])
def test_rows_are_asked_for_as_commands_ask(orders: str, monkeypatch: pytest.MonkeyPatch, spelled_out: int) -> None:
    """By key or by condition, and so many of those that are due first."""
    monkeypatch.setattr("pipeline.client.tables.relations._SPELLED_OUT", spelled_out)
    assert named(pending_rows(orders, key="k3"), "subscription") == [("all",), ("s",)]
    where = "subscription = 's' AND properties['n'] > '3'"
    assert named(pending_rows(orders, where=where), "message_key") == [("k5",), ("k4",)]
    whole = pending_rows(orders)
    assert all(pending_rows(orders, limit=limit).equals(whole.slice(0, limit)) for limit in range(1, 12))
    for wrong in ({"key": "k", "where": "true"}, {"where": "sum("}, {"limit": 0}, {"key": "\ud800"}):
        with pytest.raises(BadValue):
            pending_rows(orders, **wrong)
    assert pending_rows(orders, "other").schema == whole.schema


def test_a_topic_has_the_rows_of_its_partitions(root: str) -> None:
    """Somebody who divided a topic asks for it under its name."""
    create_partitioned_topic(root, "t", 2)
    for number in (0, 1):
        topic = f"t-partition-{number}"
        subscribe(root, Subscription(topic, "s", start="earliest"))
        put(root, MESSAGES, message_row(number, 0, NOON, topic=topic))
    assert named(pending_rows(root, "t"), "topic") == [("t-partition-0",), ("t-partition-1",)]
    assert [each.count for each in pending(root, "t").backlogs] == [1, 1]


def test_a_client_has_them(orders: str) -> None:
    """With its own arguments."""
    with Client(orders) as client:
        assert client.pending_rows("t", "s", key="k4").num_rows == 1
        assert client.pending_rows(limit=3).num_rows == 3
