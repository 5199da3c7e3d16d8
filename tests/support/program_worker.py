"""A program that sends, consumes and ends in one of many ways.

`python -m tests.support.program_worker ROOT NOTES SEED`: each line of the file NOTES is `sent`, `got`, `ack` or
`closed`, the topic, the payload, and the time (ms). It is written when a call has returned, `ack` before it is made.
The exit code is the one that the seed asks for.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import random
import sys
import threading
import time
from functools import partial
from pathlib import Path

from pipeline.client import aio
from pipeline.client.choices import ConsumerType
from pipeline.client.client import Client
from pipeline.client.consuming.consumer import Consumer
from pipeline.client.exceptions import AlreadyClosed, OperationNotSupported, Timeout
from pipeline.client.message import Message
from pipeline.config.wallclock import wall_ms

ENDS = ("closes", "exits", "raises", "aborts", "listener", "forks", "pool")
"""How a program ends, by its seed; others are killed while they work."""
CODES = {"exits": 3, "raises": 1, "aborts": 7}
_TURNS, _LIMIT_S = 12, 30


class Notes:
    """A file whose lines are there when the next thing happens."""

    def __init__(self, path: Path) -> None:
        """Append to it."""
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def __call__(self, word: str, topic: str, what: object) -> None:
        """Note something."""
        os.write(self._file, f"{word} {topic} {what} {wall_ms()}\n".encode())


def ending(seed: int) -> str:
    """How the program with a seed ends."""
    return ENDS[seed % len(ENDS)]


def acknowledge(notes: Notes, consumer: Consumer, message: Message) -> None:
    """Settle a message; three of ten fail once."""
    notes("got", message.topic_name(), f"{message.data().decode()}/{message.redelivery_count()}")
    if message.redelivery_count() == 0 and int(message.data().split(b"-")[-1]) % 10 < 3:
        consumer.negative_acknowledge(message, 200)
        return
    notes("ack", message.topic_name(), message.data().decode())
    consumer.acknowledge(message)


def listen(notes: Notes, consumer: Consumer, message: Message) -> None:
    """A listener that settles, and then raises what it likes."""
    acknowledge(notes, consumer, message)
    raise (SystemExit, KeyboardInterrupt, ValueError)[message.message_id().position[1] % 3]


def work(client: Client, notes: Notes, chance: random.Random, seed: int) -> None:
    """Send and consume for some turns."""
    kind = (ConsumerType.Shared, ConsumerType.KeyShared, ConsumerType.Failover)[seed % 3]
    name, listener = f"s{seed % 3}", partial(listen, notes) if ending(seed) == "listener" else None
    consumer = client.subscribe("t", name, kind, tick_ms=1, negative_ack_redelivery_delay_ms=200,
                                message_listener=listener)  # fmt: skip
    producer = client.create_producer("t")
    for turn in range(_TURNS):
        payload = f"{seed}-{turn}"
        producer.send(payload.encode(), partition_key=f"k{chance.randrange(3)}")
        notes("sent", "t", payload)
        if listener is not None:
            time.sleep(0.1)
            continue
        begun = time.monotonic()
        try:
            while True:
                acknowledge(notes, consumer, consumer.receive(100))
        except Timeout:
            assert time.monotonic() - begun < _LIMIT_S


async def in_a_loop(root: str, notes: Notes) -> None:
    """The same with a loop, whose calls are cancelled now and then."""
    async with aio.Client(root) as client:
        consumer = await client.subscribe("t", "s0", ConsumerType.Shared)
        for _ in range(20):
            try:
                message = await asyncio.wait_for(consumer.receive(), 0.05)
            except TimeoutError:
                continue
            notes("got", "t", f"{message.data().decode()}/{message.redelivery_count()}")
            notes("ack", "t", message.data().decode())
            await consumer.acknowledge(message)


def child_of(client: Client) -> None:
    """A child made by `fork` is told that it has no client, and ends."""
    try:
        client.create_producer("t")
    except OperationNotSupported:
        sys.exit(5)
    sys.exit(6)


def forked(client: Client) -> None:
    """One that uses the client, one that only ends, and one that waits for nothing."""
    pid = os.fork()
    if pid == 0:
        child_of(client)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 5
    pid = os.fork()
    if pid == 0:
        sys.exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def square(number: int) -> int:
    """What a pool does."""
    return number * number


def pooled(root: str) -> None:
    """Pools of both kinds, beside a client."""
    for kind in ("fork", "spawn"):
        with multiprocessing.get_context(kind).Pool(2) as pool:
            assert pool.map_async(square, range(5)).get(_LIMIT_S) == [0, 1, 4, 9, 16]
    process = multiprocessing.get_context("spawn").Process(target=sends, args=(root,))
    process.start()
    process.join(_LIMIT_S)
    assert process.exitcode == 0


def sends(root: str) -> None:
    """A process made by `spawn` has a client of its own."""
    with Client(root) as client:
        client.create_producer("other").send(b"1")


def main(root: str, path: str, number: str) -> None:
    """Work, and end as the seed says."""
    notes, seed = Notes(Path(path)), int(number)
    client = Client(root)
    work(client, notes, random.Random(seed), seed)  # noqa: S311 - a program that repeats itself
    match ending(seed):
        case "exits":
            late = client.create_producer("t")
            late.send_async(f"{seed}-90".encode(), None)
            notes("sent", "t", f"{seed}-90")
            sys.exit(CODES["exits"])
        case "raises":
            raise ValueError(number)
        case "aborts":
            os._exit(CODES["aborts"])
        case "forks":
            forked(client)
        case "pool":
            pooled(root)
            asyncio.run(in_a_loop(root, notes))
    client.close()
    notes("closed", "t", seed)
    left = [each.name for each in threading.enumerate() if each.name.startswith("delayline")]
    ends = time.monotonic() + _LIMIT_S
    while left and time.monotonic() < ends:
        time.sleep(0.05)
        left = [each.name for each in threading.enumerate() if each.name.startswith("delayline")]
    assert not left, left
    try:
        client.create_producer("t")
    except AlreadyClosed:
        return
    raise AssertionError


if __name__ == "__main__":
    main(*sys.argv[1:])
