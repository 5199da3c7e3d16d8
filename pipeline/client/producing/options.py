"""What a program may say of a producer, and the senders that it becomes."""

from __future__ import annotations

import secrets
from typing import TypedDict

from pipeline.client.checks import check_limit
from pipeline.client.choices import PartitionsRoutingMode
from pipeline.client.producing.rows import Sender


class HowProduced(TypedDict, total=False):
    """What may be said of a producer beside topic, name and schema; all of it may be left out.

    Attributes:
        initial_sequence_id: the first message has the next number; else it goes on from what the log has of the name.
        send_timeout_millis: a message that the store did not take for so long fails; 0: it is tried for ever. 30 000
            if nothing is said.
        max_pending_messages: so many messages may wait for the store, for each partition; 1 000 if nothing is said.
        block_if_queue_full: who would be one too many waits, instead of failing.
        batching_enabled: messages of `send_async` wait a little for others to go in one commit; they do if nothing is
            said.
        batching_max_messages: so many do not wait for more; 1 000 if nothing is said.
        batching_max_allowed_size_in_bytes: nor do so many bytes; 128 kB if nothing is said.
        batching_max_publish_delay_ms: nor does anything wait for longer; 10 if nothing is said.
        message_routing_mode: to which partition messages without a key go; in turn if nothing is said.
    """

    initial_sequence_id: int | None
    send_timeout_millis: int
    max_pending_messages: int
    block_if_queue_full: bool
    batching_enabled: bool
    batching_max_messages: int
    batching_max_allowed_size_in_bytes: int
    batching_max_publish_delay_ms: int
    message_routing_mode: PartitionsRoutingMode


_LIMITS = {
    "send_timeout_millis": (30_000, 0),
    "max_pending_messages": (1_000, 1),
    "batching_max_messages": (1_000, 1),
    "batching_max_allowed_size_in_bytes": (128 << 10, 1),
    "batching_max_publish_delay_ms": (10, 0),
}
"""For each limit what holds if nothing is said, and the least that may be said."""


def sender_of(topic: str, name: str | None, how: HowProduced) -> Sender:
    """A sender that has sent nothing.

    Raises:
        InvalidConfiguration: a limit is none, or too small.
    """
    told = {option: check_limit(option, how.get(option, value), low) for option, (value, low) in _LIMITS.items()}
    return Sender(
        topic,
        name or f"delayline-{secrets.token_hex(6)}",
        named=bool(name),
        timeout_s=told["send_timeout_millis"] / 1_000,
        most=told["max_pending_messages"],
        blocks=how.get("block_if_queue_full", False),
        delay_s=told["batching_max_publish_delay_ms"] / 1_000,
        batch=told["batching_max_messages"] if how.get("batching_enabled", True) else 1,
        batch_bytes=told["batching_max_allowed_size_in_bytes"],
    )
