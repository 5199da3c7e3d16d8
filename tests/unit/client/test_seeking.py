"""Seeking: what it drops and brings, where it begins, and what consumers make of it."""

from __future__ import annotations

from pathlib import Path
from threading import Thread

import pytest

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

from pipeline.client.choices import ConsumerType
from pipeline.client.client import Client
from pipeline.client.commanding.commands import cancel
from pipeline.client.consuming import consumer as consumers
from pipeline.client.consuming.arguments import HowConsumed
from pipeline.client.consuming.consumer import Consumer
from pipeline.client.exceptions import SubscriptionNotFound, Timeout
from pipeline.client.insight.pending import pending
from pipeline.client.insight.prospect import prospect
from pipeline.client.message import Message, MessageId
from pipeline.client.subscribing.seeking import Where, begin_anew, seek
from pipeline.client.subscribing.subscriptions import Subscription, set_policies, subscribe, subscriptions, unsubscribe
from pipeline.config.errors import BadValue
from pipeline.storage.files import Files
from pipeline.subscriptions.policies import Policies
from pipeline.subscriptions.settled import SettledMark, raise_to
from schemas import MESSAGES
from state import SubscriptionType
from tests.support.client import message_row, new_warehouse, noticed, put
from tests.support.consumed import NOON, World, drained, names

ACK = Policies(ack=True)
SECOND = 1_000


@pytest.fixture
def root(tmp_path: Path) -> str:
    """Five messages in three ledgers, a second between two, and a subscription that ingest knows."""
    new_warehouse(str(tmp_path))
    places = [(1, 0), (1, 1), (2, 0), (2, 1), (4, 0)]
    put(
        str(tmp_path),
        MESSAGES,
        *(message_row(*each, NOON, published=NOON + n * SECOND) for n, each in enumerate(places)),
    )
    subscribe(str(tmp_path), Subscription("t", "s", start="earliest", policies=ACK))
    noticed(str(tmp_path), "s", 0)
    return str(tmp_path)


def line(root: str) -> Subscription:
    """The one line of the registry."""
    (found,) = subscriptions(root)
    return found


@pytest.mark.parametrize(
    ("where", "position", "brings"),
    [
        (MessageId.earliest, (0, 0), 5),
        (MessageId.latest, (4, 1), 0),
        (MessageId.of("t", 1, 1), (1, 1), 4),
        (MessageId.of("t", 3, 7), (3, 7), 1),
        (MessageId.of("t", 99, 0), (4, 1), 0),
        (NOON + 2 * SECOND, (2, 0), 3),
        (NOON + 2 * SECOND - 1, (2, 0), 3),
        (NOON + 3_600 * SECOND, (4, 1), 0),
    ],
)
def test_a_place_is_a_position_or_the_first_message_sent_since(
    root: str, where: Where, position: tuple[int, int], brings: int
) -> None:
    """The message there comes, too; what is behind the end of the log is its end."""
    found = prospect(root, "t", "s", where)
    assert (found.position, found.brings) == (position, brings)
    life = begin_anew(root, "t", "s", where)
    sought = line(root).sought
    assert sought is not None
    assert (sought.life, sought.ledger, sought.entry) == (life, *position)
    assert pending(root).backlogs[0].count == brings


@pytest.mark.parametrize(
    ("where", "position"),
    [
        (MessageId.of("t", 1, 1), (1, 2)),
        (MessageId.of("t", 4, 0), (4, 1)),
        (MessageId.of("t", 99, 0), (4, 1)),
        (MessageId.earliest, (0, 0)),
        (MessageId.latest, (4, 1)),
        (NOON + 2 * SECOND, (2, 0)),
    ],
)
def test_a_seek_that_leaves_the_message_out_begins_behind_it(
    root: str, where: Where, position: tuple[int, int]
) -> None:
    """As that of the reference, unless it is told otherwise; ends and times are what they are."""
    begin_anew(root, "t", "s", where, inclusive=False)
    sought = line(root).sought
    assert sought is not None
    assert (sought.ledger, sought.entry) == position


