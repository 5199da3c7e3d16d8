"""Messages that are due at one instant, and a consumer that sees when their records come, and in which order."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Any

import confluent_kafka
import numpy as np
import pyarrow as pa

from pipeline.delta.deltars import append, arrow_of, arrow_schema, open_table
from schemas import DELIVERIES, INBOX

_ROWS, _KEYS, _PAYLOAD = 50_000, 10_000, 100
_MANY, _POLL_S, _NUMBER = 10_000, 0.05, 8


def send(root: str, topic: str, begin: int, count: int, due_ms: int) -> None:
    """Append messages with numbers from `begin` on, all due at one instant; a number is the head of its payload."""
    random, schema = np.random.default_rng(7), arrow_schema(INBOX)
    for first in range(begin, begin + count, _ROWS):
        numbers = np.arange(first, min(first + _ROWS, begin + count))
        content = random.integers(0, 256, (len(numbers), _PAYLOAD), dtype=np.uint8)
        content[:, :_NUMBER] = numbers.astype("<i8").view(np.uint8).reshape(-1, _NUMBER)
        payload = pa.FixedSizeBinaryArray.from_buffers(
            pa.binary(_PAYLOAD), len(numbers), [None, pa.py_buffer(content.tobytes())]
        )
        made = {
            "topic": pa.repeat(topic, len(numbers)),
            "message_key": pa.array([f"k{number % _KEYS}" for number in numbers.tolist()]),
            "publish_time": pa.array(np.full(len(numbers), time.time_ns() // 1_000)),
            "deliver_at": pa.array(np.full(len(numbers), due_ms * 1_000)),
            "payload": payload,
        }
        columns = [made.get(each.name, pa.nulls(len(numbers))).cast(each.type) for each in schema]
        append(root, INBOX, pa.table(columns, schema=schema))


class Came:
    """What a consumer of some partitions was shown, in its order."""

    def __init__(self, partitions: int) -> None:
        self.count, self.last_ms = 0, 0
        self._heads: list[list[bytes]] = [[] for _ in range(partitions)]

    def add(self, messages: list[Any], at_ms: int) -> None:
        """Records that came together."""
        for message in messages:
            if message.error() is None:
                self._heads[message.partition()].append(message.value()[:_NUMBER])
        self.count, self.last_ms = sum(map(len, self._heads)), at_ms

    def figures(self, root: str, begin: int, count: int, due_ms: int) -> dict[str, Any]:
        """When the last one came after the instant, s, and what of `count` numbers from `begin` on was wrong.

        `disordered` is how many records came before one that is before them in `deliveries`, within a partition.
        """
        parts = [np.frombuffer(b"".join(heads), "<i8") for heads in self._heads]
        parts = [part[part >= begin] - begin for part in parts]
        seen = np.bincount(np.concatenate(parts), minlength=count)
        rank = np.empty(count, np.int64)
        rank[_delivered(root, begin)] = np.arange(count)
        return {
            "seconds": round((self.last_ms - due_ms) / 1_000, 1),
            "lost": int((seen == 0).sum()),
            "twice": int((seen > 1).sum()),
            "disordered": sum(int((np.diff(rank[part]) < 0).sum()) for part in parts),
        }


def _delivered(root: str, begin: int) -> Any:  # noqa: ANN401 - an array of numbers
    """The numbers from `begin` on, in the order of `deliveries`."""
    rows = arrow_of("SELECT payload FROM t ORDER BY batch_id, sequence", t=open_table(root, DELIVERIES))
    heads = b"".join(each[:_NUMBER] for each in rows.column("payload").to_pylist())
    numbers = np.frombuffer(heads, "<i8")
    return numbers[numbers >= begin] - begin


@contextmanager
def consume(servers: str, topic: str, partitions: int) -> Iterator[Came]:
    """Look at a topic while the block runs."""
    options = {"bootstrap.servers": servers, "group.id": "look", "enable.auto.commit": False, "log_level": 0}
    consumer = confluent_kafka.Consumer({**options, "isolation.level": "read_committed", "fetch.wait.max.ms": 20})
    consumer.assign([confluent_kafka.TopicPartition(topic, number, 0) for number in range(partitions)])
    came, ended = Came(partitions), Event()

    def look() -> None:
        while not ended.is_set():
            if found := consumer.consume(_MANY, _POLL_S):
                came.add(found, time.time_ns() // 1_000_000)

    thread = Thread(target=look, daemon=True)
    thread.start()
    try:
        yield came
    finally:
        ended.set()
        thread.join()
        consumer.close()
