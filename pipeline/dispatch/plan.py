"""What decides a batch of dispatch, and how far the tables say that dispatch has come."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field
from typing import Any

from pipeline.config.stages import DISPATCH
from pipeline.delta.checkpoints import EVERYTHING_BEFORE, Offset
from pipeline.delta.logs.entries import Commit
from pipeline.delta.warehouse import Warehouse
from pipeline.delta.writing.batchcommits import last_commits
from pipeline.dispatch.core.holding import Allowance
from pipeline.dispatch.prepared import Prepared, PreparedStore
from pipeline.subscriptions.incarnations import Name
from schemas import DELIVERIES, HELD, REJECTED_DISPATCH

NOWHERE: Offset = (0, EVERYTHING_BEFORE - 1)
"""Before the first position of `redelivery`."""


@dataclass(frozen=True)
class Plan:
    """All that decides the rows of a batch beside what it reads; its commit to `rejected_dispatch` carries it.

    `registry` and `lives` are the version of `subscriptions` and the marker by which removed ones and earlier lives
    were dropped; `begin` and `source` are where the batch begins and ends in `redelivery` (version, index). `closed` is
    the version of that table by which redeliveries were left out; -1 when the batch had none. `commands` is the version
    of that table by which something was left out; a repetition follows the rows of its own commit instead. `complete`:
    the batch has nothing to hand over and holds nothing, so the commit to `rejected_dispatch` is all that it does.
    `allowed` is how much might be taken of subscriptions of which something is held, or had to be. `undecided` are
    runs that were held again, since their guard said nothing of them (`pipeline.dispatch.core.withdrawn.named`).
    """

    registry: int
    lives: int
    begin: tuple[int, int]
    source: tuple[int, int]
    closed: int = -1
    commands: int = -1
    complete: bool = False
    allowed: Mapping[Name, Allowance] = field(default_factory=dict)
    undecided: Sequence[Sequence[Any]] = ()

    @property
    def decided_by(self) -> tuple[int, int]:
        """What decides who gets something: `registry` and `lives`."""
        return self.registry, self.lives

    def as_note(self) -> dict[str, Any]:
        """For the metadata of a commit."""
        allowed = [[*name, *astuple(each)] for name, each in self.allowed.items()]
        return {**vars(self), "allowed": allowed}

    @classmethod
    def of_note(cls, note: Mapping[str, Any]) -> Plan:
        """The plan that a commit carries."""
        allowed = {(topic, name): Allowance(*most) for topic, name, *most in note.get("allowed", ())}
        return cls(**{**note, "begin": tuple(note["begin"]), "source": tuple(note["source"]), "allowed": allowed})


@dataclass(frozen=True)
class DispatchProgress:
    """How far dispatch has come, by its last commits and by what is prepared.

    Attributes:
        commits: its last commit to each of its tables, by name.
        prepared: the batches of which something is not visible yet.
    """

    commits: Mapping[str, Commit]
    prepared: Sequence[Prepared]

    @classmethod
    def of(cls, warehouse: Warehouse) -> DispatchProgress:
        """Look into the logs of the tables, and at what is prepared."""
        prepared = PreparedStore(warehouse.files, warehouse.path(DELIVERIES)).all()
        return cls(last_commits(warehouse, DISPATCH), prepared)

    @property
    def owners(self) -> tuple[str, ...]:
        """The checkpoints that wrote, in order."""
        return tuple(sorted({each.owner for each in self.commits.values()} | {each.owner for each in self.prepared}))

    @property
    def rejected(self) -> Plan | None:
        """The plan of the last batch that left something out, or missed a message."""
        commit = self.commits.get(REJECTED_DISPATCH.name)
        return None if commit is None else Plan.of_note(commit.note)

    @property
    def furthest(self) -> Commit | None:
        """The last commit that says how far `redelivery` was taken by a batch that handed nothing over."""
        plan, held = self.rejected, self.commits.get(HELD.name)
        complete = self.commits[REJECTED_DISPATCH.name] if plan is not None and plan.complete else None
        return max((each for each in (held, complete) if each is not None), key=source_of, default=None)

    @property
    def done(self) -> Offset:
        """The place in `redelivery` up to which everything is handed over, held, left out, or prepared."""
        commits = (self.commits.get(DELIVERIES.name), self.furthest)
        places = [each.source for each in self.prepared] + [source_of(each) for each in commits if each is not None]
        return max(places, default=NOWHERE)

    @property
    def torn(self) -> Plan | None:
        """The plan of a batch that has taken more than that: it died, and is repeated as it was."""
        plan = self.rejected
        return None if plan is None or plan.source <= self.done else plan


def source_of(commit: Commit) -> Offset:
    """Where the batch of a commit ends in `redelivery`."""
    version, index = commit.note["source"]
    return version, index
