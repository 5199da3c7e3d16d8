"""What happens to consumers when a store does not give them what they ask for, and does so later."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

from typing import Any

import pyarrow as pa

from pipeline.client.message import Message
from pipeline.client.tables import tail
from pipeline.client.tables.datarows import DataRows
from pipeline.config.threads import Panic
from state import SubscriptionType
from tests.support.consumed import SUBSCRIPTION, TOPIC, World, drained, names
from tests.unit.client.test_consuming import TEN

EXCLUSIVE = SubscriptionType.EXCLUSIVE
MANY = [(1, entry) for entry in range(40)]
ERRORS = [OSError, MemoryError, KeyboardInterrupt]
"""The last one stands for whatever is no `Exception`, as a panic of delta-rs."""


def test_what_a_store_does_not_give_at_once_is_read_by_the_next_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A consumer that never heard of another one would take slots of which that one hands out messages."""
    world = World(str(tmp_path))
    consumer, other = world.joined("a"), world.consumer(world.process(), "b")
    world.run(1, other.engine)
    leases = consumer.engine.logs.leases

    def refused(*_: object) -> None:
        raise OSError("the store does not answer")

    with monkeypatch.context() as broken:
        broken.setattr(tail, "bounded", refused)
        with pytest.raises(OSError, match="answer"):
            leases.read()
    assert leases.read()
    replay = leases.replay((TOPIC, SUBSCRIPTION, 1))
    assert replay is not None
    assert sorted(peer.consumer for peer in replay.peers.values()) == ["a", "b"]


@contextmanager
def half_read(monkeypatch: pytest.MonkeyPatch, error: type[BaseException] = OSError) -> Iterator[None]:
    """A store gives the first file that is read, and not the second one, which keeps a consumer from its turn."""
    real, numbers = DataRows.pieces, count()

    def pieces(self: DataRows, *args: Any) -> Iterator[pa.Table]:  # noqa: ANN401 - passed on
        if next(numbers) == 1:
            raise error("the store does not answer")
        yield from real(self, *args)

    with monkeypatch.context() as patched:
        patched.setattr(DataRows, "pieces", pieces)
        yield


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("joins", [False, True], ids=["stream", "backlog"])
def test_messages_that_a_store_does_not_give_at_once_come_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException], *, joins: bool
) -> None:
    """Those that were read before it failed, too; nobody else would hand them out before the consumer is gone."""
    world = World(str(tmp_path), EXCLUSIVE)
    consumer = world.consumer(world.process())
    if not joins:
        world.run(3)
    world.dispatch.deliver(*TEN[:5])
    world.dispatch.deliver(*TEN[5:])
    with half_read(monkeypatch, error), pytest.raises((error, Panic), match="answer"):
        world.run(3)
    world.run(3)
    assert names(drained(consumer)) == TEN


def test_messages_of_a_turn_that_fails_when_it_has_read_them_come_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the lease says could not be told, say: what the turn had read was handed out to nobody."""
    world = World(str(tmp_path), EXCLUSIVE)
    consumer = world.joined()
    world.dispatch.deliver(*TEN)

    def fails(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as broken:
        broken.setattr(consumer.topic_consumers[0], "_notice", fails)
        with pytest.raises(RuntimeError):
            world.run(0.2)
    world.run(3)
    assert names(drained(consumer)) == TEN


def test_redeliveries_that_a_store_does_not_give_at_once_come_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those that a consumer reads past a full queue: they had counted as handed out."""
    world = World(str(tmp_path), EXCLUSIVE)
    consumer = world.joined(max_unacked=8, receiver_queue_size=9)
    for position in MANY:
        world.dispatch.deliver(position)
    world.run(1)
    held = [consumer.receive(0) for _ in range(8)]
    for _ in range(2):
        consumer.negative_acknowledge(held.pop(), 0)
    world.run(1)
    for position in MANY[6:8]:
        world.dispatch.deliver(position, count=1)
    with half_read(monkeypatch), pytest.raises(OSError, match="answer"):
        world.run(1)
    found, more = list[Message](), held
    while more:
        for message in more:
            consumer.acknowledge(message)
        world.run(2)
        more = drained(consumer)
        found += more
    assert sorted(names(found)) == MANY[6:]
    assert world.settle.open == 0


@pytest.mark.parametrize("error", ERRORS)
def test_what_a_lost_owner_had_counts_as_failed_also_when_a_store_does_not_give_it_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    """What was behind the file that did not come was neither handed out nor given back while its owner lived."""
    world = World(str(tmp_path), EXCLUSIVE)
    first = world.joined("a")
    world.dispatch.deliver(*TEN[:5])
    world.dispatch.deliver(*TEN[5:])
    world.run(4)
    assert names(drained(first)) == TEN
    world.run(4)
    world.crash(first)
    second = world.consumer(world.process(), "b")
    with half_read(monkeypatch, error), pytest.raises((error, Panic), match="answer"):
        world.run(15)
    world.run(2)
    world.again()
    world.run(2)
    assert sorted(names([*drained(second)])) == TEN


@pytest.mark.parametrize("whole", [False, True])
def test_a_file_of_deliveries_that_is_broken_is_brought_back_and_all_come(tmp_path: Path, *, whole: bool) -> None:
    """Meanwhile each turn says which file it is, whether its end can be read or not."""
    world = World(str(tmp_path), EXCLUSIVE)
    consumer = world.joined()
    known = {*tmp_path.rglob("*.parquet")}
    world.dispatch.deliver(*TEN[:5])
    (file,) = (each for each in {*tmp_path.rglob("*.parquet")} - known if each.parent.name == "deliveries")
    content = file.read_bytes()
    file.write_bytes(b"PAR1" + bytes(200) + content[204:] if whole else b"broken")
    for _ in range(2):
        with pytest.raises((OSError, pa.ArrowException)) as broken:
            world.run(1)
        assert str(file) in broken.value.__notes__
    file.write_bytes(content)
    world.dispatch.deliver(*TEN[5:])
    world.run(3)
    assert names(drained(consumer)) == TEN
