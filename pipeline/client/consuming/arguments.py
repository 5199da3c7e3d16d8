"""What may be said of a consumer."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from pipeline.client.choices import (
    ConsumerBatchReceivePolicy,
    ConsumerDeadLetterPolicy,
    ConsumerKeySharedPolicy,
    InitialPosition,
    RegexSubscriptionMode,
)
from pipeline.client.schema import Schema

if TYPE_CHECKING:
    from pipeline.client.consuming.listeners import ConsumerEventListener, MessageListener


class HowConsumed(TypedDict, total=False):
    """What may be said of a consumer beside topic, subscription and type; all of it may be left out.

    Attributes:
        schema: decodes contents.
        message_listener: called with the consumer and each message, in a thread of the consumer.
        pattern_auto_discovery_period: so often topics that a pattern describes are looked for, and partitions, in
            seconds; a second for a pattern if nothing is said, else a minute.
        regex_subscription_mode: which topics a pattern finds; those that are persistent if nothing is said. Others
            have a name that begins with `non-persistent://`, and are kept all the same.
        receiver_queue_size: so many messages are read ahead, at least; 1 000 if nothing is said. 0 is like 1: what is
            read ahead is kept from no other consumer, since slots say who gets a message.
        consumer_name: by which others see it; else one is drawn.
        unacked_messages_timeout_ms: what the program holds for longer comes again; 0: it does not.
        negative_ack_redelivery_delay_ms: after so long a message that failed comes again; a minute for a subscription
            that is new.
        initial_position: of a subscription that is new: with what its topic holds already, or from now on.
        start_message_id_inclusive: whether `seek` to a message brings that message, too, and not only those behind it.
        batch_receive_policy: when `batch_receive` returns.
        dead_letter_policy: when a message goes to the dead-letter topic; without one, never.
        max_unacked_messages: so many messages a consumer may hold; 0: any number; 50 000 for a subscription that is
            new.
        key_shared_policy: how keys are divided; only its mode `AutoSplit` can be had.
        batch_index_ack_enabled: whether messages of a batch are acknowledged one by one; they are, whether it is said
            or not, since each message is an entry.
        priority_level: of a failover consumer, 0..2^31; 0 is the best.
        consumer_event_listener: told when a failover consumer becomes the one that gets messages.
        tick_ms: the precision of a subscription that is new: a message comes up to so much late; a second if nothing
            is said.
    """

    schema: Schema
    message_listener: MessageListener | None
    pattern_auto_discovery_period: int
    regex_subscription_mode: RegexSubscriptionMode
    receiver_queue_size: int
    consumer_name: str | None
    unacked_messages_timeout_ms: int | None
    negative_ack_redelivery_delay_ms: int | None
    initial_position: InitialPosition
    start_message_id_inclusive: bool
    batch_receive_policy: ConsumerBatchReceivePolicy | None
    dead_letter_policy: ConsumerDeadLetterPolicy | None
    max_unacked_messages: int | None
    key_shared_policy: ConsumerKeySharedPolicy | None
    batch_index_ack_enabled: bool
    priority_level: int
    consumer_event_listener: ConsumerEventListener | None
    tick_ms: int | None
