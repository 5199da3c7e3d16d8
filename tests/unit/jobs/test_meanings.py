"""Words mean one thing, and a thing has one word: held by what commands, tables and calls show of one warehouse."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

pytest.importorskip("typer", reason="the command needs requirements/all.lock")
pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the stages need requirements/all.lock")

from pipeline.client.choices import ConsumerDeadLetterPolicy, ConsumerType
from pipeline.client.insight.pendingrows import pending_rows
from pipeline.client.tables.deliveries import Deliveries
from pipeline.delta.deltars import open_table
from pipeline.storage.arrays import python_rows
from pipeline.testing.public import VirtualWarehouse, warehouse
from schemas import COMMANDS, DELIVERIES, MESSAGES
from tests.support.invoked import output
from tests.support.meanings import Fact, alike, facts, rows, two_meanings, two_words

START = datetime(2026, 5, 2, 10, 0, 0, tzinfo=UTC)
LOOKS = (
    *("receive --no-follow", "list --payload", "pending", "pending --group-by key", "topics", "subscriptions"),
    *("consumers", "status", "commands", "doctor", "forecast", "sinks", "sources", "config show"),
    *("dead-letters list --topic orders --subscription billing --all", "trace --topic orders --key given-up"),
    *("trace --topic orders --key paid", "trace --topic orders --key late", "trace --topic orders --key audit"),
    "cancel --topic orders --where true --dry-run",
)
"""Commands that show something of the warehouse."""
_AT_ONCE = ("at", "due_time", "released_at", "visible_at")
CHANCE = {(one, other) for one in _AT_ONCE for other in _AT_ONCE} | {
    ("batch_id", "version"),
    ("delivered", "due_count"),
    ("entry_id", "sequence_id"),
    ("first_due", "next_due"),
    *(("delivered", "pending"), ("due_count", "pending")),
}
"""Words that show the same in this warehouse, and need not. A clock that a test turns stands still until what is due is
released and visible, ingest takes all messages at once, and what waits becomes due within the day and is delivered."""


@pytest.fixture(scope="module")
def lived() -> Iterator[VirtualWarehouse]:
    """A warehouse in which something of each kind has happened: due times are no instants of the ticks."""
    with warehouse(START) as world:
        client, root = world.client(), world.root
        output(root, "subscribe", "--topic", "orders", "--subscription", "audit", "--tick", "1m")
        consumer = client.subscribe(
            "orders",
            "billing",
            ConsumerType.Shared,
            negative_ack_redelivery_delay_ms=7_100,
            dead_letter_policy=ConsumerDeadLetterPolicy(1),
            tick_ms=1_000,
        )
        producer = client.create_producer("orders")
        for number, key in enumerate(("paid", "late", "given-up", "audit", "waits", "waits-too", "cancelled")):
            due = START + timedelta(seconds=61.3 + 17.7 * number + 86_400 * (0, 0, 0, 0, 1, 3, 1)[number])
            producer.send(key.encode() * (number + 1), partition_key=key, properties={"n": key}, deliver_at=due)
        world.advance(minutes=4)
        for _ in range(5):
            message = consumer.receive(5_000)
            if message.partition_key() == "given-up":
                consumer.negative_acknowledge(message)
            elif message.partition_key() == "paid":
                consumer.acknowledge(message)
            world.advance(seconds=31)
        client.cancel("orders", "billing", key="cancelled", by="ann", reason="a mistake")
        yield world


@pytest.fixture(scope="module")
def shown(lived: VirtualWarehouse) -> list[Fact]:
    """All that commands, tables and calls show of it."""
    found = list[Fact]()
    for look in LOOKS:
        for line in output(lived.root, *look.split(), "--json").splitlines():
            found += facts(look, json.loads(line))
    for contract in (MESSAGES, DELIVERIES, COMMANDS):
        found += rows(contract.name, open_table(lived.root, contract).to_pyarrow_table().to_pylist())
    found += rows("pending_rows", python_rows(pending_rows(lived.root, payload=True)))
    found += rows("Deliveries", (vars(each) for each in Deliveries(lived.root).take()))
    return found


def test_a_word_shows_one_thing_wherever_it_stands(shown: list[Fact]) -> None:
    """`late_ms` counted from two times."""
    assert {fact.word for fact in shown} > {"late_ms", "due_time", "pending", "key", "message_key"}
    assert two_meanings(shown) == {}


def test_a_thing_has_one_word_or_the_page_says_why_not(shown: list[Fact]) -> None:
    """A key had three names."""
    found = two_words(shown)
    assert found - alike() - CHANCE == set()
    assert {("key", "message_key")} <= found
