"""Opening consumers: one engine for each process and warehouse turns them all."""

from __future__ import annotations

import secrets
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from pipeline.client.checks import PROCESS
from pipeline.client.choices import ConsumerType
from pipeline.client.clock import clock_of
from pipeline.client.consuming.consumer import Consumer
from pipeline.client.consuming.consumerlistener import EventListener
from pipeline.client.consuming.engine import Engine
from pipeline.client.consuming.options import ConsumerOptions
from pipeline.client.consuming.topicconsumer import TopicConsumer
from pipeline.client.exceptions import ConsumerBusy, Timeout
from pipeline.client.tables.job import JobHint
from pipeline.config.paths import place_of
from pipeline.subscriptions.policies import Policies
from pipeline.subscriptions.topicnames import partition_of

_ENGINES = weakref.WeakValueDictionary[tuple[int, str], Engine]()
"""Those that turn are held by their threads."""
_LOCK = threading.Lock()
Topics = Sequence[str] | Mapping[str, Policies]
"""Topics, by themselves or each with the policies of its subscription."""


def engine_of(root: str) -> Engine:
    """The engine of this process for a warehouse, turning.

    Raises:
        FileNotFoundError: the folder has no warehouse.
    """
    key = (PROCESS.pid, place_of(root))
    with _LOCK:
        engine = _ENGINES.get(key)
        if engine is None or engine.ended:
            engine = _ENGINES[key] = Engine(root, clock_of(root))
            engine.start()
        return engine


def running_engine(root: str) -> Engine | None:
    """The engine of this process for a warehouse, if it turns consumers."""
    engine = _ENGINES.get((PROCESS.pid, place_of(root)))
    return None if engine is None or engine.ended else engine


def end_engine(root: str) -> None:
    """End the engine of this process for a warehouse, if there is one: its threads have ended when this returns.

    Raises:
        DelaylineError: what its consumers said last cannot be appended.
    """
    # One that has ended by itself may have threads that are about to end.
    engine = _ENGINES.get((PROCESS.pid, place_of(root)))
    if engine is not None:
        engine.close()


def open_consumer(
    engine: Engine,
    topics: Topics,
    subscription: str,
    options: ConsumerOptions,
    timeout_s: float = 30.0,
    on_close: Callable[[Consumer], None] | None = None,
    on_unsubscribe: Callable[[Consumer], None] | None = None,
) -> Consumer:
    """A consumer of a subscription that is registered, with acknowledgement, for each of the topics.

    It gets messages as soon as the service knows the subscription. An exclusive one waits until it is clear who has it.

    Args:
        engine: of the warehouse.
        topics: with the policies of their subscriptions, or as the options say.
        subscription: the subscription.
        options: how it works.
        timeout_s: so long the service may take to know the subscription.
        on_close: called once it is closed.
        on_unsubscribe: takes the subscription out of the registry.

    Raises:
        ConsumerBusy: another consumer has the exclusive subscription.
        Timeout: the service does not know the subscription yet, or does not run.
    """
    made = new_consumer(engine, topics, subscription, options, on_close, on_unsubscribe)
    if options.consumer_type is ConsumerType.Exclusive:
        await_subscription(made, timeout_s)
    if options.message_listener is not None:
        engine.listening.add(made.listen(options.message_listener))
    return made


def new_consumer(
    engine: Engine,
    topics: Topics,
    subscription: str,
    options: ConsumerOptions,
    on_close: Callable[[Consumer], None] | None = None,
    on_unsubscribe: Callable[[Consumer], None] | None = None,
) -> Consumer:
    """The same, without waiting for anything; see `open_consumer`."""
    named = replace(options, consumer_name=options.consumer_name or f"delayline-{secrets.token_hex(6)}")
    made = Consumer(engine, subscription, named, on_close, on_unsubscribe)
    listen_to(made, topics)
    return made


def listen_to(made: Consumer, topics: Topics) -> None:
    """Let a consumer get the messages of more topics, too; their subscriptions are registered."""
    options, known = made.options, topics if isinstance(topics, Mapping) else {}
    choices = {each: options.under(known[each]) if each in known else options for each in topics}
    with made.engine.between_turns():
        topic_consumers = [
            made.engine.add(each, made.subscription_name(), mine, made.lock) for each, mine in choices.items()
        ]
        _tell_of(made, topic_consumers)
    made.take_on(topic_consumers)


def _tell_of(made: Consumer, topic_consumers: Sequence[TopicConsumer]) -> None:
    # The engine has a topic consumer for as long as somebody has the consumer, so none of them holds that.
    known = weakref.ref(made)
    for each in topic_consumers:
        each.served = partial(_serves, known)
        if (listener := each.options.consumer_event_listener) is not None:
            each.active = partial(_announce, known, listener, partition_of(each.topic))


def _announce(known: weakref.ref[Consumer], listener: EventListener, partition: int, active: bool) -> None:  # noqa: FBT001 - what a topic consumer calls it with
    """Tell a listener; the engine turns all consumers of the process, and does not wait for an application."""
    if (made := known()) is not None:
        call = listener.became_active if active else listener.became_inactive
        made.events.tell(partial(call, made, partition))


def _serves(known: weakref.ref[Consumer]) -> bool:
    """Whether a program that has a consumer gets messages by it."""
    made = known()
    return made is not None and not all(each.failure for each in made.topic_consumers)


def await_subscription(consumer: Consumer, timeout_s: float) -> None:
    """Wait until an exclusive consumer has its subscription; when it has not, it is closed.

    One that died has it until its lease is over. Who cannot tell waits for that, or for a sign of life.

    Raises:
        ConsumerBusy: somebody else has it.
        Timeout: nobody says so in time.
    """
    for topic_consumer in consumer.topic_consumers:
        with topic_consumer.lock:
            topic_consumer.lock.wait_for(lambda it=topic_consumer: it.owns or it.busy or it.failure, timeout_s)  # type: ignore[misc]
        if topic_consumer.owns:
            continue
        holder = topic_consumer.busy or topic_consumer.holder
        consumer.close()
        if topic_consumer.failure is not None:
            raise topic_consumer.failure
        if holder is not None:
            raise ConsumerBusy(topic_consumer.topic, topic_consumer.subscription, holder)
        what = "subscribe: the job does not run, or does not know the subscription: it"
        raise Timeout(what, timeout_s * 1_000, JobHint(consumer.root))
