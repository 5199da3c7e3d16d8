"""From a failure to the next delivery: whoever says it, the stages bring each redelivery once and in its time.

Events that are appended, the client's consumer, and streams of Spark by the blocks of the guide. One run has a topic
for each of them, so that the stages start and stop for all together.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import pytest
from pyspark.sql.streaming.query import StreamingQuery

from pipeline.client import public
from pipeline.client.choices import ConsumerType
from pipeline.client.consuming.consumer import Consumer
from pipeline.client.consuming.engine import Engine
from pipeline.client.consuming.opening import new_consumer
from pipeline.client.consuming.options import ConsumerOptions
from pipeline.client.message import Message
from schemas import CLOSED, DELIVERIES, INBOX, REJECTED_SETTLE
from state import Condition
from tests.support.consumed import SetClock, drained
from tests.support.consuming import acknowledging, payloads_open, received, says, standing
from tests.support.modules import ROOT
from tests.support.spark import session
from tests.support.stream import Step, World, advance, append, check, message, restart
from tests.support.together import Played, play_together
from tests.support.worlds import SHELLS

T0 = 1_700_000_000_000
SECOND = 1_000
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def letters(world: World, topic: str) -> list[bytes]:
    """The dead letters of subscription `s` of a topic."""
    return [bytes(row["payload"]) for row in world.rows(INBOX) if row["topic"] == f"{topic}-s-DLQ"]


def failing(topic: str) -> list[Step]:
    """One fails twice and is acknowledged, one fails until it is given up."""

    def first(world: World) -> None:
        assert received(world, topic=topic) == [("good", 0), ("bad", 0)]

    def second(world: World) -> None:
        assert received(world, topic=topic) == [("good", 0), ("bad", 0), ("good", 1), ("bad", 1)]
        assert payloads_open(world, topic=topic) == {"good", "bad"}

    def last(world: World) -> None:
        assert received(world, topic=topic) == [("good", 0), ("bad", 0), ("good", 1), ("bad", 1), ("bad", 2)]
        assert payloads_open(world, topic=topic) == set()
        assert letters(world, topic) == [b"bad"]
        rows = [row for row in world.rows(DELIVERIES) if row["topic"] == topic]
        assert len({(row["ledger_id"], row["entry_id"]) for row in rows if row["payload"] == b"bad"}) == 1
        assert sorted(row["cause"] for row in rows if row["redelivery_count"]) == ["nack", "nack", "owner_lost"]

    return [
        acknowledging(topic, "s", max_redeliveries=2, retry_min_ms=10 * SECOND),
        advance(T0),
        append(message("good", topic), message("bad", topic)),
        advance(T0 + SECOND),
        says("nack", "good", "bad", topic=topic, cause="nack"),
        advance(T0 + 2 * SECOND),
        says("nack", "bad", topic=topic),
        advance(T0 + 11 * SECOND),
        check(first),
        restart(),
        advance(T0 + 13 * SECOND),
        check(second),
        says("ack", "good", topic=topic),
        says("nack", "bad", topic=topic, after_ms=0, cause="owner_lost"),
        advance(T0 + 14 * SECOND),
        advance(T0 + 15 * SECOND),
        says("nack", "bad", topic=topic),
        advance(T0 + 16 * SECOND),
        restart(),
        advance(T0 + 75 * SECOND),
        check(last),
    ]


def late(topic: str) -> list[Step]:
    """The consumer was slow, its lease ended, and then it was done all the same."""

    def none(world: World) -> None:
        assert received(world, topic=topic) == [("slow", 0)]
        assert payloads_open(world, topic=topic) == set()
        closed = [row for row in world.rows(CLOSED) if row["topic"] == topic]
        assert [(row["redelivery_count"], row["cause"]) for row in closed] == [(1, "ack")]

    return [
        acknowledging(topic, "s"),
        advance(T0),
        append(message("slow", topic)),
        advance(T0 + SECOND),
        says("nack", "slow", topic=topic, after_ms=30 * SECOND, cause="owner_lost"),
        advance(T0 + 2 * SECOND),
        says("ack", "slow", topic=topic),
        advance(T0 + 11 * SECOND),
        restart(),
        advance(T0 + 75 * SECOND),
        check(none),
    ]


@dataclass
class Application:
    """A program with a consumer, which works between two instants of the stages."""

    topic: str
    kind: ConsumerType
    clock: SetClock = field(default_factory=SetClock)
    got: list[tuple[str, int]] = field(default_factory=list)
    engine: Engine | None = None
    consumer: Consumer | None = None

    def works(self, fails: str = "", *, leaves: bool = False) -> Step:
        """It takes what there is, gives back what is named, acknowledges the rest; it may leave."""

        def step(world: World) -> None:
            engine, consumer = self._begun(world.warehouse.root)
            self._turn(engine)
            for each in drained(consumer):
                self._settle(consumer, each, fails)
            self._turn(engine)
            if leaves:
                consumer.close()
                self.engine = self.consumer = None

        return step

    def _begun(self, root: str) -> tuple[Engine, Consumer]:
        if self.engine is None or self.consumer is None:
            self.engine = Engine(root, self.clock)
            self.consumer = new_consumer(self.engine, [self.topic], "s", ConsumerOptions(self.kind, "a"))
        return self.engine, self.consumer

    def _turn(self, engine: Engine) -> None:
        for _ in range(4):
            self.clock.time += 500
            engine.turn()

    def _settle(self, consumer: Consumer, each: Message, fails: str) -> None:
        payload = each.data().decode()
        self.got.append((payload, each.redelivery_count()))
        if payload in fails.split():
            consumer.negative_acknowledge(each, 2 * SECOND)
        else:
            consumer.acknowledge(each)


def consuming(topic: str) -> list[Step]:
    """A program fails twice with one of four messages; the stages restart, and it does."""
    program = Application(topic, ConsumerType.Shared)

    def after(world: World) -> None:
        assert program.got == [("a", 0), ("b", 0), ("c", 0), ("b", 1), ("d", 0)]
        assert payloads_open(world, topic=topic) == set()
        assert letters(world, topic) == [b"b"]

    return [
        acknowledging(topic, "s", kind="shared", max_redeliveries=1),
        advance(T0),
        append(
            message("a", topic),
            message("b", topic),
            message("c", topic, deliver_at=T0 + 12 * SECOND),
            message("d", topic, deliver_at=T0 + 13 * SECOND),
        ),
        advance(T0 + SECOND),
        program.works(),
        advance(T0 + 2 * SECOND),
        program.works("b"),
        advance(T0 + 11 * SECOND),
        restart(),
        advance(T0 + 13 * SECOND),
        program.works("b", leaves=True),
        advance(T0 + 16 * SECOND),
        restart(),
        program.works(),
        advance(T0 + 75 * SECOND),
        program.works(),
        check(after),
    ]


def examples() -> list[str]:
    """The blocks of the guide in which a stream settles, and in which rows are appended."""
    page = (ROOT / "docs" / "guide.md").read_text(encoding="utf-8")
    return [each for each in BLOCK.findall(page) if "DIR/deliveries" in each and "billing" in each]


def typed(number: int, topic: str) -> Step:
    """Run a block to its end, with the warehouse's folder for DIR."""

    def step(world: World) -> None:
        text = examples()[number].replace("DIR", world.warehouse.root).replace("'orders'", f"'{topic}'")
        # What a program leaves running, a test has to end.
        place = f'trigger(availableNow=True).option("checkpointLocation", "{world.warehouse.root}/billing")'
        text = text.replace('option("checkpointLocation", "billing")', place)
        text = re.sub(r"^(deliveries\.writeStream.*\.start\(\))$", r"query = \1", text, flags=re.MULTILINE)
        names: dict[str, Any] = {"spark": session()}
        with patch.dict("sys.modules", {"delayline": public}):
            exec(text, names)  # noqa: S102 - our own page
            query: StreamingQuery | None = names.get("query")
            if query is not None:
                query.awaitTermination()

    return step


