"""A consumer tells what it got, one line now and then."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

from tests.support.consumed import World, drained


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was told so far."""
    return [each.getMessage() for each in caplog.records if each.name.endswith("consuming.stats")]


def test_a_consumer_tells_what_it_got_when_its_interval_is_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Then it counts anew; one without an interval says nothing."""
    caplog.set_level(logging.INFO)
    world = World(str(tmp_path))
    consumer = world.joined("a", stats_interval_s=10)
    world.dispatch.deliver(*((1, entry) for entry in range(4)))
    world.run(1)
    messages = drained(consumer)
    consumer.acknowledge(messages[0])
    consumer.acknowledge(messages[1])
    consumer.negative_acknowledge(messages[2])
    world.run(5)
    assert lines(caplog) == []
    world.run(3)
    (line,) = lines(caplog)
    assert line.startswith("consumer t/s a: received 4 messages (0.4 a second) of 12 bytes, ")
    assert line.endswith("0 of them again; 2 acknowledged, 1 failed; 0 are queued, 1 not settled")
    world.run(11)
    assert "received 0 messages" in lines(caplog)[-1]


def test_a_consumer_without_an_interval_says_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """So it is by default for those that the command opens."""
    caplog.set_level(logging.INFO)
    world = World(str(tmp_path))
    world.joined("a")
    world.clock.time += 60_000
    world.run(1)
    assert lines(caplog) == []
