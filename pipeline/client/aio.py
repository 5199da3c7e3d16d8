"""The client for programs with an event loop. Names are those of `pulsar.asyncio`; what they mean, the client says.

Nothing here blocks the loop. A call that is cancelled takes no message away.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar, Unpack

from pipeline.client import client
from pipeline.client.choices import ConsumerType
from pipeline.client.commanding.aiocommander import Commander
from pipeline.client.consuming import consumer
from pipeline.client.exceptions import MemoryBufferIsFull, ProducerQueueIsFull
from pipeline.client.message import Message
from pipeline.client.messageid import MessageId
from pipeline.client.producing import producer
from pipeline.client.producing.options import HowProduced
from pipeline.client.producing.producer import How
from pipeline.client.reading import reader
from pipeline.client.schema import BytesSchema, Schema
from pipeline.client.subscribing.registering import HowConsumed
from pipeline.client.tracing.trace import HowTraced, Trace
from pipeline.subscriptions.policies import Policies
from pipeline.subscriptions.topicpolicies import TopicPolicies

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

_BYTES = BytesSchema()
_LOOK_S = 0.02
"""Who waits for a message or for room looks so often."""
T = TypeVar("T")


class Producer:
    """Sends messages to a topic. `Client.create_producer` makes it."""

    def __init__(self, made: producer.Producer, *, blocks: bool) -> None:
        """Send by a producer; `blocks`: a message that is one too many waits for room."""
        self._made, self._blocks = made, blocks

    def topic(self) -> str:
        """Where its messages go."""
        return self._made.topic()

    def producer_name(self) -> str:
        """Its name."""
        return self._made.producer_name()

    def last_sequence_id(self) -> int:
        """The largest number of a message that the store has; -1: none."""
        return self._made.last_sequence_id()

    async def send(self, content: object, **how: Unpack[How]) -> MessageId:
        """Send a message; done when the store has it. Many may be under way: they share commits.

        Raises:
            DelaylineError: as `delayline.Producer.send`.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[MessageId] = loop.create_future()

        def done(error: Exception | None, message_id: MessageId | None) -> None:
            loop.call_soon_threadsafe(_answer, answer, error, message_id)

        while True:
            try:
                self._made.put(content, done, how)
            except (ProducerQueueIsFull, MemoryBufferIsFull):
                if not self._blocks:
                    raise
                await asyncio.sleep(_LOOK_S)
            else:
                return await answer

    async def flush(self) -> None:
        """Wait until all that was sent before is decided."""
        await asyncio.to_thread(self._made.flush)

    async def close(self) -> None:
        """Flush, and take no more messages."""
        await asyncio.to_thread(self._made.close)


class Consumer:
    """Gets the messages of a subscription, and acknowledges them. `Client.subscribe` makes it."""

    def __init__(self, made: consumer.Consumer) -> None:
        """Receive by a consumer."""
        self._made = made

    def topic(self) -> str:
        """The topic; of several ones their names, with commas between."""
        return self._made.topic()

    def subscription_name(self) -> str:
        """The subscription."""
        return self._made.subscription_name()

    def consumer_name(self) -> str:
        """The name by which others see it."""
        return self._made.consumer_name()

    async def receive(self) -> Message:
        """The next message; waits for one. `asyncio.wait_for` sets a limit.

        Raises:
            AlreadyClosed: the consumer is closed.
        """
        return await _seen(lambda: self._made.next_message(0))

    async def acknowledge(self, message: Message | MessageId) -> None:
        """A message is done with.

        Raises:
            DelaylineError: as `delayline.Consumer.acknowledge`.
        """
        self._made.acknowledge(message)

    async def acknowledge_cumulative(self, message: Message | MessageId) -> None:
        """All that this consumer was handed up to a message is done with.

        Raises:
            DelaylineError: as `delayline.Consumer.acknowledge_cumulative`.
        """
        self._made.acknowledge_cumulative(message)

    async def negative_acknowledge(self, message: Message | MessageId, delay_ms: int | None = None) -> None:
        """A message failed and is to come again, after a delay (ms).

        Raises:
            DelaylineError: as `delayline.Consumer.negative_acknowledge`.
        """
        self._made.negative_acknowledge(message, delay_ms)

    async def seek(self, messageid: MessageId | int) -> None:
        """Let the subscription begin anew at the id of a message, or at a time of publication (ms).

        Raises:
            DelaylineError: as `delayline.Consumer.seek`.
        """
        await asyncio.to_thread(self._made.seek, messageid)

    async def unsubscribe(self) -> None:
        """Close, and take the subscription out of the registry."""
        await asyncio.to_thread(self._made.unsubscribe)

    async def close(self) -> None:
        """Say what was acknowledged, and leave."""
        await asyncio.to_thread(self._made.close)


class Reader:
    """Gets the messages of a topic from a place on. `Client.create_reader` makes it."""

    def __init__(self, made: reader.Reader) -> None:
        """Read by a reader; one task at a time."""
        self._made = made

    def topic(self) -> str:
        """The topic."""
        return self._made.topic()

    async def read_next(self) -> Message:
        """The next message; waits for one.

        Raises:
            AlreadyClosed: the reader is closed.
        """
        while not await self.has_message_available():  # noqa: ASYNC110 - a table tells nobody that it has grown
            await asyncio.sleep(_LOOK_S)
        return self._made.read_next(0)

    async def has_message_available(self) -> bool:
        """Whether the next message can be had now.

        Raises:
            AlreadyClosed: the reader is closed.
        """
        return await asyncio.to_thread(self._made.has_message_available)

    async def seek(self, messageid: MessageId | int) -> None:
        """Go on from another place.

        Raises:
            DelaylineError: as `delayline.Reader.seek`.
        """
        await asyncio.to_thread(self._made.seek, messageid)

    async def close(self) -> None:
        """End."""
        self._made.close()


