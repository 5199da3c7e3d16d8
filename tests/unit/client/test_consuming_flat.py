"""A process that subscribes and seeks for days keeps no more than one that has just begun."""

from __future__ import annotations

import gc
import weakref
from collections import Counter
from pathlib import Path
from time import sleep
from types import BuiltinFunctionType, FunctionType, ModuleType

import pytest

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

from pipeline.client.choices import ConsumerType
from pipeline.client.consuming.consumer import Consumer
from pipeline.client.consuming.engine import Engine
from pipeline.client.consuming.opening import engine_of, new_consumer
from pipeline.client.consuming.options import ConsumerOptions
from pipeline.client.tables.datarows import DataRows
from pipeline.storage.files import Files
from tests.support.consumed import SUBSCRIPTION, TOPIC, World, drained

_CODE = (ModuleType, type, FunctionType, BuiltinFunctionType)
_BOUNDED = (DataRows, Files)
"""What keeps up to a limit."""


def kept(engine: Engine) -> Counter[str]:
    """The objects that an engine holds, by their types."""
    found, left, seen = Counter[str](), [engine], set[int]()
    while left:
        each = left.pop()
        if id(each) in seen or isinstance(each, (*_CODE, *_BOUNDED)):
            continue
        seen.add(id(each))
        found[type(each).__name__] += 1
        left += gc.get_referents(each)
    return found


def seek(world: World, consumer: Consumer, first: int, last: int) -> None:
    """Lives in which some messages fail and are acknowledged before they come again."""
    for life in range(first, last):
        world.begin_anew(life)
        world.run(6)
        world.dispatch.deliver((1, life), (1, life + 1_000))
        world.run(1)
        messages = drained(consumer)
        assert len(messages) == 2
        consumer.negative_acknowledge(messages[0], 1_000)
        world.run(1)
        for each in messages:
            consumer.acknowledge(each)
        world.run(1)
        world.again()
        world.run(1)


def test_who_seeks_often_keeps_nothing_of_the_lives_that_are_over(tmp_path: Path) -> None:
    """Replays of leases and bitmaps of what was closed stayed for each life, and were folded with each version."""
    world = World(str(tmp_path))
    consumer = world.joined()
    seek(world, consumer, 2, 4)
    before = kept(consumer.engine)
    seek(world, consumer, 4, 8)
    more = kept(consumer.engine) - before
    # Equal numbers are one object or several, as it happens.
    assert not more - Counter(int=7), more


def test_who_subscribes_often_keeps_no_names(tmp_path: Path) -> None:
    """Each name that was ever consumed was asked for with every look at the tables."""
    world = World(str(tmp_path))
    engine = world.joined().engine
    options, found = ConsumerOptions(ConsumerType.Shared, "b"), list[int]()
    for first in (0, 10, 20):
        for number in range(first, first + 5):
            more = new_consumer(engine, [f"{TOPIC}{number}", TOPIC], f"{SUBSCRIPTION}{number}", options)
            world.run(0.4)
            more.close()
        world.run(0.4)
        gc.collect()
        found.append(kept(engine).total())
    assert max(found) - min(found) <= 4, found


def test_an_engine_without_consumers_is_gone(tmp_path: Path) -> None:
    """It kept the rows that it had read, for each warehouse that a process ever had."""
    world = World(str(tmp_path))
    consumer = new_consumer(engine_of(world.root), [TOPIC], SUBSCRIPTION, ConsumerOptions(ConsumerType.Shared, "a"))
    gone = weakref.ref(consumer.engine)
    consumer.close()
    del consumer
    for _ in range(100):
        gc.collect()
        if gone() is None:
            return
        sleep(0.05)
    pytest.fail("the engine is still there")
