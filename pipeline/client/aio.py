"""The client for programs with an event loop. Names are those of `pulsar.asyncio`; what they mean, the client says.

Nothing here blocks the loop. A call that is cancelled takes no message away. Most methods are those of the client, with
its arguments, results and errors.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine
from functools import partial, wraps
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, Unpack

import pyarrow as pa

from pipeline.client import client
from pipeline.client.checks import Closing, checked_timeout
from pipeline.client.consuming import consumer, reader
from pipeline.client.consuming.batch import Batch
from pipeline.client.exceptions import MemoryBufferIsFull, ProducerQueueIsFull
from pipeline.client.message import Message, MessageId
from pipeline.client.options import spelled_out
from pipeline.client.producing import producer
from pipeline.client.producing.producer import How
from pipeline.client.producing.rows import HowProduced
from pipeline.client.schema import BytesSchema, Schema

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

_BYTES = BytesSchema()
_LOOK_S = 0.02
"""Who waits for a message or for room looks so often."""
M_co = TypeVar("M_co", covariant=True)
P = ParamSpec("P")
R = TypeVar("R")
W = TypeVar("W")
C = TypeVar("C", bound=Closing)


class _Wraps(Generic[M_co]):
    """A part of the client, as a program with a loop sees it."""

    def __init__(self, made: M_co) -> None:
        self._made = made


_Async = Callable[Concatenate[_Wraps[M_co], P], Coroutine[Any, Any, R]]
"""A method that is awaited, with the arguments of another one."""


def _in_thread(method: Callable[Concatenate[M_co, P], R]) -> _Async[M_co, P, R]:
    """A method that waits for the store."""

    @wraps(method)
    async def call(self: _Wraps[M_co], /, *args: P.args, **how: P.kwargs) -> R:
        return await asyncio.to_thread(method, self._made, *args, **how)

    return call


class _Making(Generic[C]):
    """Makes a part of the client in a thread, and closes it when nobody waits for it any more.

    A consumer that nobody has would keep its subscription.
    """

    def __init__(self, make: Callable[[], C]) -> None:
        self._make, self._lock = make, Lock()
        self._made: C | None = None
        self._unwanted = False

    async def awaited(self) -> C:
        """What is made."""
        try:
            return await asyncio.to_thread(self._run)
        except asyncio.CancelledError:
            with self._lock:
                self._unwanted, made = True, self._made
            if made is not None:
                # It was there already, and the loop may not wait.
                Thread(target=made.close, name="delayline-unwanted").start()
            raise

    def _run(self) -> C:
        made = self._make()
        with self._lock:
            self._made, unwanted = made, self._unwanted
        if unwanted:
            made.close()
        return made


def _making(method: Callable[Concatenate[M_co, P], C], wrapped: Callable[[C], W]) -> _Async[M_co, P, W]:
    """A method that waits for the store and makes a part of the client, which is wrapped."""

    @wraps(method)
    async def call(self: _Wraps[M_co], /, *args: P.args, **how: P.kwargs) -> W:
        return wrapped(await _Making(partial(method, self._made, *args, **how)).awaited())

    return call


def _awaited(method: Callable[Concatenate[M_co, P], R]) -> _Async[M_co, P, R]:
    """A method that is awaited, as in `pulsar.asyncio`. It waits for nothing, unless it gets an id that `send` gave."""

    @wraps(method)
    async def call(self: _Wraps[M_co], /, *args: P.args, **how: P.kwargs) -> R:
        if any(isinstance(each, MessageId) and each.is_sent for each in (*args, *how.values())):
            return await asyncio.to_thread(method, self._made, *args, **how)
        return method(self._made, *args, **how)

    return call


def _same(method: Callable[Concatenate[M_co, P], R]) -> Callable[Concatenate[_Wraps[M_co], P], R]:
    """A method that waits for nothing, and is not awaited."""

    @wraps(method)
    def call(self: _Wraps[M_co], /, *args: P.args, **how: P.kwargs) -> R:
        return method(self._made, *args, **how)

    return call


def _constructed(made: Callable[P, M_co]) -> Callable[Concatenate[_Wraps[M_co], P], None]:
    """Wraps a part that is made with the arguments of another one."""

    @wraps(made)
    def begin(self: _Wraps[M_co], /, *args: P.args, **how: P.kwargs) -> None:
        _Wraps.__init__(self, made(*args, **how))

    return begin


class Producer(_Wraps[producer.Producer]):
    """Sends messages to a topic. `Client.create_producer` makes it."""

    topic = _same(producer.Producer.topic)
    producer_name = _same(producer.Producer.producer_name)
    last_sequence_id = _same(producer.Producer.last_sequence_id)
    is_connected = _same(producer.Producer.is_connected)
    flush = _in_thread(producer.Producer.flush)
    close = _in_thread(producer.Producer.close)

    def __init__(self, made: producer.Producer, *, blocks: bool) -> None:
        """Send by a producer; `blocks`: a message that is one too many waits for room."""
        super().__init__(made)
        self._blocks = blocks

    @spelled_out(How)
    async def send(self, content: object, **how: Unpack[How]) -> MessageId:
        """Send a message; done when the store has it. Many may be under way: they share commits.

        Raises:
            DelaylineError: as `delayline.Producer.send`.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[MessageId] = loop.create_future()

        def done(error: Exception | None, message_id: MessageId | None) -> None:
            loop.call_soon_threadsafe(producer.answered, answer, error, message_id)

        while True:
            try:
                self._made.put(content, done, how)
            except (ProducerQueueIsFull, MemoryBufferIsFull):
                if not self._blocks:
                    raise
                await asyncio.sleep(_LOOK_S)
            else:
                return await answer


