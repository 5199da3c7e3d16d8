"""The registry of subscriptions.

It moves while stages run. Ingest reads it once a batch, at a version that it notes in its commits, and writes the
answer into the rows of `segments`; the stages behind it look at those rows. Policies of topics are in it, too: by them
ingest says when a message is due.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pipeline.delta.logs.entries import entry, newest
from pipeline.delta.logs.logfiles import takes_out
from pipeline.delta.reading.files import read_files
from pipeline.delta.smallqueries import ask
from pipeline.delta.warehouse import Warehouse
from pipeline.storage.arrays import arrow_schema
from pipeline.storage.hadoop import session_files
from pipeline.subscriptions.audience import Subscription
from pipeline.subscriptions.incarnations import TICK_CHANGED, Name
from pipeline.subscriptions.policies import Shaping, line_order
from pipeline.subscriptions.sought import Sought
from pipeline.subscriptions.topicpolicies import LINES, NO_POLICIES, Topics
from schemas import INBOX, SUBSCRIPTIONS

_LINES = f"SELECT topic, subscription, type, active, tick_ms, start, policies FROM {{rows}} WHERE active OR {LINES}"  # noqa: S608
_NOTHING: Mapping[str, str] = {}
TOPIC_POLICY = "topic_policy"
"""The reason in `rejected_ingest` for a topic whose policies cannot be followed."""


@dataclass(frozen=True)
class Registered:
    """What the stages take from the registry at a version.

    Attributes:
        lines: active subscriptions.
        topics: policies of topics.
        shapings: what dispatch follows, of the subscriptions for which that is something.
    """

    lines: dict[Name, Subscription]
    topics: Topics = NO_POLICIES
    shapings: dict[Name, Shaping] = field(default_factory=dict)


def refusals(refused: Iterable[Subscription], wrong: Mapping[str, str] = _NOTHING) -> pa.Table:
    """A reason for each line of the registry that is not followed, in the columns of the inbox.

    Args:
        refused: subscriptions.
        wrong: topics, and why their policies are not followed.
    """
    rows = [
        {
            "reason": each.wrong or TICK_CHANGED,
            "topic": each.topic,
            "properties": {"subscription": each.name, "tick_ms": str(each.tick_ms)},
        }
        for each in refused
    ]
    rows += [{"reason": TOPIC_POLICY, "topic": topic, "properties": {"policy": why}} for topic, why in wrong.items()]
    return pa.Table.from_pylist(rows, schema=arrow_schema(INBOX.columns).append(pa.field("reason", pa.string())))


class Registry:
    """The registry at a version; read again only when the version has moved."""

    def __init__(self, spark: SparkSession, warehouse: Warehouse) -> None:
        """Nothing is read yet."""
        self._spark, self._warehouse, self._files = spark, warehouse, session_files(spark)
        self._known: tuple[int, Registered] = (-1, Registered({}))
        self._before: tuple[int, Registered] = (-1, Registered({}))
        self._between: tuple[tuple[int, int], frozenset[Name]] = ((-1, -1), frozenset())

    def version(self) -> int:
        """The newest version of the table. One look at its log when it has not moved."""
        return newest(self._files, self._warehouse.path(SUBSCRIPTIONS), self._known[0])

    def at(self, version: int) -> dict[Name, Subscription]:
        """The active subscriptions at a version of the table, by topic and name."""
        return self._at(version).lines

    def topics(self, version: int) -> Topics:
        """The policies of topics at a version of the table."""
        return self._at(version).topics

    def gone_between(self, known: Iterable[Name], before: int, after: int) -> frozenset[Name]:
        """Those who were not active at some version between two: who left and came back begins another life.

        A version that was cleaned away tells nothing.
        """
        if self._between[0] != (before, after):
            self._between = ((before, after), self._gone(before, after))
        return self._between[1].intersection(known)

    def shapings(self, version: int) -> dict[Name, Shaping]:
        """What dispatch follows of policies at a version of the table, of those for whom that is something."""
        return self._at(version).shapings

    def not_held_at(self, version: int, lines: Iterable[Subscription]) -> tuple[Subscription, ...]:
        """Those of some lines that the registry did not hold, just so, at a version (-1: it held none)."""
        before = self._held_at(version).lines
        return tuple(each for each in lines if before.get((each.topic, each.name)) != each)

    def wrong_since(self, before: int, version: int) -> dict[str, str]:
        """Topics whose policies cannot be followed, and why, that were not so at a version before."""
        wrong = self.topics(version).wrong
        known = self._held_at(before).topics.wrong if wrong else {}
        return {topic: why for topic, why in wrong.items() if known.get(topic) != why}

    def _at(self, version: int) -> Registered:
        if self._known[0] != version:
            self._known = (version, self._read(version))
        return self._known[1]

    def _held_at(self, version: int) -> Registered:
        """What it held at a version before (-1: nothing); nothing is known of one that was cleaned away."""
        if self._before[0] != version:
            self._before = (version, Registered({}))
            with suppress(PySparkException):
                self._before = (version, self._read(version) if version >= 0 else Registered({}))
        return self._before[1]

    def _gone(self, before: int, after: int) -> frozenset[Name]:
        """Who is active after some versions and was not at one of them.

        Most commits add a line, or put another one in its place. So only what commits took out is looked at, and a
        version is read as a whole when somebody who left in it has come back.
        """
        left = {version: names for version in range(before + 1, after) if (names := self._left_in(version))}
        back = set(self.at(after)) & set().union(*left.values()) if left else set[Name]()
        gone = set[Name]()
        for version, names in left.items():
            # A version that was cleaned away tells nothing.
            with suppress(PySparkException):
                gone |= names & back - self._read(version).lines.keys() if names & back else set()
        return frozenset(gone)

    def _left_in(self, version: int) -> set[Name]:
        """Whose active lines a commit took out without putting others in their place."""
        path = self._warehouse.path(SUBSCRIPTIONS)
        actions = entry(self._files, path, version) or ()
        if not takes_out(actions):
            return set()
        out = [action["remove"]["path"] for action in actions if "remove" in action]
        new = [action["add"]["path"] for action in actions if "add" in action]
        try:
            return self._active_in(out) - self._active_in(new)
        except (OSError, PySparkException):
            return set()

    def _active_in(self, paths: list[str]) -> set[Name]:
        """Who has an active line in some files."""
        columns = ("topic", "subscription", "active")
        rows = read_files(self._spark, self._files, self._warehouse.path(SUBSCRIPTIONS), SUBSCRIPTIONS, paths, columns)
        return {(row["topic"], row["subscription"]) for row in rows.to_pylist() if row["active"]}

    def _read(self, version: int) -> Registered:
        rows = ask(self._spark, self._warehouse, SUBSCRIPTIONS, _LINES, version)
        told = sorted((row for row in rows if row["active"]), key=_order)
        found = [_line(row["topic"], row["subscription"], row["tick_ms"], row["start"]) for row in told]
        lines = {(each.topic, each.name): each for each in sorted(found, key=_settings)}
        topics = Topics.of_rows((row["topic"], row["policies"]) for row in rows if not row["active"])
        shapings = {
            (row["topic"], row["subscription"]): _shaping(row["policies"], row["topic"], topics)
            for row in told
            if row["topic"] and row["subscription"]
        }
        return Registered(lines, topics, {name: each for name, each in shapings.items() if each != Shaping()})


def _order(row: Any) -> tuple[object, ...]:  # noqa: ANN401 - a row of Spark, or a dictionary
    return line_order(row["topic"] or "", row["subscription"] or "", row["type"] or "", dict(row["policies"] or ()))


def _line(topic: str | None, name: str | None, tick_ms: int | None, start: str | None) -> Subscription:
    """A line; any Delta writer may have left NULL in it, by which nobody can join."""
    sought = Sought.of_text(start)
    lost = Sought.is_meant(start, sought)
    return Subscription(topic or "", name or "", tick_ms or 0, start == "earliest", sought, lost)


def _shaping(texts: Iterable[tuple[str, str]] | None, topic: str, topics: Topics) -> Shaping:
    found = Shaping.followed(dict(texts or ()))
    return found if found.ttl_ms is not None else replace(found, ttl_ms=topics.of(topic).ttl_ms)


def _settings(subscription: Subscription) -> tuple[str, str, int, int, bool]:
    """Orders lines that name one subscription: the last one counts, in every reading."""
    sought = 0 if subscription.sought is None else subscription.sought.life
    return subscription.topic, subscription.name, -subscription.tick_ms, sought, subscription.earliest