def by_streams(topic: str) -> list[Step]:
    """Each block of the guide says once that a delivery failed."""
    assert len(examples()) == 2

    def waits(world: World) -> None:
        assert payloads_open(world, "billing", topic) == {""}
        assert list(standing(world, topic, "billing").open(Condition.WAITING).values()) == [1]

    def came(world: World) -> None:
        assert sorted(received(world, "billing", topic)) == [("", 0), ("", 1), ("17", 0), ("18", 0)]
        assert [row for row in world.rows(REJECTED_SETTLE) if row["topic"] == topic] == []

    return [
        acknowledging(topic, "billing", kind="shared"),
        advance(T0),
        append(message("17", topic), message("18", topic), message("", topic)),
        advance(T0 + SECOND),
        advance(T0 + 2 * SECOND),
        typed(0, topic),
        typed(1, topic),
        advance(T0 + 11 * SECOND),
        check(waits),
        advance(T0 + 75 * SECOND),
        check(came),
    ]


@pytest.fixture(scope="module", params=SHELLS)
def minute(request: pytest.FixtureRequest) -> Played:
    """The run."""
    scripts = {"failing": failing, "late": late, "consuming": consuming, "by streams": by_streams}
    return play_together({name: script(name) for name, script in scripts.items()}, play=request.param)


def test_a_failed_message_comes_again_after_its_delay_until_it_is_acknowledged_or_given_up(minute: Played) -> None:
    """Its position stays what it was, its count grows; a nack counts once, and only for the delivery that it names."""
    minute.shows("failing")


def test_who_acknowledges_late_gets_it_no_more(minute: Played) -> None:
    """What waited for its time does not come."""
    minute.shows("late")


def test_a_consumer_is_handed_each_message_until_it_is_acknowledged_or_given_up(minute: Played) -> None:
    """Over restarts of the stages and of the program; the last failure makes a dead letter."""
    minute.shows("consuming")


def test_a_stream_of_spark_acknowledges_what_it_did_and_gives_back_the_rest(minute: Played) -> None:
    """By calls and by rows that it appends; a delivery that failed twice comes again once."""
    minute.shows("by streams")
