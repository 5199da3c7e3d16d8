"""Lines of the registry, as everybody reads them: the stages, the client and the command.

Any Delta writer may append a line. So a line may say what nobody can follow, and several lines may name one
subscription. Of these one counts, and it is the same one for everybody.

Policies of a topic are a line without a subscription, of the type `topic`, that is not active: stages that know nothing
of them pass over it. Ingest reads it at the version of the registry that its plan notes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from pipeline.config.errors import BadValue
from pipeline.subscriptions.calendars import Calendars
from pipeline.subscriptions.fairness import FairRule
from pipeline.subscriptions.incarnations import Name, Sought, Subscription
from pipeline.subscriptions.policies import Policies
from pipeline.subscriptions.topicnames import topic_of
from pipeline.subscriptions.topicpolicies import TopicPolicies
from pipeline.subscriptions.uniqueness import ON_REQUEST, Uniqueness
from pipeline.subscriptions.windows import OpenHours, TopicWindow
from state import SubscriptionType
from state.buckets import MAX_TICK

TOPIC, PARTITIONS = "topic", "partitions"
"""The types of the line of a topic, and of that which counts its partitions, in its map by the same name."""
MOST_PARTITIONS = 10_000
LINES = f"""
    SELECT topic, subscription, type, active, tick_ms, start, policies FROM {{rows}}
    WHERE active OR subscription = '' AND type = '{TOPIC}' AND NOT active AND topic IS NOT NULL
"""  # noqa: S608 - our own words
"""The lines that count, and those of topics, for both Spark and DataFusion."""
PARTITION_COUNTS = f"""
    SELECT topic, MAX(partitions) AS partitions FROM (
        SELECT topic, TRY_CAST(policies['{PARTITIONS}'] AS BIGINT) AS partitions FROM {{rows}}
        WHERE NOT active AND subscription = '' AND type = '{PARTITIONS}' AND topic IS NOT NULL
    ) WHERE partitions BETWEEN 1 AND {MOST_PARTITIONS} GROUP BY topic