class Consumer(_Wraps[consumer.Consumer]):
    """Gets the messages of a subscription, and acknowledges them. `Client.subscribe` makes it."""

    topic = _same(consumer.Consumer.topic)
    subscription_name = _same(consumer.Consumer.subscription_name)
    consumer_name = _same(consumer.Consumer.consumer_name)
    is_connected = _same(consumer.Consumer.is_connected)
    acknowledge = _awaited(consumer.Consumer.acknowledge)
    acknowledge_cumulative = _awaited(consumer.Consumer.acknowledge_cumulative)
    negative_acknowledge = _awaited(consumer.Consumer.negative_acknowledge)
    reconsume_later = _awaited(consumer.Consumer.reconsume_later)
    get_last_message_id = _in_thread(consumer.Consumer.get_last_message_id)
    pause_message_listener = _same(consumer.Consumer.pause_message_listener)
    resume_message_listener = _same(consumer.Consumer.resume_message_listener)
    redeliver_unacknowledged_messages = _same(consumer.Consumer.redeliver_unacknowledged_messages)
    seek = _in_thread(consumer.Consumer.seek)
    unsubscribe = _in_thread(consumer.Consumer.unsubscribe)
    close = _in_thread(consumer.Consumer.close)

    async def receive(self) -> Message:
        """The next message; waits for one. `asyncio.wait_for` sets a limit.

        Raises:
            AlreadyClosed: the consumer is closed.
        """
        while (found := self._made.next_message(0)) is None:  # noqa: ASYNC110 - the other side is a thread that knows no loop
            await asyncio.sleep(_LOOK_S)
        return found

    async def batch_receive(
        self, max_num_messages: int | None = None, timeout_millis: int | None = None
    ) -> list[Message]:
        """Several messages, as `delayline.Consumer.batch_receive` gives them.

        What a call had when it was cancelled, the next `receive` or `batch_receive` gives.

        Raises:
            AlreadyClosed: the consumer is closed.
        """
        batch = Batch(self._made.options.batch_receive_policy, max_num_messages, timeout_millis)
        with self._made.kept.unless_done(batch):
            while batch.has_room:
                if (message := self._made.next_message(0)) is not None:
                    batch.add(message)
                elif batch.left_ms == 0:
                    break
                else:
                    await asyncio.sleep(_LOOK_S)
        return list(batch.messages)

    async def batch_receive_arrow(self, max_num_messages: int = 1 << 16, timeout_millis: int | None = None) -> pa.Table:
        """Several messages as rows, as `delayline.Consumer.batch_receive_arrow` gives them.

        Raises:
            AlreadyClosed: the consumer is closed.
        """
        ends = _ends(timeout_millis)
        while not len(found := self._made.batch_receive_arrow(max_num_messages, 0)) and _now() < ends:  # noqa: ASYNC110 - as above
            await asyncio.sleep(_LOOK_S)
        return found


