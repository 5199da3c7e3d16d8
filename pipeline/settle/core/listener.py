"""Subscriptions that acknowledge: who they are, and what they ask for."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.subscriptions.incarnations import Name
from pipeline.subscriptions.policies import Policies


@dataclass(frozen=True)
class Listener:
    """A subscription that acknowledges, in its present incarnation.

    Attributes:
        name: topic and subscription.
        life: the number of the incarnation.
        tick_ms: its precision in ms.
        slots: parts that its consumers divide among them.
        policies: what it asks for.
    """

    name: Name
    life: int
    tick_ms: int
    slots: int
    policies: Policies

    @property
    def incarnation(self) -> tuple[str, str, int]:
        """Topic, subscription and life: what rows name it by."""
        return *self.name, self.life
