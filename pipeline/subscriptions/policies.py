"""What a subscription asks for beside its delays: acknowledgement, and what becomes of messages that fail; and a topic.

Policies are a map of texts in the registry, so that any Delta writer can set them. They are checked when the client or
the command sets them, and again by whoever follows them.

A topic asks for bounds of the delays of its messages, at ingest, and says how long they may be late, at dispatch. Its
policies are a line of the registry without a subscription, of the type `topic`, that is not active: stages that know
nothing of them pass over it. Ingest reads it at the version of the registry that its plan notes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

from pipeline.config.errors import BadValue, check_text
from pipeline.config.settings import DAY_MS
from pipeline.subscriptions.destination import Destination, same_topic
from state import Backoff, RetryPolicy
from state.buckets import MAX_TIME
from state.retry import MAX_ROUND, UnackedLimit
from state.settling import MAX_VERSION
from state.slots import MAX_SLOTS, SLOTS, SubscriptionType

MOST_RATE = 10_000_000
LONGEST_MS = 3_650 * DAY_MS
"""Of a duration, ms."""
STOP, REJECT = REFUSED = "stop", "reject"
"""What a sink may do about a message that its broker refuses."""
SHORTEST_TTL_MS = 1_000
"""With a shorter one a batch that takes its time would let messages expire."""
_FLAGS = {"true": True, "false": False}
_BELONGS = {"retry_max_ms": "retry_min_ms", "guard_tables": "guard", "sink_after": "sink", "sink_refused": "sink"}
"""Policies that mean nothing without another one."""


@dataclass(frozen=True)
class InRegistry:
    """Policies, one field each, as texts of the registry by the same names."""

    def as_map(self) -> dict[str, str]:
        """The texts of the registry: those that differ from the defaults."""
        values = ((each.name, getattr(self, each.name), each.default) for each in fields(self))
        return {name: _text(value) for name, value, default in values if value != default}

    @classmethod
    def of_map(cls, texts: Mapping[str, str | None] | None) -> Self:
        """From the texts of the registry.

        Raises:
            BadValue: a name that is no policy of this kind, or a value that cannot be followed.
        """
        known = names_of(cls)
        for name in texts or {}:
            if name not in known:
                raise BadValue("policy", name, ", ".join(known))
        return cls(**_values(texts or {}))

    @classmethod
    def followed(cls, texts: Mapping[str, str | None] | None, beside: Mapping[str, Any] | None = None) -> Self:
        """What is followed of texts of the registry, whatever they say: each policy by itself.

        One that cannot be followed is the default, and so is the one that it belongs to. Other names do not count. The
        texts of those that `beside` gives do not count either, and what belongs to them has to fit these values.
        """
        texts, beside = texts or {}, beside or {}
        found, together = cls(), dict[str, list[str]]()
        if texts.keys().isdisjoint(cls.__dataclass_fields__):
            # Most lines say nothing of a kind, and a registry may have ten thousand of them.
            return found
        for name in names_of(cls):
            together.setdefault(_BELONGS.get(name, name), []).append(name)
        for names in together.values():
            rest = {name: texts.get(name) for name in names if name not in beside}
            if any(text is not None for text in rest.values()):
                with suppress(BadValue):
                    found = replace(found, **_values(rest), **{name: beside[name] for name in names if name in beside})
        return found

    @classmethod
    def changed(cls, texts: Mapping[str, str | None], values: Mapping[str, Any]) -> Self:
        """What texts of the registry become when some policies are set: of the others what can be followed then.

        Raises:
            BadValue: the policies that are set cannot be followed, or not beside the others.
        """
        return replace(cls.followed(texts, values), **values)


@dataclass(frozen=True)
class Policies(InRegistry):
    """The policies of a subscription; the names are those of the registry's map.

    Attributes:
        ack: consumers acknowledge, and what they do not settle comes again.
        ack_after: the version of `redelivery` up to which what was released counts as settled; None: the version
            at which settle first sees the policy.
        ack_timeout_ms: a message that was handed to an application and is not settled after so long comes again
            (ms); 0: it does not.
        retry_min_ms: delay of the first redelivery of a message that failed (ms), when the consumer names none.
        retry_multiplier: each further delay is so many times as long.
        retry_max_ms: the longest of these delays (ms).
        max_redeliveries: so often a message may come again; then it goes to the dead-letter topic. None: any number.
        dead_letter_topic: where to; None: `<topic>-<subscription>-DLQ`.
        slots: parts of a shared subscription that consumers divide among them. Exclusive and failover have one.
        max_unacked: messages that a consumer may hold without having settled them; 0: any number.
        sink: the topic of a broker in which deliveries are published, too (`pipeline.subscriptions.destination`).
        sink_after: the version of `deliveries` behind which that begins; None: the one at which the sink was named.
        sink_refused: what becomes of a message that the broker does not take, and will not take later: `stop` (the sink
            stands still before it), or `reject` (it gets a row in `rejected_dispatch`, and the sink goes on).
        paused: what becomes due is held, and comes when this is over.
        max_rate: messages a second that come at most; what is due beyond that is held, and comes later. None: any
            number.
        ttl_ms: a message that was not handed over within so long after its due time (ms) is not delivered any more.
            None: as the topic says (`TopicPolicies`).
        guard: a condition (SQL) that a message has to meet when it is due, or it is not delivered
            (`pipeline.subscriptions.guards`). None: there is none.
        guard_tables: the Delta tables that it reads: a JSON object of paths by names.
        priority: the property that has a message's priority, a whole number of up to nine digits. Of what is due in one
            bucket of the tick the highest comes first; what has none counts as 0. None: by time and position.

    Raises:
        BadValue: a name or a value that cannot be followed.
    """

    ack: bool = False
    ack_after: int | None = None
    ack_timeout_ms: int = 0
    retry_min_ms: int = 60_000
    retry_multiplier: int = 1
    retry_max_ms: int = 600_000
    max_redeliveries: int | None = None
    dead_letter_topic: str | None = None
    slots: int = SLOTS
    max_unacked: int = 50_000
    sink: str | None = None
    sink_after: int | None = None
    sink_refused: str = STOP
    paused: bool = False
    max_rate: int | None = None
    ttl_ms: int | None = None
    guard: str | None = None
    guard_tables: str | None = None
    priority: str | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be followed."""
        check_text("priority", self.priority)
        if self.priority == "":
            raise BadValue("priority", self.priority, "the name of a property")
        check_number("ack_after", self.ack_after, -1, MAX_VERSION)
        if self.ack_timeout_ms:
            check_number("ack_timeout_ms", self.ack_timeout_ms, 1_000, MAX_TIME)
        check_number("retry_min_ms", self.retry_min_ms, 0, MAX_TIME)
        check_number("retry_multiplier", self.retry_multiplier, 1, 1_000)
        check_number("retry_max_ms", self.retry_max_ms, self.retry_min_ms, MAX_TIME)
        check_number("max_redeliveries", self.max_redeliveries, 0, MAX_ROUND)
        check_number("slots", self.slots, 1, MAX_SLOTS)
        check_number("max_unacked", self.max_unacked, 0, MAX_ROUND)
        check_number("sink_after", self.sink_after, -1, MAX_VERSION)
        check_number("max_rate", self.max_rate, 1, MOST_RATE)
        check_number("ttl_ms", self.ttl_ms, SHORTEST_TTL_MS, LONGEST_MS)
        if self.sink_refused not in REFUSED:
            raise BadValue("sink_refused", self.sink_refused, " or ".join(REFUSED))
        if self.guard_tables is not None and self.guard is None:
            raise BadValue("guard_tables", self.guard_tables, "a subscription with a guard")
        if self.sink is not None:
            Destination.parse(self.sink)
            if self.ack:
                raise BadValue("sink", "an address", "a subscription that does not acknowledge")
        if self.dead_letter_topic is not None:
            check_text("dead_letter_topic", self.dead_letter_topic)
            if not self.dead_letter_topic.strip():
                raise BadValue("dead_letter_topic", self.dead_letter_topic, "a name")

    @classmethod
    def changed(cls, texts: Mapping[str, str | None], values: Mapping[str, Any]) -> Self:
        """As for all kinds; another sink does not begin where the one before did."""
        other = "sink" in values and not same_topic(values["sink"], texts.get("sink"))
        return super().changed(
            {name: text for name, text in texts.items() if not (other and name == "sink_after")}, values
        )

    @property
    def retry(self) -> RetryPolicy:
        """What becomes of a message that failed."""
        backoff = Backoff(self.retry_min_ms, self.retry_multiplier, self.retry_max_ms)
        return RetryPolicy(backoff, self.max_redeliveries)

    @property
    def shapes(self) -> bool:
        """Whether dispatch has something to follow."""
        return self.paused or any(each is not None for each in (self.max_rate, self.ttl_ms, self.guard, self.priority))

    @property
    def unacked(self) -> UnackedLimit:
        """How much a consumer holds at most, nothing of it yet."""
        return UnackedLimit(self.max_unacked)

    def slots_of(self, subscription_type: str) -> int:
        """How many slots a subscription of a type (one of `SubscriptionType`) has."""
        return SubscriptionType(subscription_type).slots(self.slots)

    def dead_letters(self, topic: str, subscription: str) -> str:
        """The topic to which dead letters go."""
        return self.dead_letter_topic or f"{topic}-{subscription}-DLQ"


