"""A consumer alone: what it gets, and what becomes of what it says."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

from pipeline.client.exceptions import (
    AlreadyClosed,
    CumulativeAcknowledgementNotAllowedError,
    InvalidMessage,
    Timeout,
)
from pipeline.client.message import MessageId
from schemas import MESSAGES
from state import SubscriptionType
from tests.support.client import message_row, put
from tests.support.consumed import NOON, World, drained, names

EXCLUSIVE, FAILOVER, SHARED, KEY_SHARED = (
    SubscriptionType.EXCLUSIVE,
    SubscriptionType.FAILOVER,
    SubscriptionType.SHARED,
    SubscriptionType.KEY_SHARED,
)
TEN = [(1, entry) for entry in range(10)]


@pytest.mark.parametrize("kind", list(SubscriptionType))
def test_a_consumer_gets_what_was_there_and_what_comes_each_once(tmp_path: Path, kind: SubscriptionType) -> None:
    """A backlog from before it came, then each commit of dispatch."""
    world = World(str(tmp_path), kind)
    world.dispatch.deliver(*TEN[:6])
    consumer = world.joined()
    assert names(drained(consumer)) == TEN[:6]
    for position in TEN[6:]:
        world.dispatch.deliver(position)
        world.run(0.4)
    assert names(drained(consumer)) == TEN[6:]
    assert drained(consumer) == []


def test_a_message_has_what_its_row_has(tmp_path: Path) -> None:
    """Asked for by the names of the reference."""
    world = World(str(tmp_path), EXCLUSIVE)
    world.dispatch.deliver((7, 3), keys=["k"])
    message = world.joined().receive(0)
    assert (message.data(), message.value(), message.partition_key()) == (b"7.3", b"7.3", "k")
    assert (message.topic_name(), message.message_id(), message.redelivery_count()) == ("t", MessageId(-1, 7, 3), 0)
    assert (message.publish_timestamp(), message.event_timestamp(), message.properties()) == (NOON, 0, {})


def test_what_is_acknowledged_is_settled_and_the_rest_comes_to_the_next_one(tmp_path: Path) -> None:
    """Every second message is acknowledged; a new consumer gets exactly the other half."""
    world = World(str(tmp_path))
    world.dispatch.deliver(*TEN)
    consumer = world.joined()
    for message in drained(consumer)[::2]:
        consumer.acknowledge(message)
    consumer.close()
    assert names(drained(world.joined("b"))) == TEN[1::2]
    assert world.settle.open == 5


def test_a_consumer_that_starts_again_goes_on_with_what_is_not_settled(tmp_path: Path) -> None:
    """After `close`, under the same name, messages that came meanwhile included."""
    world = World(str(tmp_path), EXCLUSIVE)
    world.dispatch.deliver(*TEN[:4])
    consumer = world.joined()
    consumer.acknowledge(consumer.receive(0))
    consumer.close()
    world.dispatch.deliver(*TEN[4:])
    assert names(drained(world.joined())) == TEN[1:]


def test_an_acknowledgement_by_id_or_a_second_time_is_as_good(tmp_path: Path) -> None:
    """An id that was kept as bytes is enough; to say it again changes nothing."""
    world = World(str(tmp_path))
    world.dispatch.deliver(*TEN)
    consumer = world.joined()
    for message in drained(consumer):
        kept = MessageId.deserialize(message.message_id().serialize())
        consumer.acknowledge(kept)
        consumer.acknowledge(message)
    world.run(1)
    assert world.settle.open == 0
    assert world.settle.retries() == {}


def test_a_message_that_failed_comes_again_with_its_count(tmp_path: Path) -> None:
    """By the delay that was given, else by the subscription's backoff; what it was is not changed."""
    world = World(str(tmp_path))
    world.dispatch.deliver(*TEN[:2])
    consumer = world.joined()
    first, second = drained(consumer)
    consumer.negative_acknowledge(first, 5_000)
    consumer.negative_acknowledge(second.message_id())
    world.run(1)
    asked, by_policy = (each for _, each in world.settle.outcome.retries)
    assert by_policy.due - asked.due == 55_000
    world.again()
    world.run(1)
    assert [(m.message_id().position, m.redelivery_count()) for m in drained(consumer)] == [((1, 0), 1), ((1, 1), 1)]


