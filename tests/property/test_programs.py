"""Programs that use the client in any way, against a plain model: each message is settled once, and nobody waits on.

Programs, consumers, listeners, loops, seeks, more partitions, patterns, types made anew, deaths and `close` from
anywhere come in any order, on the stages as they are (`tests.support.programs`). The model (`tests.support.programmed`)
says of each message that was handed out whether it may come: it is for that life of the subscription, it was not
settled before, it comes again only if it failed or somebody is gone, and keys keep their order. At the end each message
of each subscription was handed out and is settled, and no thread of the client is left.
"""

from __future__ import annotations

import asyncio
import re
import sys
import threading
import time
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

pytest.importorskip("pyspark", reason="the stages are made for sessions of Spark")
pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")

from pipeline.client import aio
from pipeline.client.choices import ConsumerType, InitialPosition
from pipeline.client.consuming.consumer import Consumer
from pipeline.client.exceptions import (
    ConsumerBusy,
    SubscriptionNotFound,
    Timeout,
    TopicNotFound,
)
from pipeline.client.insight.standing import standings
from pipeline.client.message import Message, MessageId
from pipeline.client.subscribing.topics import create_partitioned_topic
from pipeline.config.errors import AlreadySubscribed
from tests.support.consumer_ways import GONE, SLACK_S, say, take, timed, work
from tests.support.programmed import Ledger
from tests.support.programs import LONGEST_S, Panic, Program, Programs, Taker

TOPICS = ("a", "p", "x-0", "x-1", "x-2")
SPECS: tuple[Any, ...] = ("a", "p", ["a", "x-0"], re.compile("x-.*"))
NAMES = ("s", "t")
KINDS = tuple(ConsumerType)
NUMBERS = st.integers(0, 999)
_MOST_EXAMPLES = 60


