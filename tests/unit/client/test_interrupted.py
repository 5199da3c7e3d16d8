"""Calls that end in the middle: what they had is not lost."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import pytest

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

from pipeline.client.consuming.consumer import Consumer
from pipeline.client.exceptions import AlreadyClosed
from tests.support.consumed import World, drained, names

TEN = [(1, entry) for entry in range(10)]


def interrupt(consumer: Consumer) -> None:
    """A call waits for more than there is, and ends by Ctrl-C."""
    with patch.object(consumer.engine, "wake", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        consumer.batch_receive(20, 60_000)


def test_what_a_call_had_when_it_was_interrupted_the_next_one_gives(tmp_path: Path) -> None:
    """Ctrl-C, or whatever a handler of signals raises. The consumer had them, and gave them to nobody until its end."""
    world = World(str(tmp_path))
    world.dispatch.deliver(*TEN)
    consumer = world.joined()
    interrupt(consumer)
    assert names(consumer.batch_receive(4, 0)) == TEN[:4]
    assert names([consumer.receive(0)]) == TEN[4:5]
    assert names(drained(consumer)) == TEN[5:]


def test_what_a_call_had_when_its_consumer_was_closed_others_get_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It did not fail, so it does not count as a redelivery."""
    world = World(str(tmp_path))
    consumer, other = world.joined(), world.joined("b")
    world.run(30)
    world.dispatch.deliver(*TEN)
    world.run(1)
    monkeypatch.setattr(consumer.engine, "wake", consumer.close)
    with pytest.raises(AlreadyClosed):
        consumer.batch_receive(20, 60_000)
    first = drained(other)
    assert len(first) < len(TEN)
    world.run(1)
    found = [*first, *drained(other)]
    assert sorted(names(found)) == TEN
    assert {each.redelivery_count() for each in found} == {0}


def test_what_a_call_had_when_it_was_interrupted_and_came_again_since_is_given_once(tmp_path: Path) -> None:
    """Nobody acknowledged it in time. The application got it, and once more as the redelivery."""
    world = World(str(tmp_path))
    world.dispatch.deliver(*TEN)
    consumer = world.joined(unacked_messages_timeout_ms=3_000)
    interrupt(consumer)
    world.run(6)
    world.again()
    world.run(1)
    found = drained(consumer)
    assert names(found) == TEN
    assert {each.redelivery_count() for each in found} == {1}
