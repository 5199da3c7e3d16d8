"""What happens to consumers when two things come together: a hand-over and a seek, a full queue and a cut log."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from pipeline.client.choices import ConsumerType
from pipeline.client.consuming.engine import Engine
from pipeline.client.consuming.opening import new_consumer
from pipeline.client.consuming.options import ConsumerOptions
from pipeline.client.consuming.writer import EventWriter
from pipeline.client.tables import logs, tail
from pipeline.client.tables.events import EventRows
from pipeline.config.errors import StillConflicting, VersionGone
from pipeline.delta import deltars
from pipeline.delta.deltars import append, open_table, query
from schemas import CONSUMER_EVENTS, DELIVERIES, Table
from state import SubscriptionType
from tests.support.consumed import NOON, SUBSCRIPTION, TOPIC, World, drained, names, noted
from tests.support.settled import at as positions
from tests.unit.client.test_consuming import APPEND, PATIENCE_S, TEN, Settling, cut

EXCLUSIVE = SubscriptionType.EXCLUSIVE
PATIENCE_MS = round(PATIENCE_S * 1_000)
MANY = [(1, entry) for entry in range(40)]


def held(log: tail.DeliveryLog, version: int) -> bool:
    """Whether a version is kept."""
    try:
        log.files(version)
    except VersionGone:
        return False
    return True


def test_a_seek_in_the_middle_of_a_hand_over_leaves_no_slot_without_messages(tmp_path: Path) -> None:
    """The consumer stopped handing out some slots for the one that joined; in the new life they are its own again."""
    world = World(str(tmp_path))
    world.dispatch.deliver(*MANY)
    first = world.joined("a")
    assert len(drained(first)) == len(MANY)
    second = world.joined("b")
    assert second.is_connected() is False
    world.crash(second)
    world.begin_anew(2)
    world.run(3)
    world.dispatch.deliver(*MANY)
    world.run(2)
    assert sorted(names(drained(first))) == MANY


def test_what_is_queued_does_not_come_twice_when_a_log_was_cut(tmp_path: Path) -> None:
    """It is open, by settle's word, so it is among what is read from the table anew."""
    world = World(str(tmp_path))
    consumer = world.joined()
    world.dispatch.deliver(*TEN[:5])
    world.run(1)
    world.dispatch.deliver(*TEN[5:])
    world.dispatch.deliver((2, 0))
    cut(world, DELIVERIES)
    world.run(3)
    assert names(drained(consumer)) == [*TEN, (2, 0)]


@pytest.mark.parametrize("restarted", [False, True], ids=["stream", "backlog"])
def test_redeliveries_come_past_a_full_queue_of_new_messages(tmp_path: Path, *, restarted: bool) -> None:
    """A consumer that may get nothing new reads on for those; what it passed over comes when it may have it."""
    world = World(str(tmp_path), EXCLUSIVE)
    if restarted:
        world.dispatch.deliver(*MANY[:20])
        world.dispatch.deliver(*MANY[20:])
    consumer = world.joined(max_unacked=4, receiver_queue_size=5)
    if not restarted:
        for position in MANY:
            world.dispatch.deliver(position)
    world.run(1)
    held = [consumer.receive(0) for _ in range(4)]
    assert names(held) == MANY[:4]
    consumer.negative_acknowledge(held.pop(), 0)
    world.run(1)
    world.again()
    world.run(2)
    again = drained(consumer)
    assert [(m.message_id().position, m.redelivery_count()) for m in again] == [(MANY[3], 1)]
    found = []
    more = [*held, *again]
    while more:
        for message in more:
            consumer.acknowledge(message)
        world.run(1)
        more = drained(consumer)
        found += more
    assert names(found) == MANY[4:]
    world.run(1)
    assert world.settle.open == 0


def test_a_table_that_was_received_before_a_seek_is_not_settled_by_it(tmp_path: Path) -> None:
    """As with messages: what an application says of it afterwards says nothing of the new life."""
    world = World(str(tmp_path))
    world.dispatch.deliver(*TEN)
    consumer = world.joined()
    table = consumer.batch_receive_arrow(timeout_millis=0)
    assert table.num_rows == len(TEN)
    world.begin_anew(2)
    world.run(3)
    world.dispatch.deliver(*TEN)
    world.run(1)
    consumer.acknowledge(table)
    consumer.negative_acknowledge(table, 0)
    world.run(1)
    assert world.settle.open == len(TEN)
    assert not world.settle.retries()


