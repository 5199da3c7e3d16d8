"""The registry of subscriptions.

It moves while stages run. Ingest reads it once a batch, at a version that it notes in its commits, and writes the
answer into the rows of `segments`; the stages behind it look at those rows. Policies of topics are in it, too: by them
ingest says when a message is due.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress

import pyarrow as pa

from pipeline.config.lazyspark import raised
from pipeline.delta.logs.entries import entry, newest, takes_out
from pipeline.delta.reading.files import read_files
from pipeline.delta.warehouse import Warehouse, ask
from pipeline.storage.arrays import arrow_schema
from pipeline.subscriptions.incarnations import TICK_CHANGED, Name, Subscription
from pipeline.subscriptions.lines import LINES, Registered, RegistryLine
from schemas import INBOX, SUBSCRIPTIONS

_NOTHING: Mapping[str, str] = {}
TOPIC_POLICY = "topic_policy"
"""The reason in `rejected_ingest` for a topic whose policies cannot be followed."""


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
    """The registry at a version; read again only when the version has moved.

    What was found out about a line is kept while the line stays: with ten thousand of them that takes longer than to
    read the table.
    """

    def __init__(self, warehouse: Warehouse) -> None:
        self._warehouse, self._files = warehouse, warehouse.files
        self._lines: dict[RegistryLine, RegistryLine] = {}
        self._known: tuple[int, Registered] = (-1, Registered())
        self._before: tuple[int, Registered] = (-1, Registered())
        self._between: tuple[tuple[int, int], frozenset[Name]] = ((-1, -1), frozenset())

    def version(self) -> int:
        """The newest version of the table. One look at its log when it has not moved."""
        return newest(self._files, self._warehouse.path(SUBSCRIPTIONS), self._known[0])

    def newest(self) -> Registered:
        """What it says now."""
        return self.at(self.version())

    def at(self, version: int) -> Registered:
        """What it says at a version of the table."""
        known = self._known
        if known[0] != version:
            self._known = known = (version, self._read(version))
        return known[1]

    def gone_between(self, known: Iterable[Name], before: int, after: int) -> frozenset[Name]:
        """Those who were not active at some version between two: who left and came back begins another life.

        A version that was cleaned away tells nothing.
        """
        if self._between[0] != (before, after):
            self._between = ((before, after), self._gone(before, after))
        return self._between[1].intersection(known)

    def not_held_at(self, version: int, lines: Iterable[Subscription]) -> tuple[Subscription, ...]:
        """Those of some lines that the registry did not hold, just so, at a version (-1: it held none)."""
        before = self._held_at(version).subscriptions
        return tuple(each for each in lines if before.get((each.topic, each.name)) != each)

    def wrong_since(self, before: int, version: int) -> dict[str, str]:
        """Topics whose policies cannot be followed, and why, that were not so at a version before."""
        wrong = self.at(version).topics.wrong
        known = self._held_at(before).topics.wrong if wrong else {}
        return {topic: why for topic, why in wrong.items() if known.get(topic) != why}

    def _held_at(self, version: int) -> Registered:
        """What it held at a version before (-1: nothing); nothing is known of one that was cleaned away."""
        if self._before[0] != version:
            self._before = (version, Registered())
            with suppress(*raised("PySparkException")):
                self._before = (version, self._read(version) if version >= 0 else Registered())
        return self._before[1]

    def _gone(self, before: int, after: int) -> frozenset[Name]:
        """Who is active after some versions and was not at one of them.

        Most commits add a line, or put another one in its place. So only what commits took out is looked at, and a
        version is read as a whole when somebody who left in it has come back.
        """
        left = {version: names for version in range(before + 1, after) if (names := self._left_in(version))}
        back = self.at(after).lines.keys() & set().union(*left.values()) if left else set[Name]()
        gone = set[Name]()
        for version, names in left.items():
            # A version that was cleaned away tells nothing.
            with suppress(*raised("PySparkException")):
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
        except raised("PySparkException", OSError):
            return set()

    def _active_in(self, paths: list[str]) -> set[Name]:
        """Who has an active line in some files."""
        columns = ("topic", "subscription", "active")
        rows = read_files(self._warehouse, SUBSCRIPTIONS, paths, columns)
        return {(row["topic"], row["subscription"]) for row in rows.to_pylist() if row["active"]}

    def _read(self, version: int) -> Registered:
        found = Registered.of_rows(ask(self._warehouse, SUBSCRIPTIONS, LINES, version), self._lines)
        self._lines = {line: line for line in found.lines.values()}
        return found
