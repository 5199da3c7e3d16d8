"""What a topic asks: bounds of the delays of its messages, at ingest; and how long they may be late, at dispatch.

Policies of a topic are a line of the registry without a subscription, of the type `topic`, that is not active: stages
that know nothing of them pass over it. Ingest reads it at the version of the registry that its plan notes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pipeline.config.errors import BadValue
from pipeline.subscriptions.policies import LONGEST_MS, SHORTEST_TTL_MS, InRegistry, check_number

TOPIC = "topic"
"""The type of such a line."""
PARTITION = r"-partition-([0-9]{1,9})\z"
"""What the names of partitions end with, as Java spells it; a longer number is no partition's."""
_PARTITION = re.compile(PARTITION.replace(r"\z", r"\Z"))
EXACT, PROPORTIONAL = PRECISIONS = ("exact", "proportional")
LINES = f"subscription = '' AND type = '{TOPIC}' AND NOT active AND topic IS NOT NULL"
"""SQL: which lines of the registry are of topics."""


def partition_of(topic: str) -> int:
    """The number of a partition, from its name (`orders-partition-3`); -1 when it is none."""
    found = _PARTITION.search(topic)
    return int(found[1]) if found else -1


def topic_of(name: str) -> str:
    """The topic that a partition belongs to; of a topic its name."""
    return _PARTITION.sub("", name)


@dataclass(frozen=True)
class TopicPolicies(InRegistry):
    """The policies of a topic; the names are those of the registry's map.

    Attributes:
        fixed_delay_ms: each message is due so long after it was published, whatever its producer asks (ms).
        min_delay_ms: a message is due so long after it was published at the earliest (ms).
        max_delay_ms: a message whose producer asks for a longer delay is rejected (ms). It is not shortened: a message
            never comes before the time that was asked for.
        precision: `exact`, or `proportional`: a message is put off to the end of a bucket of time that is as wide as
            its delay deserves (`state.proportional_deliver_at`): up to a second after a minute, up to a minute after a
            day. So what waits for long takes less room.
        ttl_ms: as that of a subscription (`Policies`), for those that have none of their own (ms).

    Raises:
        BadValue: a value that cannot be followed.
    """

    fixed_delay_ms: int | None = None
    min_delay_ms: int | None = None
    max_delay_ms: int | None = None
    precision: str = EXACT
    ttl_ms: int | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be followed."""
        check_number("fixed_delay_ms", self.fixed_delay_ms, 1, LONGEST_MS)
        check_number("min_delay_ms", self.min_delay_ms, 1, LONGEST_MS)
        check_number("max_delay_ms", self.max_delay_ms, self.min_delay_ms or 0, LONGEST_MS)
        if self.precision not in PRECISIONS:
            raise BadValue("precision", self.precision, ", ".join(PRECISIONS))
        check_number("ttl_ms", self.ttl_ms, SHORTEST_TTL_MS, LONGEST_MS)
        for name in ("min_delay_ms", "max_delay_ms"):
            if self.fixed_delay_ms is not None and getattr(self, name) is not None:
                raise BadValue(name, getattr(self, name), "a topic without fixed_delay_ms")

    @property
    def floor_ms(self) -> int | None:
        """So long after its publication a message is due at the earliest, ms."""
        return self.min_delay_ms if self.fixed_delay_ms is None else self.fixed_delay_ms

    @property
    def proportional(self) -> int | None:
        """1 when due times are as precise as delays deserve."""
        return 1 if self.precision == PROPORTIONAL else None


_NOTHING_STATED = TopicPolicies()


@dataclass(frozen=True)
class Topics:
    """The policies of all topics that have some.

    Attributes:
        policies: by topic; a partition without any of its own has those of its topic.
        wrong: topics whose policies cannot be followed, and why; none of theirs count.
        unclear: the texts of the registry of these topics.
    """

    policies: Mapping[str, TopicPolicies] = field(default_factory=dict)
    wrong: Mapping[str, str] = field(default_factory=dict)
    unclear: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @classmethod
    def of_rows(cls, rows: Iterable[tuple[str, Mapping[str, Any] | Iterable[tuple[str, Any]] | None]]) -> Topics:
        """From topics and the maps of their lines. Of several lines of a topic the last one counts, in any reading."""
        policies, wrong, unclear = dict[str, TopicPolicies](), dict[str, str](), dict[str, dict[str, str]]()
        lines = ((topic, sorted(dict(texts or ()).items())) for topic, texts in rows)
        for topic, texts in sorted(lines, key=_sortable):
            for each in (policies, wrong, unclear):
                each.pop(topic, None)
            try:
                policies[topic] = TopicPolicies.of_map(dict(texts))
            except BadValue as error:
                wrong[topic], unclear[topic] = str(error), dict(texts)
        return cls(policies, wrong, unclear)

    def of(self, topic: str) -> TopicPolicies:
        """Those of a topic, or of the topic that a partition belongs to."""
        if not self.policies:
            return _NOTHING_STATED
        return self.policies.get(topic) or self.policies.get(topic_of(topic)) or _NOTHING_STATED


def _sortable(line: tuple[str, Sequence[tuple[str, Any]]]) -> tuple[str, list[tuple[str, bool, str]]]:
    """A value may be NULL, which is before all texts."""
    topic, texts = line
    return topic, [(name, text is not None, text or "") for name, text in texts]


NO_POLICIES = Topics()