@pytest.mark.parametrize("form", ["message", "table"])
def test_a_failure_that_is_said_late_is_not_of_the_delivery_that_came_since(tmp_path: Path, form: str) -> None:
    """It went to the dead letters while somebody worked on it."""
    world = World(str(tmp_path))
    world.dispatch.deliver((1, 0))
    consumer = world.joined(unacked_messages_timeout_ms=3_000)
    late = consumer.receive(0) if form == "message" else consumer.batch_receive_arrow(timeout_millis=0)
    world.run(6)
    world.again()
    world.run(1)
    again = consumer.receive(0)
    assert again.redelivery_count() == 1
    consumer.negative_acknowledge(late)
    world.run(1)
    assert world.settle.retries() == {}
    # An id names the message as it came last.
    consumer.negative_acknowledge(again if form == "message" else again.message_id())
    world.run(1)
    assert world.settle.retries() == {2: [(1, 0)]}


def test_reconsume_later_is_a_failure_with_a_delay(tmp_path: Path) -> None:
    """The message keeps its place in the log, and its count grows."""
    world = World(str(tmp_path))
    world.dispatch.deliver(TEN[0])
    consumer = world.joined()
    consumer.reconsume_later(consumer.receive(0), 1_000)
    world.run(1)
    assert world.settle.retries() == {1: [TEN[0]]}


def test_redelivery_of_all_that_was_not_acknowledged(tmp_path: Path) -> None:
    """What is acknowledged stays so, what was not handed out does not count as failed."""
    world = World(str(tmp_path))
    world.dispatch.deliver(*TEN)
    consumer = world.joined()
    consumer.acknowledge(consumer.receive(0))
    consumer.receive(0)
    world.run(1)
    consumer.receive(0)
    world.run(1)
    consumer.redeliver_unacknowledged_messages()
    world.run(1)
    assert world.settle.retries() == {1: TEN[1:3]}
    assert names(drained(consumer)) == TEN[3:]


@pytest.mark.parametrize("tick", [200, 1_000])
def test_the_acknowledgement_timeout_fires_within_a_tick_after_the_timeout(tmp_path: Path, tick: int) -> None:
    """It counts from when the application got the message: what waits in the queue does not time out."""
    world = World(str(tmp_path))
    world.dispatch.deliver(*TEN[:3])
    consumer = world.joined(unacked_messages_timeout_ms=3_000, unacked_messages_tick_ms=tick)
    began = world.clock.now()
    kept, done = consumer.receive(0), consumer.receive(0)
    consumer.acknowledge(done)
    while not world.settle.causes():
        world.run(0.2)
    assert 3_000 < world.clock.now() - began <= 3_000 + tick + 400
    assert world.settle.causes() == ["ack_timeout"]
    assert world.settle.retries() == {1: names([kept])}
    world.run(5)
    assert world.settle.causes() == []


@pytest.mark.parametrize("kind", [EXCLUSIVE, FAILOVER])
def test_cumulative_acknowledgement_takes_all_that_was_handed_out_up_to_a_message(
    tmp_path: Path, kind: SubscriptionType
) -> None:
    """In the order in which it was handed out, which with delays is not that of the log."""
    world = World(str(tmp_path), kind)
    world.dispatch.deliver((2, 0), (1, 5), (3, 1), (1, 0))
    consumer = world.joined()
    third = drained(consumer)[2]
    consumer.acknowledge_cumulative(third)
    consumer.acknowledge_cumulative(third)
    consumer.close()
    assert names(drained(world.joined("b"))) == [(1, 0)]


