"""The engine of a process for a warehouse: one follower for each table, one writer, two threads, for all consumers."""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from pipeline.client.clock import Clock, Pace
from pipeline.client.consuming.consumerlistener import Worker
from pipeline.client.consuming.options import ConsumerOptions
from pipeline.client.consuming.sessionlocks import SessionLocks
from pipeline.client.consuming.slotfetcher import Logs
from pipeline.client.consuming.topicconsumer import TopicConsumer
from pipeline.client.consuming.writer import EventWriter
from pipeline.client.exceptions import AlreadyClosed
from pipeline.client.tables.job import JobWatch
from pipeline.client.tables.logs import ClosedLog, CursorLog, LeaseLog, RegistryLog
from pipeline.client.tables.tail import DeliveryLog
from pipeline.config.paths import local_path, one_spelling
from pipeline.config.threads import end_at_exit, errors_logged, panics_raised
from pipeline.storage.files import Files
from pipeline.storage.waiting import Folders
from schemas import DELIVERIES

_LOG = logging.getLogger(__name__)
_BUSY_S, _IDLE_S, _LEAST_S, _SLOWER = 0.05, 1.0, 0.002, 1.5
"""Between two turns: usually; where looking is a request and nothing happens; at least. There each pause is so many
times as long as the one before, from when an application begins to wait."""


