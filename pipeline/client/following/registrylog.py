"""What the registry says of subscriptions that somebody consumes: whether they are there, and of which type."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from pipeline.client.following.tail import Actions, Follower
from pipeline.delta.deltars import open_table, path_of, query, quoted
from pipeline.storage.files import Files
from pipeline.subscriptions.incarnations import Name
from schemas import SUBSCRIPTIONS
from state import SubscriptionType

_LINES = """
    SELECT topic, subscription, type, active FROM registry WHERE subscription IN ({names}) AND type IN ({types})
"""
_TYPES = ", ".join(quoted(str(each)) for each in SubscriptionType)


class RegistryLog(Follower):
    """Follows `subscriptions`. Its lines are read when somebody asks after a change."""

    def __init__(self, root: str, files: Files) -> None:
        """Nothing is read yet."""
        super().__init__(files, path_of(root, SUBSCRIPTIONS))
        self._root, self._wanted = root, set[str]()
        self._lines: dict[Name, set[str]] | None = None
        self._is_new = True
        self._begin_anew()

    def types(self, topic: str, subscription: str) -> set[str] | None:
        """The types of the lines of a subscription that are active; None: it has no line at all.

        One look serves all of a turn, which ends with `end_turn`.
        """
        if self._is_new:
            self.read()
            self._is_new = False
        if self._lines is None or subscription not in self._wanted:
            self._wanted.add(subscription)
            self._lines = self._looked()
        return self._lines.get((topic, subscription))

    def keep(self, subscriptions: AbstractSet[str]) -> None:
        """Nobody will ask about others than these."""
        if self._wanted - subscriptions:
            self._wanted &= subscriptions
            self._lines = None

    def end_turn(self) -> None:
        """Whoever asks from here on wants to know what is so then."""
        self._is_new = True

    def _looked(self) -> dict[Name, set[str]]:
        text = _LINES.format(names=", ".join(map(quoted, sorted(self._wanted))), types=_TYPES)
        found: dict[Name, set[str]] = {}
        for row in query(text, registry=open_table(self._root, SUBSCRIPTIONS)):
            types = found.setdefault((row["topic"], row["subscription"]), set())
            types |= {row["type"]} if row["active"] else set()
        return found

    def _take(self, _version: int, _actions: Actions) -> None:
        self._lines = None

    def _begin_anew(self) -> None:
        super()._begin_anew()
        self._lines = None
