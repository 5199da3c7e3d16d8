"""The name of a topic with partitions means all of them, whatever is asked, commanded, set or ended."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

from pipeline.client import public as delayline
from pipeline.client.choices import InitialPosition
from pipeline.client.exceptions import SubscriptionNotFound
from pipeline.client.insight.pendingrows import pending_rows
from pipeline.client.subscribing.policysetting import policies_of, policy_history
from pipeline.client.subscribing.subscriptions import subscriptions
from pipeline.subscriptions.policies import Policies
from pipeline.testing.warehouse import VirtualWarehouse, warehouse
from tests.support.invoked import invoke

HOUR = timedelta(hours=1)
PARTS = [f"orders-partition-{number}" for number in range(3)]


WHENEVER = pytest.mark.parametrize("divided", ["before", "after"], indirect=True)
"""The subscription was there before the topic was divided, or came after that."""


@pytest.fixture
def divided(request: pytest.FixtureRequest) -> Iterator[VirtualWarehouse]:
    """A topic with three partitions, and its subscription."""
    when = getattr(request, "param", "before")
    with warehouse() as made:
        if when == "after":
            delayline.create_partitioned_topic(made.root, "orders", 3)
        delayline.subscribe(
            made.root, delayline.Subscription("orders", "billing", "shared", tick_ms=1, policies=Policies(ack=True))
        )
        if when == "before":
            delayline.create_partitioned_topic(made.root, "orders", 3)
        # It is another one, whatever its name looks like.
        delayline.subscribe(made.root, delayline.Subscription("other-orders-partition-1", "billing", "shared"))
        made.run_until_idle()
        yield made


def send(made: VirtualWarehouse, *keys: str) -> None:
    """Messages that are due in an hour, a key after the other."""
    with made.client() as client:
        producer = client.create_producer("orders")
        for key in keys:
            producer.send(key.encode(), partition_key=key, deliver_after=HOUR)
    made.run_until_idle()


def waiting(made: VirtualWarehouse) -> list[str]:
    """The keys of what waits."""
    return sorted(pending_rows(made.root, "orders", "billing")["message_key"].to_pylist())


@WHENEVER
def test_a_command_names_what_the_list_shows(divided: VirtualWarehouse) -> None:
    """By key, by condition and by positions; and it is taken back as one."""
    send(divided, *"abcdef")
    client = divided.client()
    assert len(set(pending_rows(divided.root, "orders")["topic"].to_pylist())) > 1
    one, all_ = client.cancel("orders", key="b"), client.cancel("orders", where="message_key > 'c'")
    assert (one.selection.count, all_.selection.count, waiting(divided)) == (1, 3, ["a", "c"])
    rows = pending_rows(divided.root, "orders", "billing").select(["ledger_id", "entry_id"])
    assert client.shift("orders", span=HOUR, positions=rows).selection.count == 2
    assert all_.command_id is not None
    assert client.undo(all_.command_id).selection.count == 3
    outcome = next(each for each in client.commands() if each.command_id == one.command_id)
    assert (outcome.count, outcome.undone) == (1, 0)
    divided.run_until_idle()
    divided.advance(hours=1)
    consumer = client.subscribe("orders", "billing", delayline.ConsumerType.Shared)
    assert sorted(consumer.receive(5_000).partition_key() for _ in range(3)) == ["d", "e", "f"]


def test_a_partition_by_its_name_is_this_one_alone(divided: VirtualWarehouse) -> None:
    """What waits on the others stays."""
    send(divided, *"abcdef")
    client = divided.client()
    counts = [client.cancel(each, where="true", dry_run=True).selection.count for each in PARTS]
    assert sum(counts) == 6
    assert client.cancel(PARTS[1], where="true").selection.count == counts[1]
    assert len(waiting(divided)) == 6 - counts[1]


@WHENEVER
def test_policies_are_those_of_each_partition(divided: VirtualWarehouse) -> None:
    """Paused, nothing comes; gone on, all does. What they were is told."""
    send(divided, *"abcdef")
    client = divided.client()
    consumer = client.subscribe("orders", "billing", delayline.ConsumerType.Shared)
    assert client.pause("orders", "billing")
    assert not client.pause("orders", "billing")
    divided.advance(hours=2)
    with pytest.raises(delayline.Timeout):
        consumer.receive(1)
    found = policies_of(divided.root, "orders", "billing")
    assert isinstance(found, Policies)
    assert found.paused
    assert policy_history(divided.root, "orders", "billing")[-1].policies["paused"] == "true"
    assert client.resume("orders", "billing")
    divided.run_until_idle()
    assert sorted(consumer.receive(5_000).partition_key() for _ in range(6)) == list("abcdef")


@WHENEVER
def test_a_subscription_ends_on_all_of_them(divided: VirtualWarehouse) -> None:
    """And nobody else's does."""
    delayline.unsubscribe(divided.root, "orders", "billing")
    assert [each.topic for each in subscriptions(divided.root)] == ["other-orders-partition-1"]
    with pytest.raises(SubscriptionNotFound):
        delayline.unsubscribe(divided.root, "orders", "billing")


