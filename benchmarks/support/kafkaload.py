"""A load for Kafka: records that say when they are due, and a consumer that sees how late they come."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Any

import confluent_kafka
import numpy as np

_QUIET = {"log_level": 0}
_STEP_S, _POLL_S, _MANY = 0.05, 0.2, 2_000
_AROUND_S = 15.0
"""So long after a restart the broker elects leaders and ends transactions; what is due meanwhile is told apart."""
_PAYLOAD = bytes(100)


class Load:
    """Records at a rate, each due after a delay drawn evenly from a range."""

    def __init__(self, servers: str, rate: int, seconds: int, delays_s: tuple[float, float]) -> None:
        """Draw the delays, always the same ones."""
        self.servers, self._rate = servers, rate
        self._delays = np.random.default_rng(7).uniform(*delays_s, rate * seconds)
        self.due_ms = np.zeros(rate * seconds, np.int64)
        self.sent = 0

    @property
    def last_due_s(self) -> float:
        """When the last of those that were sent is due, Unix time."""
        return float(self.due_ms.max()) / 1_000

    @contextmanager
    def sending(self, topic: str) -> Iterator[None]:
        """Send while the block runs, and to the end."""
        thread = Thread(target=self._send, args=(topic,), daemon=True)
        thread.start()
        yield
        thread.join()

    def _send(self, topic: str) -> None:
        # A broker that is killed may have written what it did not confirm; it knows that when it is sent again.
        options = {"bootstrap.servers": self.servers, "enable.idempotence": True, "linger.ms": 5, **_QUIET}
        producer, begun, waited = confluent_kafka.Producer(options), time.monotonic(), Event()
        while self.sent < len(self._delays):
            until = min(len(self._delays), int((time.monotonic() - begun) * self._rate))
            for number in range(self.sent, until):
                self.due_ms[number] = int((time.time() + self._delays[number]) * 1_000)
                _produce(producer, topic, str(number), _PAYLOAD, {"due": str(self.due_ms[number])})
            self.sent = until
            producer.poll(0)
            waited.wait(_STEP_S)
        producer.flush(60)


def _produce(producer: Any, topic: str, key: str, value: bytes, headers: dict[str, str] | None) -> None:  # noqa: ANN401 - of the client
    while True:
        try:
            producer.produce(topic, value, key, headers=headers)
        except BufferError:
            producer.poll(_POLL_S)
        else:
            return


def fill(servers: str, topic: str, records: int) -> None:
    """Put records into a topic, as fast as it goes."""
    producer = confluent_kafka.Producer({"bootstrap.servers": servers, "linger.ms": 50, **_QUIET})
    drawn = random.Random(7)  # noqa: S311 - the same bytes each time
    payloads = [drawn.randbytes(100) for _ in range(1_000)]
    for number in range(records):
        _produce(producer, topic, str(number), payloads[number % 1_000], None)
        if number % _MANY == 0:
            producer.poll(0)
    producer.flush(120)


class Seen:
    """What a consumer has seen."""

    def __init__(self, load: Load) -> None:
        self._at = np.zeros(len(load.due_ms), np.int64)
        self._times = np.zeros(len(load.due_ms), np.int64)
        self.count = 0

    def add(self, number: int, at_ms: int) -> None:
        """A record."""
        self._times[number] += 1
        if self._times[number] == 1:
            self._at[number], self.count = at_ms, self.count + 1

    def figures(self, load: Load, away_s: float, back_s: float) -> dict[str, Any]:
        """How late they came; those that were due while the broker was away, and shortly after, apart."""
        seen = self._times > 0
        late = (self._at - load.due_ms) / 1_000
        due = load.due_ms / 1_000
        around = seen & (due >= away_s - 1) & (due <= back_s + _AROUND_S)
        rest = late[seen & ~around]
        return {
            "count": self.count,
            "lost": int(load.sent - self.count),
            "twice": int((self._times > 1).sum()),
            "early": int((late[seen] < 0).sum()),
            "p50_s": round(float(np.percentile(rest, 50)), 3),
            "p99_s": round(float(np.percentile(rest, 99)), 3),
            "around": int(around.sum()),
            "around_p99_s": round(float(np.percentile(late[around], 99)), 3) if around.any() else None,
        }


@contextmanager
def consume(load: Load, topic: str, partitions: int) -> Iterator[Seen]:
    """Look at a topic while the block runs."""
    options = {"bootstrap.servers": load.servers, "group.id": "look", "enable.auto.commit": False, **_QUIET}
    consumer = confluent_kafka.Consumer({**options, "isolation.level": "read_committed", "fetch.wait.max.ms": 20})
    consumer.assign([confluent_kafka.TopicPartition(topic, number, 0) for number in range(partitions)])
    seen, ended = Seen(load), Event()

    def look() -> None:
        while not ended.is_set():
            found = consumer.consume(_MANY, _STEP_S)
            now = time.time_ns() // 1_000_000
            for message in found:
                if message.error() is None:
                    seen.add(int(message.key()), now)

    thread = Thread(target=look, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        ended.set()
        thread.join()
        consumer.close()