@pytest.mark.parametrize("inclusive", [True, False])
def test_a_consumer_seeks_with_the_message_or_behind_it_as_it_was_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, inclusive: bool
) -> None:
    """By the option under its name in the reference."""
    asked = list[bool]()

    def begun(*_: object, inclusive: bool) -> int:
        asked.append(inclusive)
        return 0

    monkeypatch.setattr(consumers, "begin_anew", begun)
    monkeypatch.setattr("pipeline.client.consuming.opening.engine_of", lambda _: World(str(tmp_path)).process())
    with Client(new_warehouse(tmp_path)) as client:
        options: HowConsumed = {"start_message_id_inclusive": True} if inclusive else {}
        client.subscribe("t", "s", ConsumerType.Shared, **options).seek(MessageId.earliest)
    assert asked == [inclusive]


def test_each_seek_asks_for_a_life_of_its_own(root: str) -> None:
    """Also to the same place, before ingest has seen the one before; the rest of the line stays."""
    first, second = (begin_anew(root, "t", "s", MessageId.earliest) for _ in range(2))
    assert second > first > 1
    assert line(root).policies.ack
    assert line(root).type == "shared"


def test_who_registers_or_changes_policies_after_a_seek_leaves_it_as_it_is(root: str) -> None:
    """The subscription is the same one, wherever it was to start; ended and registered anew it forgets the seek."""
    begin_anew(root, "t", "s", MessageId.of("t", 2, 0))
    start = line(root).start
    assert not subscribe(root, Subscription("t", "s", start="earliest", policies=ACK))
    assert set_policies(root, "t", "s", Policies(ack=True, max_unacked=7))
    assert line(root).start == start
    unsubscribe(root, "t", "s")
    subscribe(root, Subscription("t", "s", policies=ACK))
    assert line(root).start == "latest"


def test_who_seeks_is_told_that_retention_has_deleted_messages(root: str) -> None:
    """Only when the place is before what was kept."""
    raise_to(Files(), root, SettledMark(NOON + SECOND, 2, 1))
    assert prospect(root, "t", "s", MessageId.earliest).deleted_until == NOON + SECOND
    assert prospect(root, "t", "s", MessageId.of("t", 2, 0)).deleted_until is None


def test_nobody_can_be_sought_who_is_not_registered(root: str) -> None:
    """Nothing is written."""
    with pytest.raises(SubscriptionNotFound):
        prospect(root, "t", "stranger", MessageId.earliest)
    with pytest.raises(SubscriptionNotFound):
        begin_anew(root, "t", "stranger", MessageId.earliest)
    assert line(root).sought is None


def seeking(world: World, consumer: Consumer, where: Where) -> None:
    """Seek, while the processes and settle go on, until the consumer says that it is done."""
    before = line(world.root).start
    thread = Thread(target=consumer.seek, args=(where,))
    thread.start()
    while line(world.root).start == before:
        thread.join(0.01)
    sought = line(world.root).sought
    assert sought is not None
    world.begin_anew(sought.life)
    while thread.is_alive():
        world.run(0.2)


def sought(tmp_path: Path) -> tuple[World, Consumer, Consumer, list[Message]]:
    """Two consumers got two messages each before one of them sought the subscription."""
    world = World(str(tmp_path))
    subscribe(world.root, Subscription("t", "s", policies=ACK))
    a, b = world.joined("a"), world.joined("b")
    world.run(15)
    positions = [(1, entry) for entry in range(40)]
    put(world.root, MESSAGES, *(message_row(*each, NOON) for each in positions))
    world.dispatch.deliver(*positions)
    world.run(1)
    held = [consumer.receive(0) for consumer in (a, b)]
    seeking(world, a, MessageId.earliest)
    world.run(1)
    return world, a, b, held


def test_all_consumers_go_on_with_what_was_sought(tmp_path: Path) -> None:
    """Nothing of before comes, whichever process it was queued in; each message of the new life comes once."""
    world, a, b, _ = sought(tmp_path)
    assert not drained(a)
    assert not drained(b)
    world.run(15)
    world.dispatch.deliver((1, 3), (1, 4), (1, 5), (1, 6), (1, 7))
    world.run(2)
    assert sorted(names([*drained(a), *drained(b)])) == [(1, entry) for entry in range(3, 8)]


