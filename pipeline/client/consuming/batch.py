"""The messages of one call of `batch_receive`, and what becomes of them when the call does not end well."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from threading import Condition

import pyarrow as pa

from pipeline.client.checks import checked_count, checked_timeout
from pipeline.client.choices import ConsumerBatchReceivePolicy
from pipeline.client.consuming.received import Owner, Received
from pipeline.client.consuming.topicconsumer import TopicConsumer
from pipeline.client.tables.rows import COLUMNS


class Batch:
    """Messages that were received together, up to the first limit.

    Attributes:
        messages: so far.
    """

    def __init__(
        self, policy: ConsumerBatchReceivePolicy, max_num_messages: int | None, timeout_millis: int | None
    ) -> None:
        """None of them is there yet.

        Args:
            policy: of the consumer.
            max_num_messages: so many at most; None: as the policy says; 0 or a negative number is no limit.
            timeout_millis: waits for so long, from now on; None: as the policy says; a negative number is no limit.

        Raises:
            InvalidConfiguration: a limit is none.
        """
        self.messages = list[Received]()
        self._most = policy.max_num_message if max_num_messages is None else checked_count(max_num_messages)
        self._most_bytes, self._size = policy.max_num_bytes, 0
        asked = checked_timeout("timeout_millis", timeout_millis)
        wait_ms = policy.timeout_ms if asked is None else asked
        self._ends = None if wait_ms < 0 else time.monotonic() + wait_ms / 1_000

    @property
    def has_room(self) -> bool:
        """Whether neither their number nor their size has reached its limit."""
        return not 0 < self._most <= len(self.messages) and not 0 < self._most_bytes <= self._size

    @property
    def left_ms(self) -> int | None:
        """How long to wait for the next one; None: for ever."""
        return None if self._ends is None else max(0, round((self._ends - time.monotonic()) * 1_000))

    def add(self, message: Received) -> None:
        """Another one came."""
        self.messages.append(message)
        self._size += len(message.data())


class Kept:
    """What a consumer has given to calls that did not end well: the application has none of it, and gets it first."""

    def __init__(self, lock: Condition) -> None:
        """Nothing; `lock` guards it."""
        self._lock, self._messages = lock, deque[Received]()

    @contextmanager
    def unless_done(self, batch: Batch) -> Iterator[None]:
        """Keep the messages of a batch when the block does not end well."""
        try:
            yield
        except BaseException:
            with self._lock:
                self._messages.extendleft(reversed(batch.messages))
            raise

    def take(self) -> Received | None:
        """The next one; None: there is none. One that has failed meanwhile comes again. The caller has the lock."""
        while self._messages:
            message = self._messages.popleft()
            if message.consumer.holds(message):
                return message
        return None

    def drop(self, topic_consumers: Collection[Owner]) -> None:
        """Forget those of some topic consumers. The caller has the lock."""
        self._messages = deque(each for each in self._messages if each.consumer not in topic_consumers)


def taken_rows(topic_consumers: Iterable[TopicConsumer], most: int, wanted: int) -> tuple[pa.Table | None, bool]:
    """Some of the rows that wait, None when there are none; and whether fewer than are wanted wait now."""
    tables, left, low = list[pa.Table](), most, False
    for topic_consumer in topic_consumers:
        while left > 0 and (rows := topic_consumer.tracker.take_rows(left)) is not None:
            tables.append(rows.table.select(COLUMNS))
            left -= len(rows)
        low = low or topic_consumer.tracker.queue.size < wanted
    return pa.concat_tables(tables) if tables else None, low