"""  # noqa: S608 - our own words
"""The number of partitions of each topic that has some, for both, too."""
_EARLIEST = "earliest"
_TYPES = {str(each) for each in SubscriptionType}
_SHARED = str(SubscriptionType.SHARED)


@dataclass(frozen=True)
class RegistryLine:
    """An active line of the registry, with the texts that it has there; NULL is an empty text, or 0.

    What follows from them is found out when it is asked for, and kept: lines stay from version to version.

    Attributes:
        topic: the topic listened to.
        name: the subscription.
        kind: its type, which may be none of `SubscriptionType`.
        start: where it begins: `earliest`, `latest`, or the text of the last seek.
        tick_ms: its precision, ms.
        texts: names and texts of its policies, by name.
    """

    topic: str
    name: str
    kind: str
    start: str
    tick_ms: int
    texts: tuple[tuple[str, str | None], ...]

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> RegistryLine:
        """From a row of `LINES`."""
        texts = tuple(sorted(dict(row["policies"] or ()).items()))
        names = row["topic"] or "", row["subscription"] or ""
        return cls(*names, row["type"] or "", row["start"] or "", row["tick_ms"] or 0, texts)

    @property
    def named(self) -> Name:
        """Topic and subscription."""
        return self.topic, self.name

    @property
    def type(self) -> str:
        """Its type; one that is none is read as shared."""
        return self.kind if self.kind in _TYPES else _SHARED

    @cached_property
    def subscription(self) -> Subscription:
        """What ingest follows: from where on it listens, and how precisely."""
        sought = Sought.of_text(self.start)
        lost = Sought.is_meant(self.start, sought)
        return Subscription(self.topic, self.name, self.tick_ms, self.start == _EARLIEST, sought, lost)

    @property
    def policies(self) -> Policies:
        """What is followed of its policies, whatever they say."""
        return self._followed[0]

    @property
    def wrong(self) -> str | None:
        """Why not all of its policies can be followed; None: they can."""
        return self._followed[1]

    @cached_property
    def _followed(self) -> tuple[Policies, str | None]:
        texts = dict(self.texts)
        try:
            return Policies.of_map(texts), None
        except BadValue as error:
            return Policies.followed(texts), str(error)

    @property
    def acknowledges(self) -> bool:
        """Whether its consumers acknowledge."""
        return ("ack", "true") in self.texts

    @property
    def has_tick(self) -> bool:
        """Whether its precision is one."""
        return 1 <= self.tick_ms <= MAX_TICK

    @cached_property
    def _order(self) -> tuple[object, ...]:
        sought = self.subscription.sought
        texts = [(name, text or "") for name, text in self.texts]
        life = 0 if sought is None else sought.life
        return self.subscription.fits, -self.tick_ms, life, self.start == _EARLIEST, self.kind, texts

    def counts_before(self, other: RegistryLine) -> bool:
        """Whether this line counts, and not the other one, of two that name one subscription.

        A line by which somebody can join counts before one by which nobody can. Then the finest tick counts, then the
        latest seek, then `earliest`. The last word has the order of types and policies, which says nothing, but is the
        same for everybody: how lines lie in the table is not.
        """
        return self._order > other._order


def wrong_since(lines: Mapping[Name, RegistryLine], before: Mapping[Name, RegistryLine]) -> Iterator[tuple[Name, str]]:
    """Who has policies that cannot be followed, and why, but for those of which that was so before."""
    for name, line in lines.items():
        if line.wrong and (name not in before or before[name].wrong != line.wrong):
            yield name, line.wrong


def counted(lines: Iterable[RegistryLine]) -> dict[Name, RegistryLine]:
    """The line that counts of each subscription, by topic and name; in the order of the lines."""
    found: dict[Name, RegistryLine] = {}
    for line in lines:
        other = found.get(line.named)
        if other is None or line.counts_before(other):
            found[line.named] = line
    return found


_NOTHING_STATED = TopicPolicies()


@dataclass(frozen=True)
class Topics:
    """The policies of all topics that have some.

    Attributes:
        policies: by topic; a partition without any of its own has those of its topic.
        wrong: topics one of whose policies cannot be followed, and why; the others count, as those of subscriptions do.
        unclear: the texts of the registry of these topics.
        replacing: topics without the policy `unique` on which messages ask to replace others.
    """

    policies: Mapping[str, TopicPolicies] = field(default_factory=dict)
    wrong: Mapping[str, str] = field(default_factory=dict)
    unclear: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    replacing: frozenset[str] = frozenset()

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
                followed = TopicPolicies.followed(dict(texts))
                if followed != _NOTHING_STATED:
                    policies[topic] = followed
        return cls(policies, wrong, unclear)

    @cached_property
    def calendars(self) -> frozenset[str]:
        """The calendars that windows of topics name."""
        named = (each.window_calendar for each in self.policies.values() if each.window is not None)
        return frozenset(each for each in named if each is not None)

    def with_days(self, calendars: Calendars) -> Topics:
        """The same with the days on which windows stay closed. A calendar that is not there is wrong, and has none."""
        policies, wrong = dict(self.policies), dict(self.wrong)
        for topic, each in self.policies.items():
            if each.window_calendar is not None:
                try:
                    policies[topic] = each.closed_on(calendars.off(each.window_calendar))
                except BadValue as error:
                    wrong[topic] = f"window_{error}"
        return replace(self, policies=policies, wrong=wrong)

    def with_replacing(self, owners: Iterable[str]) -> Topics:
        """The same where messages of some more topics ask to replace others; a topic with the policy follows that."""
        more = self.replacing.union(owners)
        return self if more == self.replacing else replace(self, replacing=more)

    @cached_property
    def windows(self) -> list[TopicWindow]:
        """The windows of all topics that have one."""
        return [each.opening for each in self.policies.values() if each.opening is not None]

    @cached_property
    def unique(self) -> dict[str, Uniqueness]:
        """The topics on which messages may take the place of others, or are refused for them, and how."""
        found = ((topic, each.uniqueness) for topic, each in self.policies.items())
        return dict.fromkeys(self.replacing, ON_REQUEST) | {topic: rule for topic, rule in found if rule is not None}

    @property
    def are_unsure(self) -> bool:
        """Whether due times follow from more than rows and policies: zone rules, or what waits."""
        return bool(self.windows) or bool(self.unique)

    def owner(self, topic: str) -> str:
        """The topic whose policies a topic has: a partition without any of its own has those of its topic."""
        return topic if topic in self.policies else topic_of(topic)

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
_NOTHING_KNOWN: Mapping[RegistryLine, RegistryLine] = {}


@dataclass(frozen=True)
class Registered:
    """What the registry says at a version.

    Attributes:
        lines: the line of each subscription that is active.
        topics: policies of topics.
    """

    lines: Mapping[Name, RegistryLine] = field(default_factory=dict)
    topics: Topics = NO_POLICIES

    @cached_property
    def subscriptions(self) -> dict[Name, Subscription]:
        """What ingest follows of lines. For one version it is the same object each time."""
        return {name: line.subscription for name, line in self.lines.items()}

    @cached_property
    def shapings(self) -> dict[Name, Policies]:
        """The policies of the subscriptions for which dispatch has something to follow."""
        found = ((name, _within_topic(line.policies, self.topics.of(line.topic))) for name, line in self.lines.items())
        return {name: each for name, each in found if each.shapes and all(name)}

    @cached_property
    def hours(self) -> dict[Name, OpenHours]:
        """The open hours of the subscriptions that have some."""
        return {name: each.hours for name, each in self.shapings.items() if each.hours is not None}

    @cached_property
    def fair(self) -> dict[Name, FairRule]:
        """By what subscriptions take turns that do."""
        return {name: each.turns for name, each in self.shapings.items() if each.turns is not None}

    @cached_property
    def acknowledging(self) -> dict[Name, RegistryLine]:
        """The lines of subscriptions whose consumers acknowledge."""
        return {name: line for name, line in self.lines.items() if line.acknowledges and all(name)}

    @property
    def unclear(self) -> set[Name]:
        """Subscriptions whose tick, or one of whose policies, cannot be followed as the registry says it."""
        return {name for name, line in self.lines.items() if line.wrong or not line.has_tick}

    @classmethod
    def of_rows(
        cls, rows: Sequence[Mapping[str, Any]], known: Mapping[RegistryLine, RegistryLine] = _NOTHING_KNOWN
    ) -> Registered:
        """From the rows of `LINES`; `known` lines are taken in the place of equal ones."""
        read = map(RegistryLine.of_row, (row for row in rows if row["active"]))
        topics = Topics.of_rows((row["topic"], row["policies"]) for row in rows if not row["active"])
        return cls(counted(known.get(line, line) for line in read), topics)


def _within_topic(policies: Policies, topic: TopicPolicies) -> Policies:
    return policies if policies.ttl_ms is not None or topic.ttl_ms is None else replace(policies, ttl_ms=topic.ttl_ms)