def names_of(kind: Any) -> list[str]:  # noqa: ANN401 - a class of policies
    """The names of the policies of a kind."""
    return [each.name for each in fields(kind)]


def _values(texts: Mapping[str, str | None]) -> dict[str, Any]:
    return {name: _value(name, text) for name, text in texts.items() if text is not None}


def _value(name: str, text: str) -> bool | int | str:
    """A policy from its text."""
    if name in ("dead_letter_topic", "sink", "precision", "guard", "guard_tables", "priority", "sink_refused"):
        return text
    if name in ("ack", "paused"):
        if text not in _FLAGS:
            raise BadValue(name, text, ", ".join(_FLAGS))
        return _FLAGS[text]
    try:
        return int(text)
    except ValueError as error:
        raise BadValue(name, text, "a whole number") from error


def _text(value: bool | int | str) -> str:  # noqa: FBT001 - a value, not a switch
    return str(value).lower() if isinstance(value, bool) else str(value)


def check_number(name: str, value: int | None, low: int, high: int) -> None:
    """Refuse a number out of its range; None is none.

    Raises:
        BadValue: it is.
    """
    if value is not None and not low <= value <= high:
        raise BadValue(name, value, f"a whole number in {low}..{high}")


TOPIC = "topic"
"""The type of such a line."""
_PARTITION = re.compile(r"-partition-([0-9]{1,9})\Z")
"""What the names of partitions end with; a longer number is no partition's."""
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