@pytest.mark.parametrize("comes", [False, True])
def test_what_failed_is_acknowledged_with_what_comes_behind_it_while_it_waits(tmp_path: Path, *, comes: bool) -> None:
    """As in the reference. What has come again since is in work: it came last behind the message."""
    world = World(str(tmp_path), EXCLUSIVE)
    world.dispatch.deliver(*TEN[:3])
    consumer = world.joined()
    first, _, third = drained(consumer)
    consumer.negative_acknowledge(first)
    world.run(1)
    if comes:
        world.again()
        world.run(1)
        assert names(drained(consumer)) == TEN[:1]
    consumer.acknowledge_cumulative(third)
    world.run(1)
    assert world.settle.open == comes
    if comes:
        consumer.negative_acknowledge(first.message_id())
        world.run(1)
        assert world.settle.retries() == {2: TEN[:1]}
    else:
        assert not world.settle.opened.outstanding.counts.waiting


def test_cumulative_acknowledgement_of_what_was_not_handed_out_is_refused(tmp_path: Path) -> None:
    """With delays nobody can say what is before a message that did not come yet."""
    world = World(str(tmp_path), EXCLUSIVE)
    world.dispatch.deliver(*TEN)
    consumer = world.joined()
    consumer.receive(0)
    with pytest.raises(InvalidMessage):
        consumer.acknowledge_cumulative(MessageId(-1, 1, 1))
    world.run(1)
    assert world.settle.open == 10


@pytest.mark.parametrize("kind", [SHARED, KEY_SHARED])
def test_cumulative_acknowledgement_is_refused_where_consumers_share(tmp_path: Path, kind: SubscriptionType) -> None:
    """The error names the type."""
    world = World(str(tmp_path), kind)
    world.dispatch.deliver(*TEN)
    consumer = world.joined()
    with pytest.raises(CumulativeAcknowledgementNotAllowedError) as error:
        consumer.acknowledge_cumulative(consumer.receive(0))
    assert error.value.type == kind


def test_a_consumer_that_holds_too_much_gets_nothing_new_until_half_of_it_is_back(tmp_path: Path) -> None:
    """Redeliveries still come."""
    world = World(str(tmp_path))
    world.dispatch.deliver(*TEN)
    consumer = world.joined(max_unacked=4)
    held = drained(consumer)
    assert names(held) == TEN[:4]
    consumer.negative_acknowledge(held.pop(), 0)
    world.run(1)
    assert drained(consumer) == []
    world.again()
    world.run(1)
    again = drained(consumer)
    assert [(m.message_id().position, m.redelivery_count()) for m in again] == [(TEN[3], 1)]
    consumer.acknowledge(held[0])
    assert drained(consumer) == []
    consumer.acknowledge(held[1])
    assert names(drained(consumer)) == TEN[4:6]


def test_a_retry_that_was_acknowledged_while_it_waited_is_not_handed_out(tmp_path: Path) -> None:
    """It timed out, then the application was done after all; its row was on the way already."""
    world = World(str(tmp_path))
    world.dispatch.deliver(*TEN[:2])
    consumer = world.joined()
    late, other = drained(consumer)
    consumer.negative_acknowledge(late, 0)
    consumer.negative_acknowledge(other, 0)
    world.run(1)
    consumer.acknowledge(late)
    world.run(1)
    world.again()
    world.run(1)
    assert names(drained(consumer)) == names([other])
    consumer.close()
    assert names(drained(world.joined("b"))) == names([other])


def test_several_messages_at_once(tmp_path: Path) -> None:
    """As many as there are, as many as asked for, or as many bytes as the policy says."""
    world = World(str(tmp_path), EXCLUSIVE)
    world.dispatch.deliver(*TEN)
    consumer = world.joined()
    assert names(consumer.batch_receive(4, 0)) == TEN[:4]
    assert names(consumer.batch_receive(timeout_millis=0)) == TEN[4:]
    assert consumer.batch_receive(4, 0) == []


