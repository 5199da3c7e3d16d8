"""A program's own tests: time stands until a test turns it, and what is due meanwhile comes when it is due."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the stages need requirements/all.lock")

from pipeline.client.choices import ConsumerDeadLetterPolicy, ConsumerType, InitialPosition
from pipeline.client.client import Client
from pipeline.client.consuming.consumer import Consumer
from pipeline.client.exceptions import Timeout
from pipeline.client.message import Message
from pipeline.config.errors import BadValue
from pipeline.testing.plugin import delayline_warehouse
from pipeline.testing.public import VirtualWarehouse, async_warehouse, warehouse
from tests.support.modules import ROOT

__all__ = ["delayline_warehouse"]
START = datetime(2026, 5, 1, 9, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


@pytest.fixture
def world() -> Iterator[VirtualWarehouse]:
    """A warehouse on the first of May."""
    with warehouse(START) as made:
        yield made


def _ms(time: datetime) -> int:
    return (time - datetime.fromtimestamp(0, UTC)) // timedelta(milliseconds=1)


def nothing(consumer: Consumer) -> None:
    """Nothing comes to a consumer now."""
    with pytest.raises(Timeout):
        consumer.receive(1)


def test_a_message_comes_when_its_delay_has_passed_and_not_a_millisecond_before(world: VirtualWarehouse) -> None:
    """Also when the clock was turned in steps."""
    client = world.client()
    consumer = client.subscribe("orders", "timeouts")
    client.create_producer("orders").send(b"unpaid", deliver_after=30 * MINUTE)
    world.advance(minutes=29)
    world.advance(seconds=59, milliseconds=999)
    nothing(consumer)
    world.advance(milliseconds=1)
    message = consumer.receive(5_000)
    assert (message.data(), world.now) == (b"unpaid", START + 30 * MINUTE)
    consumer.acknowledge(message)
    world.advance(days=2)
    nothing(consumer)


def test_a_message_that_fails_comes_again_with_longer_pauses_and_is_a_dead_letter_then(world: VirtualWarehouse) -> None:
    """A listener sees each of the tries at its time, though the clock is turned once."""
    tried: list[timedelta] = []

    def fail(consumer: Consumer, message: Message) -> None:
        tried.append(world.now - START)
        consumer.negative_acknowledge(message)

    client = world.client()
    dead = client.subscribe("orders-dead", "people", initial_position=InitialPosition.Earliest)
    client.subscribe(
        "orders",
        "mails",
        ConsumerType.Shared,
        message_listener=fail,
        negative_ack_redelivery_delay_ms=60_000,
        dead_letter_policy=ConsumerDeadLetterPolicy(2, "orders-dead"),
    )
    client.create_producer("orders").send(b"mail", deliver_after=10 * MINUTE)
    world.advance(hours=1)
    assert tried == [10 * MINUTE, 11 * MINUTE, 12 * MINUTE]
    assert dead.receive(5_000).data() == b"mail"


def test_what_is_cancelled_in_time_does_not_come_and_what_is_cancelled_too_late_does(world: VirtualWarehouse) -> None:
    """The outcome of a command says so, too."""
    client = world.client()
    consumer = client.subscribe("orders", "timeouts")
    producer = client.create_producer("orders")
    producer.send(b"paid", partition_key="1", deliver_after=30 * MINUTE)
    producer.send(b"late", partition_key="2", deliver_after=30 * MINUTE)
    world.advance(minutes=29)
    assert client.cancel("orders", key="1").selection.count == 1
    world.advance(minutes=1)
    assert client.cancel("orders", key="2").selection.count == 0
    assert consumer.receive(5_000).data() == b"late"
    nothing(consumer)


def test_what_is_not_acknowledged_comes_again_after_its_timeout(world: VirtualWarehouse) -> None:
    """The timeout is of the time that is turned, and the message has not come before."""
    client = world.client()
    consumer = client.subscribe("orders", "timeouts", unacked_messages_timeout_ms=3_600_000)
    client.create_producer("orders").send(b"held")
    world.run_until_idle()
    assert consumer.receive(5_000).redelivery_count() == 0
    world.advance(minutes=59)
    nothing(consumer)
    world.advance(minutes=3)
    assert consumer.receive(5_000).redelivery_count() == 1


def test_a_rate_lets_go_what_it_allows_in_each_second(world: VirtualWarehouse) -> None:
    """What is held comes while time passes, though nothing else is due."""
    client = world.client()
    consumer = client.subscribe("orders", "slow", ConsumerType.Shared)
    client.set_policies("orders", "slow", max_rate=2)
    producer = client.create_producer("orders")
    for number in range(10):
        producer.send(str(number).encode())
    seen: list[tuple[int, int]] = []
    for second in range(8):
        world.run_until_idle() if second == 0 else world.advance(seconds=1)
        count = 0
        while True:
            try:
                consumer.acknowledge(consumer.receive(20))
            except Timeout:
                break
            count += 1
        seen.append((second, count))
    assert sum(count for _, count in seen) == 10
    assert max(count for _, count in seen[1:]) <= 4, seen
    assert seen[1][1], "a second later some more have come"


def test_each_client_of_the_process_has_the_time_of_its_warehouse(tmp_path: Path) -> None:
    """A program makes its client by itself; another warehouse has another time."""
    with warehouse(START, str(tmp_path / "a")) as one, warehouse(START + timedelta(days=700)) as other:
        for world in (one, other):
            with Client(world.root) as client:
                consumer = client.subscribe("t", "s")
                client.create_producer("t").send(b"x", deliver_after=timedelta(days=900))
                world.advance(days=899)
                nothing(consumer)
                world.advance(days=1)
                assert consumer.receive(5_000).publish_timestamp() == _ms(world.now) - 900 * 86_400_000
    assert (tmp_path / "a" / "inbox").exists(), "a folder of one's own stays"


def test_a_pause_takes_no_time_of_the_test_and_what_expires_meanwhile_does_not_come(world: VirtualWarehouse) -> None:
    """A month passes at once: nothing but a resume ends a pause."""
    client = world.client()
    consumers = [client.subscribe("orders", name, ConsumerType.Shared) for name in ("patient", "hasty")]
    client.set_policies("orders", "hasty", ttl_ms=60_000)
    for each in consumers:
        client.pause("orders", each.subscription_name())
    client.create_producer("orders").send(b"x", deliver_after=MINUTE)
    world.advance(days=30)
    for each in consumers:
        nothing(each)
        client.resume("orders", each.subscription_name())
    world.run_until_idle()
    assert consumers[0].receive(5_000).data() == b"x"
    nothing(consumers[1])


def test_nothing_of_a_warehouse_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its consumers end with it, also those that nobody closed, however a program spells the folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "real").mkdir()
    before = set(threading.enumerate())
    with warehouse(START, str(tmp_path / "link" / "w")) as world:
        client = Client(f"file://{tmp_path}/real/w")
        consumer = client.subscribe("t", "s")
        world.client().create_producer("t").send(b"x", deliver_after=MINUTE)
        world.advance(minutes=1)
        assert consumer.receive(5_000).data() == b"x"
        del consumer
    left = {each.name for each in set(threading.enumerate()) - before if "consumer" in each.name}
    assert not left
    client.close()


def test_what_cannot_be_is_refused_with_the_reason(world: VirtualWarehouse, tmp_path: Path) -> None:
    """A folder of somebody else, a time that has passed, one without a zone."""
    (tmp_path / "inbox").mkdir()
    with pytest.raises(BadValue, match="root"), warehouse(folder=str(tmp_path)):
        pass
    with pytest.raises(BadValue, match="time does not go back"):
        world.advance(seconds=-1)
    with pytest.raises(BadValue, match="time does not go back"):
        world.advance_to(START - MINUTE)
    for span in (3_000_000, 1e10):
        with pytest.raises(BadValue, match="to 2900-01-01"):
            world.advance(days=span)
    with pytest.raises(BadValue, match="1970-01-01 to 2900-01-01"), warehouse(datetime(1960, 1, 1, tzinfo=UTC)):
        pass
    with pytest.raises(BadValue, match="with a zone"):
        world.advance_to(datetime(2026, 5, 2))  # noqa: DTZ001 - that is what is refused
    with pytest.raises(BadValue, match="with a zone"), warehouse(datetime(2026, 5, 2)):  # noqa: DTZ001 - as above
        pass


def test_a_task_receives_while_time_passes() -> None:
    """The twin for an event loop."""

    async def program() -> tuple[bytes, timedelta]:
        async with async_warehouse(START) as world:
            client = world.client()
            consumer = await client.subscribe("orders", "timeouts")
            producer = await client.create_producer("orders")
            await producer.send(b"unpaid", deliver_after=30 * MINUTE)
            waits = asyncio.create_task(consumer.receive())
            await world.advance(minutes=29)
            assert not waits.done()
            await world.advance(minutes=1)
            message = await waits
            return message.data(), world.now - START

    assert asyncio.run(program()) == (b"unpaid", 30 * MINUTE)


def test_the_fixture_of_the_plugin_is_a_warehouse_at_the_present(delayline_warehouse: VirtualWarehouse) -> None:
    """A program that asks the machine for the time means the same."""
    assert abs(datetime.now(UTC) - delayline_warehouse.now) < MINUTE


def test_who_does_not_ask_for_a_warehouse_loads_nothing_for_it() -> None:
    """Each run of pytest loads the plugin where the package is installed, whatever it tests."""
    probe = "import sys\nimport pipeline.testing.plugin\nprint({'numpy', 'pyarrow', 'deltalake'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", probe], cwd=ROOT, check=True, capture_output=True, text=True)  # noqa: S603
    assert done.stdout == "set()\n"