def test_another_life_is_noticed_with_the_next_commit_of_settle(tmp_path: Path) -> None:
    """Long before the consumer would look by itself; nothing of the life before is handed out from then on."""
    world = World(str(tmp_path))
    consumer = world.joined()
    world.dispatch.deliver((1, 0))
    world.run(0.2)
    world.begin_anew(2)
    world.run(0.6)
    assert [each.life for each in consumer.topic_consumers] == [2]
    assert drained(consumer) == []


def test_what_was_received_before_a_seek_is_not_settled_by_it(tmp_path: Path) -> None:
    """An application that acknowledges late, or gives back, what it had before says nothing of the new life."""
    world, a, b, held = sought(tmp_path)
    world.run(15)
    world.dispatch.deliver(*names(held))
    for consumer, message in zip((a, b), held, strict=True):
        consumer.acknowledge(message)
        consumer.negative_acknowledge(message)
    world.run(2)
    assert world.settle.open == len(held)
    assert not world.settle.retries()


def test_cumulative_acknowledgement_of_what_was_received_before_a_seek_settles_nothing(tmp_path: Path) -> None:
    """As with other acknowledgements. An id does not know its life: it names the message as it was handed since."""
    world = World(str(tmp_path), SubscriptionType.EXCLUSIVE)
    positions = [(1, entry) for entry in range(6)]
    world.dispatch.deliver(*positions)
    consumer = world.joined()
    before = drained(consumer)
    world.begin_anew(2)
    world.run(1)
    consumer.acknowledge_cumulative(before[-1])
    world.dispatch.deliver(*positions)
    world.run(1)
    again = drained(consumer)
    assert names(again) == positions
    consumer.acknowledge_cumulative(before[-1])
    world.run(2)
    assert world.settle.open == len(positions)
    consumer.acknowledge_cumulative(before[1].message_id())
    world.run(2)
    assert world.settle.open == len(positions) - 2
    consumer.acknowledge_cumulative(again[-1])
    world.run(2)
    assert world.settle.open == 0


def test_what_a_consumer_that_is_closed_had_before_a_seek_is_not_settled_by_another_one(tmp_path: Path) -> None:
    """A program may hand its messages to the consumer that it opens next: they are of the life before all the same."""
    world = World(str(tmp_path))
    positions = [(1, entry) for entry in range(3)]
    world.dispatch.deliver(*positions)
    first = world.joined("a")
    before = drained(first)
    first.close()
    second = world.joined("b")
    second.acknowledge(before[2])
    world.run(2)
    assert world.settle.open == 2
    world.begin_anew(2)
    world.dispatch.deliver(*positions)
    while second.topic_consumers[0].life:
        second.engine.turn()
    second.acknowledge(before[2])
    world.run(2)
    second.acknowledge(before[0])
    second.negative_acknowledge(before[1])
    world.run(2)
    assert world.settle.open == len(positions)
    assert not world.settle.retries()


def test_a_seek_says_when_no_service_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The line is written, so the subscription is sought as soon as one does."""
    monkeypatch.setattr(consumers, "_SEEK_MS", 1)
    world = World(str(tmp_path))
    subscribe(world.root, Subscription("t", "s", policies=ACK))
    with pytest.raises(Timeout):
        world.joined().seek(NOON)
    assert line(world.root).sought is not None


def test_a_command_waits_for_the_life_that_a_seek_has_asked_for(root: str) -> None:
    """It would name the life before, and what it cancels would come all the same."""
    subscribe(root, Subscription("t", "late"))
    noticed(root, "late", 4)
    life = seek(root, "t", "s", (2, 0))
    for subscription in ("s", None):
        with pytest.raises(BadValue) as refused:
            cancel(root, "t", subscription, where="true")
        assert (refused.value.field, refused.value.value) == ("subscription", "s")
    assert cancel(root, "t", "late", where="true").selection.count == 1
    noticed(root, "s", 2, marker=2, life=life)
    assert cancel(root, "t", "s", where="true").selection.count == 3
    assert pending(root, "t", "s").backlogs[0].count == 0