class Machine(RuleBasedStateMachine):
    """Draws what programs do."""

    @initialize()
    def begin(self) -> None:
        """A warehouse with a partitioned topic, and one program."""
        self.threads = set(threading.enumerate())
        self.folder = mkdtemp()
        self.world = Programs(Path(self.folder, "warehouse"))
        create_partitioned_topic(self.world.root, "p", 1)
        self.partitions, self.sent = 1, 0
        self.unknown = set[str]()
        self.world.begin()
        self.send(0, 0, 2, 0)

    def program(self, number: int) -> Program:
        """One that lives."""
        alive = self.world.alive or [self.world.begin()]
        return alive[number % len(alive)]

    def taker(self, number: int) -> Taker | None:
        """A consumer that somebody has."""
        takers = self.world.takers
        return takers[number % len(takers)] if takers else None

    # ---- producers

    @rule(who=NUMBERS, topic=NUMBERS, count=st.integers(1, 3), how=st.integers(0, 3))
    def send(self, who: int, topic: int, count: int, how: int) -> None:
        """A program sends messages, which it knows to be in the log then."""
        program, name = self.program(who), TOPICS[topic % len(TOPICS)]
        if name not in program.producers:
            program.producers[name] = program.client.create_producer(name)
        producer, answers = program.producers[name], list[Any]()
        for _ in range(count):
            self.sent += 1
            key, delay = f"k{self.sent % 2}", (self.sent * 7 % 5) * 400
            content, at = b"%d" % self.sent, self.world.instant + delay
            if how == 0:
                timed(partial(producer.send, content, partition_key=key), 0)
            elif how == 1:
                asyncio.run(aio.Producer(producer, blocks=True).send(content, partition_key=key, deliver_at=at))
            else:
                ends = _ending(answers, SystemExit if how == 3 else Panic)
                producer.send_async(content, ends, partition_key=key, deliver_at=at if how == 2 else None)
        timed(producer.flush, 0)
        assert how < 2 or len(answers) == count

    # ---- consumers

    @rule(who=NUMBERS, spec=NUMBERS, name=NUMBERS, kind=NUMBERS, latest=st.booleans(), listens=st.integers(0, 6))
    def subscribe(self, who: int, spec: int, name: int, kind: int, *, latest: bool, listens: int) -> None:
        """A program consumes topics, by itself or with a listener, which does all sorts of things."""
        program, asked = self.program(who), SPECS[spec % len(SPECS)]
        subscription, consumer_type = NAMES[name % len(NAMES)], KINDS[kind % len(KINDS)]
        known = [life.kind for (_, each), life in self.world.lives.items() if each == subscription]
        if known and who % 4:
            consumer_type = ConsumerType(known[0])
        self.world.round()
        ends = self.world.ends() if latest else {}
        siblings = {topic for topic, each in self.world.lives if each == subscription and topic.startswith("p-")}
        box = Future[Taker]()
        how: dict[str, Any] = {"tick_ms": 1, "negative_ack_redelivery_delay_ms": 800}
        how["receiver_queue_size"] = 3 if who % 2 else 1_000
        how["initial_position"] = InitialPosition.Latest if latest else InitialPosition.Earliest
        if listens > 3:
            how["message_listener"] = partial(self.listen, box, listens)
        make = partial(program.client.subscribe, asked, subscription, consumer_type, **how)
        made = self.world.wait_for(make, AlreadySubscribed, ConsumerBusy, TopicNotFound, Timeout)
        if isinstance(made, Consumer):
            box.set_result(Taker(program, made, subscription, listens > 3))
            program.takers.append(box.result())
        else:
            box.cancel()

        def start(found: tuple[str, str]) -> tuple[int, int]:
            return (0, 0) if found[0].startswith("p-") and siblings else ends.get(found[0], (0, 0))

        self.world.look(start)
        if isinstance(made, ConsumerBusy):
            assert ConsumerType.Exclusive.value in known

    def listen(self, box: Future[Taker], way: int, consumer: Consumer, message: Message) -> None:
        """What a listener does with a message."""
        taker = box.result(LONGEST_S)
        self.world.got(taker, message)
        number = int(message.data())
        if number % 3 == 0 or taker.program.dead:
            return
        if number % 3 == 1:
            self.world.acknowledge(taker, message)
            return
        if way == 6 and not taker.over:
            self.world.left([taker], consumer.close)
        raise (ValueError, SystemExit, Panic)[way % 3]

    @rule(who=NUMBERS, way=st.integers(0, 5), count=st.integers(1, 4), then=st.integers(0, 5))
    def receive(self, who: int, way: int, count: int, then: int) -> None:
        """A program takes what there is, and says something of it."""
        self.world.step()
        if (taker := self.taker(who)) is None or taker.listens:
            return
        try:
            take(self.world, taker, way, count)
        except GONE:
            assert taker.gone
            return
        say(self.world, taker, then)

    @rule(who=NUMBERS, then=st.integers(0, 6))
    def speak(self, who: int, then: int) -> None:
        """A program says something of what it has held for some time."""
        if (taker := self.taker(who)) is not None:
            say(self.world, taker, then)

    # ---- time, and ends

    @rule(steps=st.integers(1, 5), pays=st.booleans())
    def go_on(self, steps: int, *, pays: bool) -> None:
        """Time goes on."""
        self.world.step(steps)
        (self.world.settle if pays else self.world.round)()

    @rule(who=NUMBERS, way=st.integers(0, 4))
    def end(self, who: int, way: int) -> None:
        """A consumer, a program or a process ends, or stands still."""
        taker, program = self.taker(who), self.program(who)
        if way == 0 and taker is not None:
            self.world.leave([taker], taker.consumer.close)
        elif way == 1 and taker is not None and not taker.listens:
            self.world.forget(taker)
        elif way == 2:
            self.world.leave(program.takers, partial(asyncio.run, program.aio.close()))
            program.dead = True
        elif way == 3:
            self.world.die(program)
        else:
            self.world.stall(program, 40)

    @rule(who=NUMBERS, closes=st.booleans())
    def wait(self, who: int, *, closes: bool) -> None:
        """Who waits without a limit is told when its consumer is closed, or its subscription is ended."""
        if (taker := self.taker(who)) is None or taker.listens:
            return
        box = list[object]()

        def waits() -> None:
            try:
                while True:
                    self.world.got(taker, taker.consumer.receive())
            except GONE as error:
                box.append(error)

        thread = threading.Thread(target=waits, daemon=True)
        thread.start()
        if closes:
            self.world.leave([taker], taker.consumer.close)
        else:
            self.unsubscribe(who)
            self.world.step(16)
        thread.join(LONGEST_S)
        assert box, f"{taker.consumer.topic()}: who receives waits without an end"

    # ---- changes

    @rule(who=NUMBERS)
    def unsubscribe(self, who: int) -> None:
        """A subscription is ended while others may consume it."""
        if (taker := self.taker(who)) is not None:
            self.world.leave([taker], taker.consumer.unsubscribe, SubscriptionNotFound)
            self.world.look(lambda _: (0, 0))

    @rule(who=NUMBERS, where=st.integers(0, 3))
    def seek(self, who: int, where: int) -> None:
        """A subscription begins anew somewhere."""
        if (taker := self.taker(who)) is None or not taker.program.turns:
            return
        self.world.round()
        places: list[Any] = [MessageId.earliest, MessageId.latest, 0]
        places += [each.message_id() for each in taker.held[:1]]
        self.world.wait_for(partial(taker.consumer.seek, places[where % len(places)]), *GONE, Timeout)
        self.world.look(lambda _: (0, 0))

    @rule(who=NUMBERS, more=st.booleans())
    def grow(self, who: int, *, more: bool) -> None:
        """A topic gets partitions, and a program looks for what is new."""
        if more and self.partitions < 3:
            self.partitions += 1
            create_partitioned_topic(self.world.root, "p", self.partitions)
        self.refresh(self.program(who))
        self.world.look(lambda _: (0, 0))

    def refresh(self, program: Program) -> None:
        """A program looks for what is new. A type that differs keeps nothing else away."""
        with suppress(AlreadySubscribed, TopicNotFound):
            program.client.refresh_topics()

    # ---- the end

    def teardown(self) -> None:
        """Each message of each subscription is settled, and nothing is left of the programs."""
        if not hasattr(self, "world"):
            return
        try:
            if sys.exc_info()[0] is not None:
                return
            self.finish()
            self.world.close()
            left = threads_left(self.threads)
            assert not left, left
        finally:
            self.world.close()
            rmtree(self.folder)

    def finish(self) -> None:
        """Whoever is there works until all is done."""
        world = self.world
        for program in world.alive:
            program.stalled = 0
            self.refresh(program)
        world.look(lambda _: (0, 0))
        world.step(45)
        world.round()
        world.look(lambda _: (0, 0))
        ledger = Ledger(world.root)
        assert sorted(int(each.payload) for each in ledger.messages) == list(range(1, self.sent + 1))
        missing: dict[object, object] = {}
        for _ in range(60):
            before = world.notes.last
            self.help_out()
            for taker in world.takers:
                work(self.world, taker)
            world.settle()
            missing = {
                name: left
                for name, life in world.lives.items()
                if (left := {each.place for each in life.wanted(ledger)} - world.notes.acked(life))
            }
            if not missing:
                break
            world.notes.wait_for_more(before, 0.01)
        assert not missing, (missing, [each.describe() for each in world.takers])
        world.settle()
        open_ = [each for each in standings(world.root) if each.outstanding or each.waiting]
        assert not open_, open_
        world.notes.check(world.every, ledger)

    def help_out(self) -> None:
        """Another program consumes what nobody consumes; a listener may have closed its consumer at any time."""
        world = self.world
        there = {(topic, taker.subscription) for taker in world.takers for topic in taker.topics}
        lonely = [life for name, life in world.lives.items() if name not in there]
        if not lonely:
            return
        program = world.begin()
        for life in lonely:
            topic, subscription = life.name
            made = world.wait_for(partial(program.client.subscribe, topic, subscription, ConsumerType(life.kind)))
            assert isinstance(made, Consumer)
            program.takers.append(Taker(program, made, subscription))


def _ending(answers: list[Any], error: type[BaseException]) -> Any:  # noqa: ANN401 - a callback
    def callback(*result: object) -> None:
        answers.append(result)
        raise error

    return callback


def threads_left(before: set[threading.Thread]) -> list[threading.Thread]:
    """The threads of the client that do not end."""
    ends = time.monotonic() + SLACK_S
    threads = [each for each in set(threading.enumerate()) - before if each.name.startswith("delayline")]
    for each in threads:
        each.join(max(0, ends - time.monotonic()))
    return [each for each in threads if each.is_alive()]


def test_each_message_is_settled_once_whatever_programs_do() -> None:
    """And keys keep their order, and nobody waits without an end.

    The profile `soak` takes two minutes of processor time.
    """
    examples = min(settings().max_examples // 25, _MOST_EXAMPLES)
    quiet = patch("logging.Logger.exception"), patch("logging.Logger.warning")
    with quiet[0], quiet[1]:
        run_state_machine_as_test(Machine, settings=settings(stateful_step_count=20, max_examples=examples))