class Engine:
    """Turns all consumers of a warehouse in this process. Tests turn it themselves.

    Attributes:
        root: where the warehouse lies.
        clock: the clock that leases and timeouts count by.
        logs: what its consumers share.
        listening: what gives messages of its consumers to listeners, while somebody has it.
    """

    def __init__(self, root: str, clock: Clock | None = None) -> None:
        """Look how far the tables are.

        Raises:
            FileNotFoundError: the folder has no such tables.
        """
        files, self.clock = Files(), clock or Clock()
        self._writer = EventWriter(root, self.clock)
        # `closed` before `cursors`: what settle closes in between is in both.
        closed = ClosedLog(root, files)
        self.logs = Logs(
            self.clock,
            DeliveryLog(root, files),
            CursorLog(root, files),
            closed,
            LeaseLog(root, files),
            self._writer,
            RegistryLog(root, files),
            Pace(self.clock),
            SessionLocks(root),
        )
        self.root = root
        self._watch = JobWatch(root, _LOG.warning)
        self._topic_consumers: list[TopicConsumer] = []
        self._forgotten = deque[TopicConsumer]()
        self.listening = weakref.WeakSet[Worker]()
        self._lock = threading.RLock()
        self._demand = threading.Event()
        self._ended = threading.Event()
        self._started = self._owes = False
        self._threads: list[threading.Thread] = []
        self._folders: Folders | None = None

    @contextmanager
    def between_turns(self) -> Iterator[None]:
        """Nothing turns while the block runs; it may add consumers."""
        with self._lock:
            yield

    def add(self, topic: str, subscription: str, options: ConsumerOptions, lock: threading.Condition) -> TopicConsumer:
        """A consumer of a topic, from the next turn on."""
        topic_consumer = TopicConsumer(self.logs, topic, subscription, options, lock)
        with self._lock:
            self._topic_consumers.append(topic_consumer)
            if self._started and self.ended:
                self.start()
        return topic_consumer

    def remove(self, topic_consumers: Iterable[TopicConsumer]) -> None:
        """Consumers leave; what they said last is appended before this returns, for all who leave meanwhile at once.

        Raises:
            DelaylineError: it cannot be appended.
        """
        with self._lock:
            for topic_consumer in topic_consumers:
                if topic_consumer in self._topic_consumers:
                    topic_consumer.leave()
                    self._topic_consumers.remove(topic_consumer)
        # The other consumers do not wait for the store.
        self._say_last()
        with self._lock:
            self._end_if_alone()

    def forget(self, topic_consumers: Iterable[TopicConsumer]) -> None:
        """Consumers are gone without a word: the next turn gives up their slots.

        Takes no lock: a collector of garbage calls it, in whichever thread.
        """
        self._forgotten.extend(topic_consumers)

    def _let_go(self) -> None:
        while self._forgotten:
            topic_consumer = self._forgotten.popleft()
            if topic_consumer in self._topic_consumers:
                topic_consumer.leave()
                self._topic_consumers.remove(topic_consumer)
                if not self._topic_consumers:
                    self._say_last()
                    self._end_if_alone()

    def _say_last(self) -> None:
        """Append what was said; what the store does not take now the threads append later, and end then."""
        try:
            self._writer.flush(at_once=True)
        except Exception:
            self._owes = True
            raise

    def _end_if_alone(self) -> None:
        if not self._topic_consumers:
            self._ended.set()
            self._demand.set()

    @property
    def ended(self) -> bool:
        """Whether its last consumer is gone, so that nothing turns any more."""
        return self._ended.is_set()

    def turn(self) -> bool:
        """Read what is new, let each consumer do what is to be done, append what they say; whether anything was.

        Once threads do it, another one appends.

        Raises:
            Exception: what kept one of the consumers from its turn; the others had theirs.
        """
        logs = self.logs
        with self._lock:
            self._let_go()
            # Another one is first each time: it has the time to read.
            self._topic_consumers = self._topic_consumers[1:] + self._topic_consumers[:1]
            news = logs.begin_turn({each.named for each in self._topic_consumers})
            failed: list[Exception] = []
            for topic_consumer in list(self._topic_consumers):
                try:
                    with panics_raised():
                        topic_consumer.turn()
                except Exception as error:  # noqa: BLE001 - the others go on
                    failed.append(error)
            needed = [upto for each in self._topic_consumers if (upto := each.oldest) is not None]
            keys = {key for each in self._topic_consumers if (key := each.key) is not None}
            logs.end_turn(min(needed, default=logs.deliveries.last), keys)
            wrote = self._writer.begin() if self._started else self._writer.flush()
            if self._owes and not wrote:
                self._owes = False
                self._end_if_alone()
            if failed:
                raise failed[0]
            return wrote or news

    def catch_up(self) -> bool:
        """Do all that is to be done now, in this thread, and append what consumers say; whether there was anything.

        Raises:
            DelaylineError: what was said cannot be appended.
            Exception: as for `turn`.
        """
        news = self.turn()
        return self._writer.flush(at_once=True) or news

    def close(self) -> None:
        """End, whoever has consumers: what they said is appended, and the threads have ended, unless this is one.

        Raises:
            DelaylineError: what was said cannot be appended.
        """
        try:
            self.remove(list(self._topic_consumers))
        finally:
            self._ended.set()
            self.wake()
            self._writer.given.set()
            for thread in self._threads:
                if thread is not threading.current_thread():
                    thread.join(_IDLE_S)

    @property
    def is_at_rest(self) -> bool:
        """Whether its listeners are done with all that they could be given."""
        return all(each.is_at_rest for each in list(self.listening))

    @property
    def next_timeout(self) -> int | None:
        """When an acknowledgement of a message is waited for no longer, by the clock of timeouts, ms; None: never."""
        with self._lock:
            ends = [each.next_timeout for each in self._topic_consumers]
        return min((each for each in ends if each is not None), default=None)

    # ---- the threads

    def start(self) -> None:
        """Turn in a thread from now on, and append in another one, until the last consumer is gone."""
        with self._lock:
            self._started, self._ended, self._threads = True, threading.Event(), []
            for work, name in ((self._run, "delayline-consumers"), (self._writer.run, "delayline-consumer-events")):
                thread = threading.Thread(target=self._serve, args=(work, self._ended), name=name, daemon=True)
                end_at_exit(thread, self._ended, self._demand, self._writer.given)
                self._threads.append(thread)
                thread.start()

    def _serve(self, work: Callable[[threading.Event], None], ended: threading.Event) -> None:
        """Do the work of a thread. When it dies, nobody waits for what it would have done."""
        try:
            work(ended)
        except BaseException as error:  # noqa: BLE001 - whatever it is; panics of delta-rs, too
            _LOG.exception("the consumers of this process end; whoever subscribes again gets new ones")
            ended.set()
            self._demand.set()
            for topic_consumer in list(self._topic_consumers):
                topic_consumer.fail(AlreadyClosed(f"consumer: {error!r} ended its thread; it"))

    def wake(self) -> None:
        """An application waits for a message."""
        if not self._demand.is_set():
            self._demand.set()
            if (folders := self._folders) is not None:
                folders.wake()

    def _run(self, ended: threading.Event) -> None:
        near = local_path(one_spelling(self.root))
        if near is None:
            self._turn_by_pauses(ended)
            return
        self._folders = folders = Folders([f"{near}/{DELIVERIES.name}/_delta_log"])
        try:
            while not ended.is_set():
                self._demand.clear()
                folders.state()
                self._try_turn(ended)
                ended.wait(_LEAST_S)
                self._wait(folders)
        finally:
            folders.close()

    def _turn_by_pauses(self, ended: threading.Event) -> None:
        pause = _BUSY_S
        while not ended.is_set():
            self._demand.clear()
            busy = self._try_turn(ended)
            pause = min(_BUSY_S if busy else _IDLE_S, pause * _SLOWER)
            if self._demand.wait(pause):
                pause = _BUSY_S

    def _try_turn(self, ended: threading.Event) -> bool:
        with errors_logged(_LOG, "a turn of the consumers failed; it is tried again", ended, _IDLE_S):
            news = self.turn()
            self._watch.look(news=news)
            return news
        return False

    def _wait(self, folders: Folders) -> None:
        """Wait for something new, or for an application that waits, but not for long: leases and timeouts have time."""
        until = time.monotonic() + _BUSY_S
        while not self._demand.is_set() and (left := until - time.monotonic()) > 0 and not folders.wait(left):
            pass
