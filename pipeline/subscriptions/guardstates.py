"""Guards that cannot be evaluated, as files of a warehouse, for people. What counts is in `held`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256

from pipeline.storage.files import Files
from pipeline.storage.notes import Notes
from pipeline.subscriptions.incarnations import Name

_FOLDER = "_guards"


@dataclass(frozen=True)
class GuardState:
    """A guard that fails.

    Attributes:
        topic: of the subscription.
        subscription: its name.
        guard: the condition.
        error: why it cannot be evaluated.
        since_ms: since when, ms UTC.
        messages: on so many messages; the others come. 0: on any, and everything of the subscription waits.
    """

    topic: str
    subscription: str
    guard: str
    error: str
    since_ms: int
    messages: int = 0

    @property
    def text(self) -> str:
        """Why, for people."""
        return f"on {self.messages} messages: {self.error}" if self.messages else self.error


class GuardStates:
    """The files of a warehouse: one for each guard that fails."""

    def __init__(self, files: Files, root: str) -> None:
        """Read nothing yet."""
        self._notes = Notes(files, f"{root}/{_FOLDER}", GuardState)

    def put(self, state: GuardState) -> None:
        """Note that a guard fails."""
        self._notes.put(_hashed((state.topic, state.subscription)), state)

    def drop(self, name: Name) -> None:
        """The guard of a subscription does not fail."""
        self._notes.drop(_hashed(name))

    def all(self) -> dict[Name, GuardState]:
        """All that fail, by topic and subscription."""
        return {(each.topic, each.subscription): each for each in self._notes.all().values()}

    def errors(self, guards: Mapping[Name, str | None]) -> dict[Name, str]:
        """Why guards fail, of subscriptions that have these."""
        noted = self.all() if any(guard is not None for guard in guards.values()) else {}
        return {name: each.text for name, each in noted.items() if guards.get(name) == each.guard}


def _hashed(name: Name) -> str:
    """The name of the note of a subscription: a topic may have any characters."""
    return sha256(json.dumps(name).encode()).hexdigest()[:32]
