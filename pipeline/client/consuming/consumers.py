"""Opening consumers: one engine for each process and warehouse turns them all."""

from __future__ import annotations

import logging
import os
import secrets
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from pipeline.client.choices import ConsumerBatchReceivePolicy, ConsumerType
from pipeline.client.consuming.consumer import Consumer
from pipeline.client.consuming.consumerlistener import ConsumerEventListener, MessageListener
from pipeline.client.consuming.core import Core, Listening
from pipeline.client.consuming.desk import DeskOptions
from pipeline.client.consuming.engine import Engine
from pipeline.client.exceptions import ConsumerBusy, Timeout
from pipeline.client.schema import BytesSchema, Schema
from pipeline.subscriptions.topicpolicies import partition_of
from state import SubscriptionType

_ENGINES: dict[tuple[int, str], Engine] = {}
_LOCK = threading.Lock()
_BYTES = BytesSchema()
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class ConsumerOptions:
    """How a consumer works. Names and defaults are those of the reference's `subscribe`.

    Attributes:
        consumer_type: how consumers share the subscription.
        consumer_name: by which others see it, and failover chooses; None: one is drawn.
        schema: decodes the content of messages.
        message_listener: is given each message.
        receiver_queue_size: so many messages are read ahead, at least.
        max_unacked: messages that it may hold without having settled them; 0: any number.
        unacked_messages_timeout_ms: what it holds for longer comes again; 0: never.
        unacked_messages_tick_ms: how much later than that, at most.
        negative_ack_redelivery_delay_ms: of a negative acknowledgement that names none; None: the subscription's.
        priority: of a failover consumer; 0 is the best.
        batch_receive_policy: when `batch_receive` returns.
        consumer_event_listener: is told when a failover consumer becomes the one that gets messages.
        stats_interval_s: so often the log gets a line with figures, at level INFO; 0: never.
    """

    consumer_type: ConsumerType = ConsumerType.Exclusive
    consumer_name: str | None = None
    schema: Schema = _BYTES
    message_listener: MessageListener | None = None
    receiver_queue_size: int = 1_000
    max_unacked: int = 50_000
    unacked_messages_timeout_ms: int = 0
    unacked_messages_tick_ms: int = 1_000
    negative_ack_redelivery_delay_ms: int | None = None
    priority: int = 0
    batch_receive_policy: ConsumerBatchReceivePolicy | None = None
    consumer_event_listener: ConsumerEventListener | None = None
    stats_interval_s: int = 0


def engine_of(root: str) -> Engine:
    """The engine of this process for a warehouse, turning.

    Raises:
        FileNotFoundError: the folder has no warehouse.
    """
    key = (os.getpid(), root)
    with _LOCK:
        engine = _ENGINES.get(key)
        if engine is None or engine.ended:
            engine = _ENGINES[key] = Engine(root)
            engine.start()
        return engine


@dataclass(frozen=True)
class Ends:
    """What is to be done when a consumer ends.

    Attributes:
        on_close: called once it is closed.
        on_unsubscribe: takes the subscription out of the registry.
    """

    on_close: Callable[[Consumer], None] | None = None
    on_unsubscribe: Callable[[], None] | None = None


def open_consumer(
    engine: Engine,
    topics: Sequence[str],
    subscription: str,
    options: ConsumerOptions,
    timeout_s: float = 30.0,
    ends: Ends | None = None,
) -> Consumer:
    """A consumer of a subscription that is registered, with acknowledgement, for each of the topics.

    It gets messages as soon as the service knows the subscription. An exclusive one waits until it is clear who has it.

    Args:
        engine: of the warehouse.
        topics: at least one.
        subscription: the subscription.
        options: how it works.
        timeout_s: so long the service may take to know the subscription.
        ends: what is to be done when it ends.

    Raises:
        ConsumerBusy: another consumer has the exclusive subscription.
        Timeout: the service does not know the subscription yet, or does not run.
    """
    made = new_consumer(engine, topics, subscription, options, ends or Ends())
    if options.consumer_type is ConsumerType.Exclusive:
        await_subscription(made, timeout_s)
    if options.message_listener is not None:
        made.listen(options.message_listener)
    return made


def new_consumer(
    engine: Engine, topics: Sequence[str], subscription: str, options: ConsumerOptions, ends: Ends
) -> Consumer:
    """The same, without waiting for anything; see `open_consumer`."""
    lock = threading.Condition()
    kind = SubscriptionType(options.consumer_type.value)
    name = options.consumer_name or f"delayline-{secrets.token_hex(6)}"
    desk = _desk_options(options)
    told = Listening("", subscription, kind, name, options.priority, options.receiver_queue_size)
    cores = [engine.add(replace(told, topic=each), desk, lock) for each in topics]
    delay_ms, policy = options.negative_ack_redelivery_delay_ms, options.batch_receive_policy
    made = Consumer(engine, cores, delay_ms, policy, ends.on_close, ends.on_unsubscribe)
    _tell_of(made, cores, options)
    return made


def listen_to(made: Consumer, engine: Engine, topics: Sequence[str], options: ConsumerOptions) -> None:
    """Let a consumer get the messages of more topics, too; their subscriptions are registered."""
    like = made.cores[0]
    cores = [engine.add(replace(like.listening, topic=each), _desk_options(options), like.lock) for each in topics]
    _tell_of(made, cores, options)
    made.take_on(cores)


def _desk_options(options: ConsumerOptions) -> DeskOptions:
    timeout, tick = options.unacked_messages_timeout_ms, options.unacked_messages_tick_ms
    alone = SubscriptionType(options.consumer_type.value).alone
    return DeskOptions(options.schema, options.max_unacked, timeout, tick, alone, options.stats_interval_s)


def _tell_of(made: Consumer, cores: Sequence[Core], options: ConsumerOptions) -> None:
    if options.consumer_event_listener is not None:
        for core in cores:
            core.active = _telling(made, core, options.consumer_event_listener)


def await_subscription(consumer: Consumer, timeout_s: float) -> None:
    """Wait until an exclusive consumer has its subscription; when it has not, it is closed.

    Raises:
        ConsumerBusy: somebody else has it.
        Timeout: nobody says so in time.
    """
    for core in consumer.cores:
        with core.lock:
            core.lock.wait_for(lambda core=core: core.owns or core.busy is not None, timeout_s)  # type: ignore[misc]
        if core.owns:
            continue
        consumer.close()
        listening = core.listening
        if core.busy is not None:
            raise ConsumerBusy(listening.topic, listening.subscription, core.busy)
        raise Timeout("subscribe: the service does not run, or does not know the subscription: it", timeout_s * 1_000)


def _telling(consumer: Consumer, core: Core, listener: ConsumerEventListener) -> Callable[[bool], None]:
    partition = partition_of(core.listening.topic)

    def tell(active: bool) -> None:  # noqa: FBT001 - what the core calls it with
        try:
            (listener.became_active if active else listener.became_inactive)(consumer, partition)
        except Exception:  # noqa: BLE001 - whatever the application raises
            _LOG.exception("a consumer_event_listener failed")

    return tell