@WHENEVER
def test_a_consumer_ends_it_on_all_of_them(divided: VirtualWarehouse) -> None:
    """Once each."""
    client = divided.client()
    client.subscribe("orders", "billing", delayline.ConsumerType.Shared).unsubscribe()
    assert subscriptions(divided.root, "orders") == []


def test_a_seek_is_one_on_each_of_them(divided: VirtualWarehouse) -> None:
    """What waits is dropped; from the beginning it comes again."""
    send(divided, *"abcdef")
    where = ["--warehouse", divided.root, "--topic", "orders", "--subscription", "billing"]
    assert invoke(["clear", *where]).exit_code == 0
    divided.run_until_idle()
    assert waiting(divided) == []
    assert invoke(["seek", *where, "--earliest"]).exit_code == 0
    divided.run_until_idle()
    assert waiting(divided) == list("abcdef")


def test_deliveries_of_all_of_them_are_seen(divided: VirtualWarehouse) -> None:
    """And of none of another topic."""
    send(divided, *"abcdef")
    with divided.client() as client:
        client.create_producer("other-orders-partition-1").send(b"x")
    divided.advance(hours=1)
    for topic, wanted in (("orders", list("abcdef")), ("persistent://public/default/orders", list("abcdef"))):
        assert sorted(each.key or "" for each in delayline.Deliveries(divided.root).take(topic)) == wanted
    assert len(list(delayline.Deliveries(divided.root).take(None))) == 7


def test_a_key_is_traced_on_all_of_them(divided: VirtualWarehouse) -> None:
    """The newest ones, the oldest of them first, also of what ingest has not taken."""
    send(divided, *"abcabc")
    client = divided.client()
    assert len(client.trace("orders", key="a")) == 2
    assert len(client.trace("orders", key="a", limit=1)) == 1
    each = client.trace("orders", key="b")
    assert {found.topic for found in each} <= set(PARTS)
    assert [state.state for found in each for state in found.states if state.subscription == "billing"] == ["waits"] * 2


def test_dead_letters_of_all_of_them_are_listed_and_put_back(divided: VirtualWarehouse) -> None:
    """As of one topic."""
    client = divided.client()
    delayline.set_policies(
        divided.root, "orders", "billing", Policies(ack=True, max_redeliveries=0, dead_letter_topic="given-up")
    )
    delayline.subscribe(
        divided.root, delayline.Subscription("given-up", "people", "shared", InitialPosition.Earliest.value)
    )
    divided.run_until_idle()
    send(divided, *"abcdef")
    consumer = client.subscribe("orders", "billing", delayline.ConsumerType.Shared)
    divided.advance(hours=1)
    for _ in range(6):
        consumer.negative_acknowledge(consumer.receive(5_000))
    divided.advance(minutes=2)
    where = ["--warehouse", divided.root, "--topic", "orders", "--subscription", "billing"]
    listed = invoke(["dead-letters", "list", *where])
    assert len(listed.stdout.splitlines()) == 6
    assert "4 put back" in invoke(["dead-letters", "put-back", *where, "--limit", "4"]).output
    assert "2 put back" in invoke(["dead-letters", "put-back", *where]).output
    divided.run_until_idle()
    assert sorted(consumer.receive(5_000).partition_key() for _ in range(6)) == list("abcdef")
