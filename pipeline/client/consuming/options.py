"""How a consumer works: what its program says of it, as its parts read it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

from pipeline.client.choices import ConsumerBatchReceivePolicy, ConsumerType
from pipeline.client.consuming.consumerlistener import EventListener, MessageListener
from pipeline.client.schema import BytesSchema, Schema
from pipeline.subscriptions.policies import Policies
from state import SubscriptionType

_BYTES, _BATCH = BytesSchema(), ConsumerBatchReceivePolicy()


@dataclass(frozen=True)
class ConsumerOptions:
    """How a consumer works. Names and defaults are those of the reference's `subscribe`.

    Attributes:
        consumer_type: how consumers share the subscription.
        consumer_name: by which others see it, and failover chooses; empty: one is drawn.
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
        start_message_id_inclusive: whether a seek to a message brings that one, too.
        spell: how the program spells a topic.
    """

    consumer_type: ConsumerType = ConsumerType.Exclusive
    consumer_name: str = ""
    schema: Schema = _BYTES
    message_listener: MessageListener | None = None
    receiver_queue_size: int = 1_000
    max_unacked: int = 50_000
    unacked_messages_timeout_ms: int = 0
    unacked_messages_tick_ms: int = 1_000
    negative_ack_redelivery_delay_ms: int | None = None
    priority: int = 0
    batch_receive_policy: ConsumerBatchReceivePolicy = _BATCH
    consumer_event_listener: EventListener | None = None
    stats_interval_s: int = 0
    start_message_id_inclusive: bool = False
    spell: Callable[[str], str] = str

    def under(self, policies: Policies) -> Self:
        """The same for a topic whose subscription has these policies."""
        return replace(self, max_unacked=policies.max_unacked, unacked_messages_timeout_ms=policies.ack_timeout_ms)

    @property
    def kind(self) -> SubscriptionType:
        """The type of the subscription."""
        return SubscriptionType(self.consumer_type.value)
