"""How the name of a topic is written. The reference spells the topics of its default namespace with that namespace.

`persistent://public/default/orders` and `public/default/orders` are `orders`. Any other name is taken as it is: that of
another tenant or namespace, and `non-persistent://public/default/orders`, too.
"""

from __future__ import annotations

import re
from zlib import crc32

from pipeline.config.errors import check_kind

_DEFAULT = "public/default/"
_PERSISTENT, _NON_PERSISTENT = "persistent://", "non-persistent://"
_PARTITION = re.compile(r"-partition-([0-9]{1,9})\Z")
"""What the names of partitions end with; a longer number is no partition's."""


def plain_topic(name: str) -> str:
    """The topic that a name means, as tables have it.

    Raises:
        BadValue: it is no text.
    """
    check_kind("topic", name, str, "a name")
    own = name.removeprefix(_PERSISTENT)
    if own.startswith(_DEFAULT) and (rest := own[len(_DEFAULT) :]) and "/" not in rest:
        return rest
    return name


def full_name(topic: str) -> str:
    """A topic as the reference spells it; one of another namespace as it is."""
    return topic if "/" in topic else f"{_PERSISTENT}{_DEFAULT}{topic}"


def spelled_like(name: str, topic: str) -> str:
    """A topic as a program spells it that has called it, or the topic of which it is a partition, by a name."""
    return topic if plain_topic(name) == name else full_name(topic)


def spellings(topic: str) -> tuple[str, ...]:
    """The names by which a program may describe a topic, its own name first."""
    if is_non_persistent(topic):
        return topic, topic.removeprefix(_NON_PERSISTENT)
    full = full_name(topic)
    return topic, full, full.removeprefix(_PERSISTENT)


def is_non_persistent(topic: str) -> bool:
    """Whether its name says that a broker keeps its messages in memory only. Here they are kept like all others."""
    return topic.startswith(_NON_PERSISTENT)


def partition_of(topic: str) -> int:
    """The number of a partition, from its name (`orders-partition-3`); -1 when it is none."""
    found = _PARTITION.search(topic)
    return int(found[1]) if found else -1


def partition_name(topic: str, number: int) -> str:
    """The name of a partition of a topic."""
    return f"{topic}-partition-{number}"


def partition_for(key: str | None, turn: int, count: int) -> int:
    """The number of the partition of a message, of so many: by the hash of its key; without one they take turns."""
    return (turn if key is None else crc32(key.encode())) % count


def routed(topic: str, key: str | None, turn: int, count: int) -> str:
    """The topic of a message, or its partition, of so many; 0: it has none."""
    return partition_name(topic, partition_for(key, turn, count)) if count else topic


def topic_of(name: str) -> str:
    """The topic that a partition belongs to; of a topic its name."""
    return _PARTITION.sub("", name)
