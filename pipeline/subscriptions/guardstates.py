"""Guards that cannot be evaluated, as files of a warehouse, for people. What counts is in `held`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256

from pipeline.storage.files import Files
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
        self._files, self._folder = files, f"{root}/{_FOLDER}"

    def put(self, state: GuardState) -> None:
        """Note that a guard fails."""
        self._files.write(self._path((state.topic, state.subscription)), json.dumps(asdict(state)), lasting=False)

    def drop(self, name: Name) -> None:
        """The guard of a subscription does not fail."""
        self._files.delete(self._path(name))

    def all(self) -> dict[Name, GuardState]:
        """All that fail, by topic and subscription."""
        names = (each for each in self._files.names(self._folder) if each.endswith(".json"))
        texts = [self._files.text_if_there(f"{self._folder}/{name}") for name in names]
        found = (GuardState(**json.loads(text)) for text in texts if text)
        return {(each.topic, each.subscription): each for each in found}

    def errors(self, guards: Mapping[Name, str | None]) -> dict[Name, str]:
        """Why guards fail, of subscriptions that have these."""
        noted = self.all() if any(guard is not None for guard in guards.values()) else {}
        return {name: each.text for name, each in noted.items() if guards.get(name) == each.guard}

    def _path(self, name: Name) -> str:
        return f"{self._folder}/{sha256(json.dumps(name).encode()).hexdigest()[:32]}.json"
