"""The client's consumer on top of the stages themselves: what it says is settled, what it gives back comes again."""

from __future__ import annotations

from dataclasses import dataclass, field

from pyspark.sql import SparkSession

from pipeline.client.choices import ConsumerType
from pipeline.client.consuming.consumer import Consumer
from pipeline.client.consuming.consumers import ConsumerOptions, Ends, new_consumer
from pipeline.client.consuming.engine import Engine
from pipeline.client.message import Message
from schemas import INBOX
from tests.support.consumed import SetClock, drained
from tests.support.consuming import acknowledging, payloads_open
from tests.support.stream import Step, World, advance, append, check, message, play, restart

T0 = 1_700_000_000_000
SECOND = 1_000


@dataclass
class Application:
    """A program with a consumer, which works between two instants of the stages."""

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
            self.consumer = new_consumer(self.engine, ["t"], "s", ConsumerOptions(self.kind, "a"), Ends())
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


def test_a_consumer_is_handed_each_message_until_it_is_acknowledged_or_given_up(
    spark: SparkSession, folder: str
) -> None:
    """Over restarts of the stages and of the program; the last failure makes a dead letter."""
    program = Application(ConsumerType.Shared)

    def after(world: World) -> None:
        assert program.got == [("a", 0), ("b", 0), ("c", 0), ("b", 1), ("d", 0)]
        assert payloads_open(world) == set()
        letters = [row for row in world.rows(INBOX) if row["topic"] == "t-s-DLQ"]
        assert [bytes(row["payload"]) for row in letters] == [b"b"]

    play(
        spark,
        folder,
        [
            acknowledging("t", "s", kind="shared", max_redeliveries=1),
            advance(T0),
            append(
                message("a"),
                message("b"),
                message("c", deliver_at=T0 + 4 * SECOND),
                message("d", deliver_at=T0 + 5 * SECOND),
            ),
            advance(T0 + SECOND),
            program.works(),
            advance(T0 + 2 * SECOND),
            program.works("b"),
            advance(T0 + 3 * SECOND),
            restart(),
            advance(T0 + 5 * SECOND),
            program.works("b", leaves=True),
            restart(),
            advance(T0 + 8 * SECOND),
            program.works(),
            advance(T0 + 9 * SECOND),
            program.works(),
            check(after),
        ],
    )
