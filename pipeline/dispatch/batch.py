"""By what a batch of dispatch is decided, and what it takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from pipeline.dispatch.backlogchange import BacklogChange
from pipeline.dispatch.closed import Closed
from pipeline.dispatch.core.holding import Allowance, Who
from pipeline.dispatch.core.withdrawn import Withdrawn
from pipeline.dispatch.priority import Priorities
from pipeline.dispatch.release_local import LocalRelease
from pipeline.dispatch.release_spark import SparkRelease
from pipeline.subscriptions.incarnations import Name
from pipeline.subscriptions.lines import NO_POLICIES, Topics
from pipeline.subscriptions.policies import Policies

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Release = LocalRelease | SparkRelease
Rows: TypeAlias = "pa.Table | DataFrame"
"""Of `rejected_dispatch`."""


@dataclass(frozen=True)
class BatchResult:
    """What a batch takes.

    Attributes:
        release: what it hands over; None when nobody listens to any of it.
        left_out: rows of `rejected_dispatch` for what is withdrawn, has expired, or does not meet its guard.
        change: what it does to the backlog.
        counts: how many positions are left out by policies, for each reason and incarnation of a subscription.
        handed: how many positions are handed over of each subscription that has a rate.
        undecided: runs that are held again, since their guard says nothing of them; None: none are.
    """

    release: Release | None
    left_out: Rows | None
    change: BacklogChange
    counts: Mapping[tuple[str, Who], int] = field(default_factory=dict)
    handed: Mapping[Name, int] = field(default_factory=dict)
    undecided: pa.Table | None = None

    def __bool__(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.release is not None or self.left_out is not None or self.change)


@dataclass(frozen=True)
class BatchInputs:
    """By what a batch is decided: who listens, what is closed, what is withdrawn, how much may be taken of whom.

    `shapings` are the policies by which messages are left out, at version `registry`, and `topics` those of topics. A
    batch that is repeated has none: what was left out by them is among what is withdrawn. `priorities` are those of the
    version that decides.
    """

    lives: Mapping[Name, int]
    closed: Closed
    withdrawn: Withdrawn
    allowed: Mapping[Name, Allowance]
    shapings: Mapping[Name, Policies] = field(default_factory=dict)
    registry: int = -1
    priorities: Priorities = field(default_factory=dict)
    topics: Topics = NO_POLICIES

    def holding(self, name: Name) -> BatchInputs:
        """The inputs when nothing of a subscription may be taken but what has expired."""
        return replace(self, allowed={**self.allowed, name: self.allowed[name].only_expired})