class Reader(_Wraps[reader.Reader]):
    """Gets the messages of a topic from a place on; for one task at a time. `Client.create_reader` makes it."""

    topic = _same(reader.Reader.topic)
    is_connected = _same(reader.Reader.is_connected)
    has_message_available = _in_thread(reader.Reader.has_message_available)
    seek = _in_thread(reader.Reader.seek)
    close = _in_thread(reader.Reader.close)

    async def read_next(self) -> Message:
        """The next message; waits for one.

        Raises:
            AlreadyClosed: the reader is closed.
        """
        # A thread goes on when this is cancelled: it takes no message, and what it reads the next call gets.
        while (found := self._made.take_ready()) is None:
            if not await asyncio.to_thread(self._made.fetch):
                await asyncio.sleep(_LOOK_S)
        return found


class Client(_Wraps[client.Client]):
    """Everything that a program does with a warehouse."""

    subscribe = _making(client.Client.subscribe, Consumer)
    create_reader = _making(client.Client.create_reader, Reader)
    cancel = _in_thread(client.Client.cancel)
    reschedule = _in_thread(client.Client.reschedule)
    shift = _in_thread(client.Client.shift)
    release_now = _in_thread(client.Client.release_now)
    undo = _in_thread(client.Client.undo)
    commands = _in_thread(client.Client.commands)
    set_policies = _in_thread(client.Client.set_policies)
    unset_policies = _in_thread(client.Client.unset_policies)
    get_policies = _in_thread(client.Client.get_policies)
    pause = _in_thread(client.Client.pause)
    resume = _in_thread(client.Client.resume)
    set_schedule = _in_thread(client.Client.set_schedule)
    schedules = _in_thread(client.Client.schedules)
    set_calendar = _in_thread(client.Client.set_calendar)
    calendars = _in_thread(client.Client.calendars)
    pause_schedule = _in_thread(client.Client.pause_schedule)
    resume_schedule = _in_thread(client.Client.resume_schedule)
    delete_schedule = _in_thread(client.Client.delete_schedule)
    run_schedule_now = _in_thread(client.Client.run_schedule_now)
    trace = _in_thread(client.Client.trace)
    pending_rows = _in_thread(client.Client.pending_rows)
    topics = _in_thread(client.Client.topics)
    get_topic_partitions = _in_thread(client.Client.get_topic_partitions)
    refresh_topics = _in_thread(client.Client.refresh_topics)
    close = _in_thread(client.Client.close)

    __init__ = _constructed(client.Client)

    @spelled_out(HowProduced)
    async def create_producer(
        self, topic: str, producer_name: str | None = None, schema: Schema = _BYTES, **how: Unpack[HowProduced]
    ) -> Producer:
        """Make a producer of a topic, as `delayline.Client.create_producer` does.

        Raises:
            DelaylineError: as there.
        """
        blocks = how.pop("block_if_queue_full", False)
        make = partial(self._made.create_producer, topic, producer_name, schema, **how)
        return Producer(await _Making(make).awaited(), blocks=blocks)

    def shutdown(self) -> None:
        """End at once: what waits to be sent is refused with `AlreadyClosed`, and consumers leave.

        With a loop this goes on in a thread of its own, for which the end of the program waits: the threads of the loop
        may all be taken by the calls that it ends.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:  # there is none that it could hold up
            self._made.shutdown()
        else:
            Thread(target=self._made.shutdown, name="delayline-shutdown").start()

    async def __aenter__(self) -> Self:
        """The client itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        await self.close()


def _now() -> float:
    return asyncio.get_running_loop().time()


def _ends(timeout_millis: int | None) -> float:
    """When a limit is over, by the clock of the loop; None: never."""
    wait_ms = checked_timeout("timeout_millis", timeout_millis)
    return math.inf if wait_ms is None else _now() + wait_ms / 1_000
