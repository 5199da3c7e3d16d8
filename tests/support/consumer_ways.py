"""The ways in which programs take messages, and what they say of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

from pipeline.client import aio
from pipeline.client.exceptions import AlreadyClosed, InvalidMessage, SubscriptionNotFound, Timeout
from pipeline.client.message import Message
from pipeline.config.errors import AlreadySubscribed
from tests.support.programs import Programs, Taker

GONE = (SubscriptionNotFound, AlreadySubscribed, AlreadyClosed)
"""What whoever receives is told when there is nothing more to come."""
SLACK_S = 5.0
"""So much later than asked a call may end on a machine that is busy."""
T = TypeVar("T")


def timed(call: Callable[[], T], allowed_s: float = 0) -> T:
    """What a call gives, which takes no longer than it may."""
    begun = time.monotonic()
    try:
        return call()
    finally:
        took = time.monotonic() - begun
        assert took <= allowed_s + SLACK_S, f"{call} took {took} s"


def take(world: Programs, taker: Taker, way: int, count: int) -> None:
    """In one of the ways in which messages can be had."""
    consumer = taker.consumer
    if way == 0:
        with suppress(Timeout):
            for _ in range(count):
                world.got(taker, timed(partial(consumer.receive, 5), 0))
    elif way == 1:
        for each in timed(partial(consumer.batch_receive, count, 5), 0):
            world.got(taker, each)
    elif way == 2:
        world.got_table(taker, timed(partial(consumer.batch_receive_arrow, count, 5), 0))
    else:
        asyncio.run(_in_a_loop(world, taker, way, count))


async def _in_a_loop(world: Programs, taker: Taker, way: int, count: int) -> None:
    """A call that is cancelled takes no message away."""
    looped = aio.Consumer(taker.consumer)
    with suppress(TimeoutError):
        if way == 3:
            for _ in range(count):
                world.got(taker, await asyncio.wait_for(looped.receive(), 0.005))
        else:
            waits = looped.batch_receive(count, 5 if way == 4 else -1)
            for each in await asyncio.wait_for(waits, 0.2 if way == 4 else 0.005):
                world.got(taker, each)
    for each in await looped.batch_receive(999, 0):
        world.got(taker, each)


def say(world: Programs, taker: Taker, then: int) -> None:
    """Acknowledge, give back, or keep."""
    consumer = taker.consumer
    for table in taker.tables if then % 2 else ():
        world.notes.got_table(taker, table, "ack" if then == 1 else "fail")
        (consumer.acknowledge if then == 1 else consumer.negative_acknowledge)(table)
    taker.tables = [] if then % 2 else taker.tables
    if then in (0, 1):
        for each in list(taker.held):
            world.acknowledge(taker, each, by_id=then == 1)
    elif then == 2 and consumer.options.kind.alone and taker.held:
        message = taker.held[-1]
        if message.life == taker.life(message.topic_name()):  # type: ignore[attr-defined]
            done = world.notes.cumulated(taker, message)
            with suppress(InvalidMessage):
                consumer.acknowledge_cumulative(message)
            taker.held = [each for each in taker.held if not _is_of(each, message, done)]
    elif then == 3:
        for each in taker.held:
            world.notes.acknowledged(taker, each, "fail")
            consumer.negative_acknowledge(each, 800)
        taker.held = []
    elif then == 6:
        _fail_all(world, taker)


def _fail_all(world: Programs, taker: Taker) -> None:
    """Whatever a consumer holds comes again."""
    for each in taker.held:
        world.notes.acknowledged(taker, each, "fail")
    for table in taker.tables:
        world.notes.got_table(taker, table, "fail")
    world.notes.lost(world._names([taker]), dies=False)
    taker.consumer.redeliver_unacknowledged_messages()
    taker.held, taker.tables = [], []


def work(world: Programs, taker: Taker) -> None:
    """Settle all that a consumer is handed."""
    for table in taker.tables:
        world.notes.got_table(taker, table, "ack")
        taker.consumer.acknowledge(table)
    taker.tables = []
    try:
        while not taker.listens and (message := taker.consumer.next_message(0)) is not None:
            world.got(taker, message)
        for each in list(taker.held):
            world.acknowledge(taker, each)
    except GONE:
        taker.over = True


def _is_of(message: Message, other: Message, places: set[tuple[int, int]]) -> bool:
    same = (message.topic_name(), message.life) == (other.topic_name(), other.life)  # type: ignore[attr-defined]
    return same and message.message_id().position in places