def test_messages_of_a_new_life_that_nobody_was_handed_do_not_count_as_failed(tmp_path: Path) -> None:
    """However far the consumer was in the life before."""
    world = World(str(tmp_path), EXCLUSIVE)
    first = world.joined("a")
    world.dispatch.deliver(*TEN)
    world.run(1)
    assert len(drained(first)) == len(TEN)
    world.run(4)
    world.dispatch.batch = 0
    world.begin_anew(2)
    world.run(3)
    world.dispatch.deliver(*TEN[:5])
    world.run(5)
    world.crash(first)
    second = world.joined("b")
    world.run(15)
    assert world.settle.causes() == []
    assert names(drained(second)) == TEN[:5]


def test_a_redelivery_that_is_queued_is_dropped_when_its_message_is_acknowledged_late(tmp_path: Path) -> None:
    """Settle had closed the round before dispatch showed it; the consumer hears of both, in whichever order."""
    world = World(str(tmp_path), EXCLUSIVE)
    world.dispatch.deliver(*TEN[:2])
    consumer = world.joined()
    late, _ = drained(consumer)
    consumer.negative_acknowledge(late, 0)
    world.run(1)
    (again,) = world.settle.retries().values()
    # The row is published; its release is not read by settle yet.
    world.dispatch.show(again, world.settle.opened.outstanding.version, 1)
    world.run(1, settles=False)
    consumer.acknowledge(late)
    world.run(1)
    assert drained(consumer) == []


def test_a_redelivery_that_another_consumer_has_queued_is_dropped_when_its_message_is_acknowledged_late(
    tmp_path: Path,
) -> None:
    """It took too long, said so, and is done after all, while the next one already waits to be handed out."""
    world = World(str(tmp_path))
    consumer, other = world.joined("a"), world.joined("b")
    world.run(12)
    world.dispatch.deliver(*MANY)
    world.run(1)
    had = drained(consumer)
    others = names(drained(other))
    for each in had:
        consumer.negative_acknowledge(each, 0)
    world.run(1)
    world.again()
    world.run(1)
    moved = other.topic_consumers[0].tracker.queue.size
    for each in had:
        consumer.acknowledge(each)
    world.run(1)
    assert (moved > 0, drained(other), drained(consumer)) == (True, [], [])
    assert world.settle.open == len(others)


def test_a_consumer_whose_application_stands_still_does_not_keep_the_whole_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it has not read for long it reads from the table, when its application goes on."""
    monkeypatch.setattr(tail, "_MOST_VERSIONS", 10)
    world = World(str(tmp_path), EXCLUSIVE)
    consumer = world.joined(receiver_queue_size=1)
    for position in MANY:
        world.dispatch.deliver(position)
    world.run(1)
    log = consumer.engine.logs.deliveries
    assert len([v for v in range(log.last + 1) if held(log, v)]) <= 10
    found = []
    while more := drained(consumer):
        found += more
        world.run(1)
    assert names(found) == MANY


def test_rows_that_somebody_appended_without_some_columns_stop_no_consumer(tmp_path: Path) -> None:
    """Spark leaves out of a file what its rows lack, as those of the guide do that give a delivery back."""
    world = World(str(tmp_path))
    consumer = world.joined()
    row = {"kind": "nack", "topic": TOPIC, "subscription": SUBSCRIPTION, "life": 1, "ledger_id": 1}
    noted(world.root, CONSUMER_EVENTS, [row], "nobody", {})
    path = max(Path(world.root, CONSUMER_EVENTS.name).glob("*.parquet"), key=lambda each: each.stat().st_mtime_ns)
    pq.write_table(pq.read_table(path).select(list(row)), path)
    world.dispatch.deliver(*TEN)
    world.run(1, settles=False)
    assert names(drained(consumer)) == TEN


def test_consumers_of_many_topics_share_a_look_at_what_settle_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look takes some tens of milliseconds, and a topic may have hundreds of partitions."""
    world = World(str(tmp_path))
    world.dispatch.deliver(*TEN)
    topics = [TOPIC, *(f"t-partition-{number}" for number in range(20))]
    consumer = new_consumer(world.process(), topics, SUBSCRIPTION, ConsumerOptions(ConsumerType.Shared, "a"))
    looks: list[str] = []

    def query(sql: str, **tables: DeltaTable) -> list[dict[str, Any]]:
        looks.append(sql)
        return deltars.query(sql, **tables)

    monkeypatch.setattr(logs, "query", query)
    world.run(0.2)
    assert len([sql for sql in looks if "bytes FROM" in sql]) == 1
    world.run(3)
    assert names(drained(consumer)) == TEN