@pytest.mark.parametrize("kind", [EXCLUSIVE, KEY_SHARED])
def test_rows_of_arrow_are_received_and_acknowledged_as_a_table(tmp_path: Path, kind: SubscriptionType) -> None:
    """Without an object for each message; part of a table is as good."""
    world = World(str(tmp_path), kind)
    world.dispatch.deliver(*TEN)
    consumer = world.joined()
    table = consumer.batch_receive_arrow(7, 0)
    assert table.column("entry_id").to_pylist() == list(range(7))
    assert table.column("payload").to_pylist()[2] == b"1.2"
    consumer.acknowledge(table.slice(2))
    consumer.negative_acknowledge(table.slice(0, 1), 0)
    assert consumer.batch_receive_arrow(timeout_millis=0).num_rows == 3
    assert consumer.batch_receive_arrow(timeout_millis=0).num_rows == 0
    consumer.close()
    assert names(drained(world.joined("b"))) == [TEN[1], *TEN[7:]]
    assert world.settle.retries() == {1: TEN[:1]}


@pytest.mark.parametrize("most", [0, -1])
def test_a_number_of_messages_that_is_not_above_0_is_no_limit(tmp_path: Path, most: int) -> None:
    """`batch_receive_arrow` waited for ever beside a full queue."""
    world = World(str(tmp_path))
    world.dispatch.deliver(*TEN)
    consumer = world.joined()
    assert consumer.batch_receive_arrow(most, 0).num_rows == 10
    world.dispatch.deliver(*((2, entry) for entry in range(3)))
    world.run(1)
    assert len(consumer.batch_receive(most, 0)) == 3


def test_rows_of_arrow_keep_to_the_limit_of_what_may_be_held(tmp_path: Path) -> None:
    """As messages do."""
    world = World(str(tmp_path))
    world.dispatch.deliver(*TEN)
    consumer = world.joined(max_unacked=4)
    table = consumer.batch_receive_arrow(timeout_millis=0)
    assert table.num_rows == 4
    assert consumer.batch_receive_arrow(timeout_millis=0).num_rows == 0
    consumer.acknowledge(table)
    assert consumer.batch_receive_arrow(timeout_millis=0).num_rows == 4


@pytest.mark.parametrize("timeout_millis", [0, -1])
def test_nothing_within_the_time_is_a_timeout(tmp_path: Path, timeout_millis: int) -> None:
    """As in the reference, where a time that is over has come already; a reader does the same."""
    world = World(str(tmp_path))
    with pytest.raises(Timeout):
        world.joined().receive(timeout_millis)


def test_a_closed_consumer_says_so(tmp_path: Path) -> None:
    """A second `close` is nothing; everything else is an error."""
    world = World(str(tmp_path), EXCLUSIVE)
    world.dispatch.deliver(TEN[0])
    with world.joined() as consumer:
        message = consumer.receive(0)
        assert consumer.is_connected()
    consumer.close()
    assert not consumer.is_connected()
    for call in (lambda: consumer.receive(0), lambda: consumer.acknowledge(message), consumer.unsubscribe):
        with pytest.raises(AlreadyClosed):
            call()


def test_the_newest_message_of_the_log_has_an_id(tmp_path: Path) -> None:
    """Due or not."""
    world = World(str(tmp_path))
    consumer = world.joined()
    assert consumer.get_last_message_id() == MessageId.earliest
    put(world.root, MESSAGES, message_row(1, 7, NOON), message_row(2, 3, NOON), message_row(1, 9, NOON))
    assert consumer.get_last_message_id() == MessageId(-1, 2, 3)


def test_a_message_of_another_topic_cannot_be_acknowledged(tmp_path: Path) -> None:
    """Its position means something else there."""
    consumer = World(str(tmp_path)).joined()
    with pytest.raises(InvalidMessage):
        consumer.acknowledge(MessageId.of("other", 1, 1))
