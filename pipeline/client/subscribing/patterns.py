"""The topics of a consumer: those that somebody names, or describes by a pattern, also as they come later.

Of the log of messages only what is new is read by a further look, since nobody knows how many topics it has. The
registry is read again when it has moved.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from pipeline.client.checks import checked_topics
from pipeline.client.choices import ConsumerDeadLetterPolicy, RegexSubscriptionMode
from pipeline.client.tables.partitions import counts_of, expanded, partitions_of
from pipeline.client.tables.tail import Actions, Follower
from pipeline.delta.deltars import arrow_of, open_table, path_of, quoted
from pipeline.delta.logs.entries import appended, newest
from pipeline.storage.files import Files
from pipeline.subscriptions.topicnames import (
    full_name,
    is_non_persistent,
    plain_topic,
    spelled_like,
    spellings,
    topic_of,
)
from schemas import MESSAGES, SUBSCRIPTIONS

_SENT = "SELECT DISTINCT topic FROM messages"
_REGISTERED = "SELECT DISTINCT topic FROM registry WHERE active"
_LETTERS = """
    SELECT topic, policies['dead_letter_topic'] AS letters FROM registry WHERE active AND subscription = {name}
"""


class ConsumedTopics:
    """The topics of a consumer. Those that a pattern describes are without the topics of its own dead letters.

    Otherwise each of those would get dead letters of its own, and so on without an end. The topics in which consumers
    of the reference keep retries, `<topic>-<subscription>-RETRY`, are left out as well.
    """

    def __init__(
        self,
        root: str,
        asked: str | Sequence[str] | re.Pattern[str],
        name: str,
        letters: ConsumerDeadLetterPolicy | None,
        mode: RegexSubscriptionMode = RegexSubscriptionMode.PersistentOnly,
    ) -> None:
        """Nothing is looked at yet.

        Args:
            root: the warehouse.
            asked: a name, names, or a pattern of whole names.
            name: of the subscription.
            letters: what is said of its dead letters.
            mode: which topics a pattern finds.

        Raises:
            InvalidTopicName: a topic has no name, or there is none.
        """
        self._root, self._mode, self._own = root, mode, _Own(name, letters)
        self._pattern = asked if isinstance(asked, re.Pattern) and isinstance(asked.pattern, str) else None
        self._spelled = checked_topics(asked) if self._pattern is None else {}
        self._known: _Described | None = None

    @property
    def named(self) -> list[str]:
        """The topics that are named, by their own names; none for a pattern."""
        return list(self._spelled)

    def spell(self, topic: str) -> str:
        """The name of a topic as its program writes it."""
        if self._pattern is not None:
            return topic if fits(self._pattern, (topic, topic_of(topic))) else full_name(topic)
        return spelled_like(self._spelled.get(topic) or self._spelled.get(topic_of(topic), topic), topic)

    def look(self, there: AbstractSet[str] = frozenset()) -> list[str]:
        """Those that are not `there` yet, with partitions in the place of those topics that have some.

        Raises:
            NoWarehouse: the folder lacks a table.
        """
        if self._pattern is None:
            return [each for each in expanded(self._root, self._spelled) if each not in there]
        if self._known is None:
            self._known = _Described(self._root, self._pattern, self._mode, self._own)
        topics = self._known.look()
        return sorted(each for each in topics - there if not self._own.has(each, topics))


class _Own:
    """Which topics have dead letters or retries of a subscription."""

    def __init__(self, name: str, letters: ConsumerDeadLetterPolicy | None) -> None:
        self._name = name
        stated = None if letters is None else letters.dead_letter_topic
        self._stated = set() if stated is None else {plain_topic(stated)}
        self._named, self._unnamed = set[str](), set[str]()

    def read(self, registry: DeltaTable) -> None:
        """What the registry says of the subscription."""
        found = arrow_of(_LETTERS.format(name=quoted(self._name)), registry=registry)
        lines = list(zip(found["topic"].to_pylist(), found["letters"].to_pylist(), strict=True))
        self._named = {letters for _, letters in lines if letters is not None} | self._stated
        self._unnamed = {topic for topic, letters in lines if letters is None}

    def has(self, topic: str, topics: AbstractSet[str]) -> bool:
        """Whether a topic has such messages; `topics`: those that the consumer may get, with what they are parts of."""
        return any(self._has(each, topics) for each in (topic, topic_of(topic)))

    def _has(self, topic: str, topics: AbstractSet[str]) -> bool:
        letters, retries = f"-{self._name}-DLQ", f"-{self._name}-RETRY"
        of = topic.removesuffix(letters)
        if topic in self._named or (of != topic and (of in self._unnamed or _is_of(of, topics))):
            return True
        of = topic.removesuffix(retries)
        return of != topic and _is_of(of, topics)


def _is_of(topic: str, topics: AbstractSet[str]) -> bool:
    """Whether a topic is one of some, or one of which some are partitions."""
    return topic in topics or f"{topic}-partition-0" in topics


class _Described(Follower):
    """The topics that a pattern describes: those with messages or subscriptions, with their partitions.

    A partition is described by the name of its topic, too.
    """

    def __init__(self, root: str, pattern: re.Pattern[str], mode: RegexSubscriptionMode, own: _Own) -> None:
        super().__init__(root, Files(), MESSAGES)
        self._pattern, self._mode, self._own = pattern, mode, own
        self._sent, self._registered, self._registry = set[str](), set[str](), -1
        self._counts: dict[str, int] = {}
        self._begin_anew()

    def look(self) -> AbstractSet[str]:
        """All of them, as they are now."""
        self.read()
        version = newest(self._files, path_of(self._root, SUBSCRIPTIONS), max(0, self._registry))
        if version != self._registry:
            self._registry = self._read_registry()
        whole = self._sent | self._registered
        divided = {each for each in self._counts if each in whole or self._fits(each)}
        parts = {part for each in divided for part in partitions_of(each, self._counts[each])}
        return whole - divided | parts

    def _take(self, version: int, actions: Actions) -> None:
        for added in appended(actions):
            self._add(self._rows(added["path"], version, ["topic"]).column("topic"))

    def _begin_anew(self) -> None:
        opened = open_table(self._root, MESSAGES)
        self._add(arrow_of(_SENT, messages=opened).column("topic"))
        self.next = opened.version() + 1

    def _add(self, topics: pa.ChunkedArray) -> None:
        self._sent |= self._described(pc.unique(topics).to_pylist())

    def _read_registry(self) -> int:
        opened = open_table(self._root, SUBSCRIPTIONS)
        topics = arrow_of(_REGISTERED, registry=opened).column("topic").drop_null()
        self._registered, self._counts = self._described(topics.to_pylist()), counts_of(opened)
        self._own.read(opened)
        return opened.version()

    def _described(self, topics: Iterable[str]) -> set[str]:
        return {each for each in topics if each in self._sent or self._fits(each)}

    def _fits(self, topic: str) -> bool:
        wrong = {RegexSubscriptionMode.PersistentOnly: True, RegexSubscriptionMode.NonPersistentOnly: False}
        if wrong.get(self._mode) is is_non_persistent(topic):
            return False
        return fits(self._pattern, (*spellings(topic), *spellings(topic_of(topic))))


def fits(pattern: re.Pattern[str], names: Iterable[str]) -> bool:
    """Whether a pattern describes one of some names as a whole."""
    return any(pattern.fullmatch(each) for each in names)
