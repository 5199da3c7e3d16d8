"""The commits of a batch: the same protocol for every stage (`docs/batches.md`).

A batch is decided by the rows of its source and by its *plan*: all that decides its rows and is not in them. The plan
is noted with its first commit, or before that. Its commits go to the tables of the stage in one order. Who repeats a
batch follows the plan that is noted, and passes over the commits that are there.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pipeline.config.options import Observer
from pipeline.delta.checkpoints import COMMITS
from pipeline.delta.logs.entries import Commit
from pipeline.delta.warehouse import Warehouse
from pipeline.delta.writing.oncewriter import Rows, Sink, last_commit
from schemas import Table


@dataclass(frozen=True)
class BatchCommits:
    """One batch of a stage: what is committed of it, and what it commits.

    Attributes:
        stage: whose batch it is.
        sinks: the tables of the stage, by name.
        owner: the identity of the stage's checkpoint.
        number: of the batch.
        observe: is called with each commit, as `<stage>.<table>`.
    """

    stage: str
    sinks: Mapping[str, Sink]
    owner: str
    number: int
    observe: Observer

    @property
    def plan(self) -> Mapping[str, Any] | None:
        """What its first commit carries; None: nothing of it is committed.

        Raises:
            CheckpointBehind: a table holds a later batch: somebody set the checkpoint back.
        """
        there = (sink.found(self.owner, self.number) for sink in self.sinks.values())
        return next((commit.note for commit in there if commit is not None), None)

    def note(self, table: Table) -> Mapping[str, Any] | None:
        """What the commit to a table carries; None: the table does not hold the batch.

        Raises:
            CheckpointBehind: it holds a later one.
        """
        commit = self.sinks[table.name].found(self.owner, self.number)
        return None if commit is None else commit.note

    def append(self, table: Table, rows: Rows, plan: Mapping[str, Any]) -> None:
        """Append the rows of a table in one commit that carries the plan, unless the table holds the batch."""
        self.sinks[table.name].append(rows, self.owner, self.number, plan)
        self.observe(f"{self.stage}.{table.name}", self.number)


def last_commits(warehouse: Warehouse, stage: str, *tables: Table) -> dict[str, Commit]:
    """The last commit of a stage to each of its tables that has one, in the order of `COMMITS`; or of some of them."""
    found = {each.name: last_commit(warehouse, each, stage) for each in tables or COMMITS[stage]}
    return {name: commit for name, commit in found.items() if commit is not None}
