"""The enumerations and policies that callers choose from, named as in Apache Pulsar's Python client."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from pipeline.client.exceptions import InvalidConfiguration


class ConsumerType(Enum):
    """How consumers share a subscription; the value is the registry's text."""

    Exclusive = "exclusive"
    Shared = "shared"
    Failover = "failover"
    KeyShared = "key_shared"


class InitialPosition(Enum):
    """What a new subscription gets: what comes from now on, or what the topic's log holds, too."""

    Latest = "latest"
    Earliest = "earliest"


class PartitionsRoutingMode(Enum):
    """To which partition a message without a key goes."""

    UseSinglePartition = 0
    RoundRobinDistribution = 1


class CompressionType(Enum):
    """Compression of single messages; only `NONE` can be had, since the files of the table are compressed."""

    NONE = 0
    LZ4 = 1
    ZLib = 2
    ZSTD = 3
    SNAPPY = 4


class BatchingType(Enum):
    """How a broker's client packs messages; only `Default` can be had, since each message is an entry by itself."""

    Default = 0
    KeyBased = 1


class ProducerAccessMode(Enum):
    """Who may produce to a topic; only `Shared` can be had, since any Delta writer may append."""

    Shared = 0
    Exclusive = 1
    WaitForExclusive = 2
    ExclusiveWithFencing = 3


class KeySharedMode(Enum):
    """How keys are divided; only `AutoSplit` can be had."""

    AutoSplit = 0
    Sticky = 1


class RegexSubscriptionMode(Enum):
    """Which topics a pattern finds: the name of one that is not persistent begins with `non-persistent://`."""

    PersistentOnly = 0
    NonPersistentOnly = 1
    AllTopics = 2


@dataclass(frozen=True)
class ConsumerDeadLetterPolicy:
    """When a message goes to the dead-letter topic.

    Attributes:
        max_redeliver_count: so often it may come again, at least once.
        dead_letter_topic: where to; None: `<topic>-<subscription>-DLQ`.
        initial_subscription_name: a subscription of that topic that is registered with this one, if any.

    Raises:
        InvalidConfiguration: the count is not a number from 1 on.
    """

    max_redeliver_count: int
    dead_letter_topic: str | None = None
    initial_subscription_name: str | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be followed."""
        if self.max_redeliver_count < 1:
            raise InvalidConfiguration("max_redeliver_count", self.max_redeliver_count, "it must be 1 or more")


@dataclass(frozen=True)
class ConsumerBatchReceivePolicy:
    """When `batch_receive` returns: as soon as one of these is reached; a negative number is no limit.

    Attributes:
        max_num_message: messages.
        max_num_bytes: bytes of their payloads.
        timeout_ms: time waited.

    Raises:
        InvalidConfiguration: there is no limit at all.
    """

    max_num_message: int = -1
    max_num_bytes: int = 10 << 20
    timeout_ms: int = 100

    def __post_init__(self) -> None:
        """Refuse a batch that would never end."""
        if max(self.max_num_message, self.max_num_bytes, self.timeout_ms) <= 0:
            raise InvalidConfiguration("batch_receive_policy", self, "one of the limits must be above 0")


@dataclass(frozen=True)
class ConsumerKeySharedPolicy:
    """How a key-shared subscription divides keys; only the default can be had: slots that all consumers balance.

    Raises:
        InvalidConfiguration: fixed ranges are asked for.
    """

    key_shared_mode: KeySharedMode = KeySharedMode.AutoSplit
    allow_out_of_order_delivery: bool = False
    sticky_ranges: list[tuple[int, int]] | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be followed."""
        if self.key_shared_mode is not KeySharedMode.AutoSplit or self.sticky_ranges:
            raise InvalidConfiguration("key_shared_mode", self.key_shared_mode, "consumers balance slots themselves")
        if self.allow_out_of_order_delivery:
            why = "a key's slot has one owner at a time"
            raise InvalidConfiguration("allow_out_of_order_delivery", self.allow_out_of_order_delivery, why)