def test_who_waits_for_a_message_in_vain_costs_little(tmp_path: Path) -> None:
    """A look at four logs twenty times a second, not as often as the machine can."""
    world = World(str(tmp_path), EXCLUSIVE)
    engine = world.process()
    turns = 0
    turn = engine.turn

    def counted() -> bool:
        nonlocal turns
        turns += 1
        return turn()

    engine.turn = counted  # type: ignore[method-assign]
    engine.start()
    with Settling(world):
        consumer = world.consumer(engine)
        consumer.next_message(1_000)
        before, begun = turns, time.monotonic()
        consumer.next_message(1_000)
        rate = (turns - before) / (time.monotonic() - begun)
        consumer.close()
    assert rate < 40


def test_what_was_appended_though_its_answer_was_lost_is_appended_again_and_counts_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a process is stopped between the commit and what it does with it."""
    world = World(str(tmp_path), EXCLUSIVE)
    world.dispatch.deliver(*TEN)
    consumer = world.joined()
    failed, *done = drained(consumer)
    consumer.negative_acknowledge(failed, 0)
    for each in done:
        consumer.acknowledge(each)

    def silently(root: str, table: Table, rows: pa.Table) -> int:
        monkeypatch.setattr(APPEND, append)
        append(root, table, rows)
        raise StillConflicting(table.name, 1)

    monkeypatch.setattr(APPEND, silently)
    world.run(2)
    assert world.settle.retries() == {1: [TEN[0]]}
    assert world.settle.open == 0
    assert len(query("SELECT 1 FROM e WHERE kind = 'nack'", e=open_table(world.root, CONSUMER_EVENTS))) == 2


def test_messages_come_while_the_store_takes_long_to_append(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who appends what consumers say is another thread than the one that reads for them."""
    world = World(str(tmp_path), EXCLUSIVE)
    engine, begun, ends = Engine(world.root), threading.Event(), threading.Event()

    def slowly(*args: Any) -> int:  # noqa: ANN401 - as they are
        begun.set()
        assert ends.wait(PATIENCE_S)
        return append(*args)

    engine.start()
    with Settling(world):
        consumer = world.consumer(engine)
        world.dispatch.deliver(TEN[0])
        first = consumer.receive(PATIENCE_MS)
        monkeypatch.setattr(APPEND, slowly)
        consumer.acknowledge(first)
        assert begun.wait(PATIENCE_S)
        world.dispatch.deliver(TEN[1])
        assert names([consumer.receive(PATIENCE_MS)]) == [TEN[1]]
        ends.set()
        consumer.close()
    world.settle.settle()
    assert world.settle.open == 1


def test_what_a_free_slot_waits_for_is_appended_before_its_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commits that take a second are followed by pauses of three; claims wait for one. Else slots have no owner."""
    world, writer, said = _slow(tmp_path, monkeypatch, 1_000, 1_000, 1_000, 1_000)
    for _ in range(2):
        writer.add(said)
        assert writer.flush()
    world.clock.time += 1_000
    writer.add(said)
    assert not writer.flush()
    writer.add(said, hurry=True)
    assert writer.flush()
    writer.add(said)
    world.clock.time += 2_999
    assert not writer.flush()
    world.clock.time += 1
    assert writer.flush()


def test_a_commit_that_takes_long_alone_makes_neither_pauses_nor_leases_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lease that is longer for a minute lets the others wait longer for the messages of who dies meanwhile."""
    world, writer, said = _slow(tmp_path, monkeypatch, 5_000, 20, 3_000, 20)
    paces = []
    for _ in range(4):
        writer.add(said)
        world.clock.time += 100
        assert writer.flush()
        paces.append(writer.interval_ms)
    assert paces == [100] * 4


def _slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *times: int) -> tuple[World, EventWriter, pa.Table]:
    """A writer of a world whose commits take so long, one by one, ms; and rows for it."""
    world, left = World(str(tmp_path)), iter(times)

    def slowly(*args: Any) -> int:  # noqa: ANN401 - as they are
        world.clock.time += next(left)
        return append(*args)

    monkeypatch.setattr(APPEND, slowly)
    said = EventRows((TOPIC, SUBSCRIPTION, 1), "a", 7).acks(positions((1, 0, 0)), NOON)
    return world, EventWriter(world.root, world.clock), said
