"""The enumerations and policies that callers choose from, named as in Apache Pulsar's Python client."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from types import NoneType

from pipeline.client.exceptions import InvalidConfiguration
from pipeline.config.errors import check_text

_PAIR, _LAST_HASH, _MOST = 2, (1 << 16) - 1, (1 << 63) - 1


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
    """How keys are divided; a consumer can have `AutoSplit` only."""

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
        InvalidConfiguration: the count is not a whole number from 1 on.
        BadValue: a name is no text.
    """

    max_redeliver_count: int
    dead_letter_topic: str | None = None
    initial_subscription_name: str | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be followed."""
        _check_number("max_redeliver_count", self.max_redeliver_count, 1)
        check_text("dead_letter_topic", self.dead_letter_topic)
        check_text("initial_subscription_name", self.initial_subscription_name)


@dataclass(frozen=True)
class ConsumerBatchReceivePolicy:
    """When `batch_receive` returns: as soon as one of these is reached; a negative number is no limit.

    Attributes:
        max_num_message: messages.
        max_num_bytes: bytes of their payloads.
        timeout_ms: time waited.

    Raises:
        InvalidConfiguration: one is no whole number, or there is no limit at all.
    """

    max_num_message: int = -1
    max_num_bytes: int = 10 << 20
    timeout_ms: int = 100

    def __post_init__(self) -> None:
        """Refuse a batch that would never end."""
        for name in ("max_num_message", "max_num_bytes", "timeout_ms"):
            _check_number(name, getattr(self, name), -_MOST)
        if max(self.max_num_message, self.max_num_bytes, self.timeout_ms) <= 0:
            raise InvalidConfiguration("batch_receive_policy", self, "one of the limits must be above 0")


@dataclass(frozen=True)
class ConsumerKeySharedPolicy:
    """How a key-shared subscription divides keys.

    Attributes:
        key_shared_mode: `AutoSplit`: consumers balance the slots of the subscription themselves. `Sticky`, by which
            each consumer states its hashes, is refused when somebody subscribes.
        allow_out_of_order_delivery: whether the messages of a key may come in another order. They come in their order,
            whether they may or not.
        sticky_ranges: for `Sticky`, pairs of the first and the last hash.

    Raises:
        InvalidConfiguration: ranges are missing, overlap, or go beyond 0..65535.
    """

    key_shared_mode: KeySharedMode = KeySharedMode.AutoSplit
    allow_out_of_order_delivery: bool = False
    sticky_ranges: list[tuple[int, int]] | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be followed."""
        allowed = f"pairs of hashes in 0..{_LAST_HASH}"
        if not isinstance(self.sticky_ranges, list | tuple | NoneType):
            raise InvalidConfiguration("sticky_ranges", self.sticky_ranges, allowed)
        ranges = sorted(self.sticky_ranges or [])
        if self.key_shared_mode is KeySharedMode.Sticky and not ranges:
            raise InvalidConfiguration("sticky_ranges", self.sticky_ranges, "key_shared_mode = Sticky needs some")
        ends = [end for each in ranges for end in each]
        if any(len(each) != _PAIR for each in ranges) or not all(0 <= end <= _LAST_HASH for end in ends):
            raise InvalidConfiguration("sticky_ranges", self.sticky_ranges, allowed)
        if ends != sorted(ends) or any(end == begin for end, begin in zip(ends[1:-1:2], ends[2::2], strict=True)):
            raise InvalidConfiguration("sticky_ranges", self.sticky_ranges, "they must not overlap")


def _check_number(name: str, value: object, low: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= _MOST:
        raise InvalidConfiguration(name, value, f"it must be a whole number in {low}..{_MOST}")
