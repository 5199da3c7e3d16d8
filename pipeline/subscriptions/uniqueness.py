"""By what messages of a topic are unique, and what becomes of newer ones: from the policies of the topic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from pipeline.config.errors import BadValue
from pipeline.subscriptions.records import REPLACES
from state.unique import Mode

BY_KEY, _PROPERTY = "key", "property:"
BY = "key, or property:NAME, the property that has it"
"""What messages may be told apart by, for people."""


@dataclass(frozen=True)
class Uniqueness:
    """What becomes of messages with the key of one that waits.

    Attributes:
        mode: what.
        property_name: the property that has the key; None: it is that of the message.
        max_wait_ms: with `extend`, from the publication of the first message to the latest time; else 0.
        asked: only messages that have the property replace others; what has none has the key of the message.
    """

    mode: Mode
    property_name: str | None = None
    max_wait_ms: int = 0
    asked: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The properties that may have the key, the first of them that a message has counts; empty: its own key."""
        own = self.property_name or ""
        return (own, "") if self.asked else (own,)

    @classmethod
    def of_values(cls, mode: str, by: str, max_wait_ms: int | None) -> Self:
        """From policies.

        Raises:
            BadValue: there is no such mode or key, or the longest wait does not go with the mode.
        """
        if mode not in set(Mode):
            raise BadValue("unique", mode, ", ".join(Mode))
        name = by.removeprefix(_PROPERTY).strip() if by.startswith(_PROPERTY) else None
        if by != BY_KEY and not name:
            raise BadValue("unique_by", by, BY)
        if (mode == Mode.EXTEND) != (max_wait_ms is not None):
            allowed = "a topic with unique = extend" if max_wait_ms is not None else "a duration, with unique = extend"
            raise BadValue("unique_max_wait_ms", max_wait_ms, allowed)
        return cls(Mode(mode), name, max_wait_ms or 0)


ON_REQUEST = Uniqueness(Mode.REPLACE, REPLACES, asked=True)
"""Of a topic without the policy, as long as messages ask to replace others."""
