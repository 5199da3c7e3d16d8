"""What is said of messages in one life of a subscription while consumers are in another one, or in none."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

from pipeline.client.message import MessageId
from tests.support.consumed import TOPIC, World, drained, names
from tests.unit.client.test_consuming import TEN


def test_a_consumer_settles_what_another_one_got_in_a_life_of_which_it_has_not_heard(tmp_path: Path) -> None:
    """Its acknowledgement was dropped without a word for up to five seconds, and the message came again."""
    world = World(str(tmp_path))
    engine = world.process()
    other, getter = world.consumer(engine, "a"), world.joined("b")
    world.run(10)
    other.topic_consumers[0].turn = lambda: None  # type: ignore[method-assign] # it is not its turn yet
    world.begin_anew(2)
    world.run(6)
    world.dispatch.deliver(*TEN)
    world.run(1)
    getter.close()
    new = world.joined("c")
    world.run(20)
    messages = drained(new)
    for message in messages[:-1]:
        other.acknowledge(message)
    ((ledger, entry),) = names(messages[-1:])
    table = pa.table({"topic": [TOPIC], "life": [2], "ledger_id": [ledger], "entry_id": [entry]})
    other.acknowledge(table)
    world.run(1)
    assert world.settle.open == len(TEN) - len(messages)
    assert messages


def test_what_was_received_before_a_seek_settles_nothing_for_who_has_not_joined(tmp_path: Path) -> None:
    """It was said of whichever life the consumer joined: a message that was sought was never handed out."""
    world = World(str(tmp_path))
    world.dispatch.deliver(*TEN)
    first = world.joined("a")
    old = drained(first)
    world.begin_anew(2)
    world.run(6)
    world.dispatch.deliver(*TEN)
    world.run(1)
    second = world.consumer(first.engine, "b")
    for message in old:
        second.acknowledge(message)
    world.run(2)
    assert world.settle.open == len(TEN)


@pytest.mark.parametrize("redelivers", [True, False])
def test_what_is_acknowledged_by_ids_before_a_consumer_has_joined_is_settled(
    tmp_path: Path, *, redelivers: bool
) -> None:
    """A program that keeps ids settles them, and closes at once. It was dropped; other calls failed."""
    world = World(str(tmp_path))
    world.dispatch.deliver(*TEN)
    world.joined("a")
    consumer = world.consumer(world.process(), "b")
    for place in TEN[:3]:
        consumer.acknowledge(MessageId.of(TOPIC, *place))
    if redelivers:
        consumer.redeliver_unacknowledged_messages()
    consumer.close()
    world.run(1)
    assert world.settle.open == len(TEN) - 3