class Client(Commander):
    """Everything that a program does with a warehouse."""

    def __init__(
        self,
        service_url: str,
        *,
        operation_timeout_seconds: int = 30,
        memory_limit_bytes: int = 0,
        stats_interval_in_seconds: int = 600,
        **refused: object,
    ) -> None:
        """Look at nothing yet; the parameters are those of `delayline.Client`."""
        self._client = client.Client(
            service_url,
            operation_timeout_seconds=operation_timeout_seconds,
            memory_limit_bytes=memory_limit_bytes,
            stats_interval_in_seconds=stats_interval_in_seconds,
            **refused,
        )

    async def create_producer(
        self, topic: str, producer_name: str | None = None, schema: Schema = _BYTES, **how: Unpack[HowProduced]
    ) -> Producer:
        """Make a producer of a topic, as `delayline.Client.create_producer` does.

        Raises:
            DelaylineError: as there.
        """
        blocks = how.pop("block_if_queue_full", False)
        made = await asyncio.to_thread(self._client.create_producer, topic, producer_name, schema, **how)
        return Producer(made, blocks=blocks)

    async def subscribe(
        self,
        topic: str | list[str] | re.Pattern[str],
        subscription_name: str,
        consumer_type: ConsumerType = ConsumerType.Exclusive,
        **how: Unpack[HowConsumed],
    ) -> Consumer:
        """Consume the messages of a subscription, as `delayline.Client.subscribe` does.

        Raises:
            DelaylineError: as there.
        """
        made = await asyncio.to_thread(self._client.subscribe, topic, subscription_name, consumer_type, **how)
        return Consumer(made)

    async def create_reader(
        self, topic: str, start_message_id: MessageId, schema: Schema = _BYTES, *, delayed: bool = True
    ) -> Reader:
        """Read a topic without a subscription, as `delayline.Client.create_reader` does.

        Raises:
            DelaylineError: as there.
        """
        made = await asyncio.to_thread(self._client.create_reader, topic, start_message_id, schema, delayed=delayed)
        return Reader(made)

    async def set_policies(self, topic: str, subscription_name: str | None = None, **policies: object) -> bool:
        """Set some policies, as `delayline.Client.set_policies` does.

        Raises:
            DelaylineError: as there.
        """
        return await asyncio.to_thread(self._client.set_policies, topic, subscription_name, **policies)

    async def pause(self, topic: str, subscription_name: str) -> bool:
        """Hold what becomes due for a subscription, as `delayline.Client.pause` does.

        Raises:
            DelaylineError: as there.
        """
        return await asyncio.to_thread(self._client.pause, topic, subscription_name)

    async def resume(self, topic: str, subscription_name: str) -> bool:
        """Let a paused subscription go on, as `delayline.Client.resume` does.

        Raises:
            DelaylineError: as there.
        """
        return await asyncio.to_thread(self._client.resume, topic, subscription_name)

    async def unset_policies(self, topic: str, *names: str, subscription_name: str | None = None) -> bool:
        """Give some policies their defaults again, as `delayline.Client.unset_policies` does.

        Raises:
            DelaylineError: as there.
        """
        unset = self._client.unset_policies
        return await asyncio.to_thread(unset, topic, *names, subscription_name=subscription_name)

    async def get_policies(self, topic: str, subscription_name: str | None = None) -> Policies | TopicPolicies:
        """The policies of a topic or a subscription, as `delayline.Client.get_policies` gives them.

        Raises:
            DelaylineError: as there.
        """
        return await asyncio.to_thread(self._client.get_policies, topic, subscription_name)

    async def trace(self, topic: str, subscription_name: str | None = None, **how: Unpack[HowTraced]) -> list[Trace]:
        """The history of messages, as `delayline.Client.trace` tells it.

        Raises:
            DelaylineError: as there.
        """
        return await asyncio.to_thread(self._client.trace, topic, subscription_name, **how)

    async def get_topic_partitions(self, topic: str) -> list[str]:
        """The names of a topic's partitions; of a topic without any, its own name.

        Raises:
            DelaylineError: as `delayline.Client.get_topic_partitions`.
        """
        return await asyncio.to_thread(self._client.get_topic_partitions, topic)

    async def close(self) -> None:
        """Close all producers, consumers and readers; what was sent is in the store, or its error is raised."""
        await asyncio.to_thread(self._client.close)

    def shutdown(self) -> None:
        """End at once: what waits to be sent is refused with `AlreadyClosed`, and consumers leave."""
        self._client.shutdown()

    async def __aenter__(self) -> Self:
        """The client itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        await self.close()


async def _seen(look: Callable[[], T | None]) -> T:
    """What a function gives, as soon as it gives something."""
    while (found := look()) is None:  # noqa: ASYNC110 - the other side is a thread that knows no loop
        await asyncio.sleep(_LOOK_S)
    return found


def _answer(answer: asyncio.Future[MessageId], error: Exception | None, message_id: MessageId | None) -> None:
    """Tell a task; one that was cancelled is told nothing."""
    if answer.done():
        return
    if error is not None:
        answer.set_exception(error)
    elif message_id is not None:
        answer.set_result(message_id)
