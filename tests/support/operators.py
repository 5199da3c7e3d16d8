"""What operators do to a warehouse while stages run, or are away: rules for state machines on stages without a JVM."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from shutil import copytree, rmtree

from deltalake import DeltaTable
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule
from hypothesis.strategies import SearchStrategy

from pipeline.config.settings import MINUTE_MS, SECOND_MS
from pipeline.config.wallclock import wall_ms
from pipeline.delta.deltars import open_table
from pipeline.maintenance.cutlogs import cut_log
from schemas import (
    CLOSED,
    CONSUMER_EVENTS,
    CURSORS,
    DELIVERIES,
    HELD,
    INBOX,
    PUBLICATIONS,
    REDELIVERY,
    REJECTED_DISPATCH,
    REJECTED_INGEST,
    REJECTED_SETTLE,
    SEGMENTS,
    SUBSCRIPTIONS,
    TABLES,
    Table,
)
from tests.support.maintained import sharply
from tests.support.stages import Stages

_TABLES = (INBOX, HELD, SEGMENTS, REDELIVERY, DELIVERIES, CURSORS, CLOSED, CONSUMER_EVENTS, REJECTED_DISPATCH)
_MERGED = (INBOX, SUBSCRIPTIONS, DELIVERIES, PUBLICATIONS, REJECTED_DISPATCH, REJECTED_INGEST, REJECTED_SETTLE)
"""On these `docs/tables.md` allows an OPTIMIZE."""
_BY_NAME = {table.name: table for table in TABLES}
_INTERVAL = "delta.checkpointInterval"
RETAIN_MS = 30 * MINUTE_MS
"""Maintenance keeps what is settled for so long."""


def _names(tables: Sequence[Table]) -> SearchStrategy[str]:
    return st.sampled_from([table.name for table in tables])


class Operators(RuleBasedStateMachine):
    """Nothing of it may change what becomes of a message."""

    stages: Stages
    MODEL: tuple[str, ...]
    """The attributes that say what a warehouse must hold: they are put back with it."""
    cuts: bool = True
    """Whether logs may be cut as far as nobody in the warehouse needs them."""

    def shorten_logs(self) -> None:
        """Give logs a checkpoint every other commit, or none would be cut in so few steps."""
        for table in _TABLES:
            self.opened(table).alter.set_table_properties({_INTERVAL: "2"})

    def opened(self, table: Table) -> DeltaTable:
        """A table as any writer opens it."""
        return open_table(self.stages.root, table)

    @rule(name=_names(_TABLES), number=st.integers(2, 5), vacuum=st.booleans())
    def change(self, name: str, number: int, *, vacuum: bool) -> None:
        """What `docs/tables.md` allows on each of these tables: a VACUUM with the usual hours, or a property."""
        if vacuum:
            self.opened(_BY_NAME[name]).vacuum(dry_run=False)
        else:
            self.opened(_BY_NAME[name]).alter.set_table_properties({_INTERVAL: str(number)})

    @rule(name=_names(_MERGED))
    def optimize(self, name: str) -> None:
        """Somebody merges the files of a table."""
        self.opened(_BY_NAME[name]).optimize.compact()

    @precondition(lambda self: self.cuts)
    @rule(name=_names(_TABLES))
    def cut(self, name: str) -> None:
        """Maintenance cuts a log as far as it may, whichever stage is away or has died in the middle of a batch."""
        cut_log(self.stages.warehouse, _BY_NAME[name], wall_ms() + SECOND_MS)

    @precondition(lambda self: self.cuts)
    @rule()
    def maintain(self) -> None:
        """A whole round: what is settled and old goes, and so does each file that nobody needs."""
        done = sharply(self.stages.warehouse, RETAIN_MS)
        failed = {name: each.failed for name, each in done.items() if each.failed}
        assert failed.keys() <= self.left_to_spark(), failed

    def left_to_spark(self) -> set[str]:
        """The tables that maintenance cannot do here: they have other columns than they were made with."""
        return {INBOX.name} if len(self.opened(INBOX).schema().fields) > len(INBOX.schema.names) else set()

    @rule()
    def lose_checkpoint(self) -> None:
        """The folder of settle's checkpoint is gone: all that it needs is in the tables."""
        self.stages.restart("settle")
        rmtree(self.stages.warehouse.checkpoint("settle"), ignore_errors=True)

    @rule()
    def copy(self) -> None:
        """All stages are stopped, or dead, and the folder is copied."""
        rmtree(self._copy, ignore_errors=True)
        copytree(self.stages.root, self._copy)
        self._copied = deepcopy({name: getattr(self, name) for name in self.MODEL})

    @precondition(lambda self: hasattr(self, "_copied"))
    @rule()
    def restore(self) -> None:
        """The copy takes the place of the folder: what came after it was never there. The time goes on."""
        self.put_back()

    def put_back(self) -> None:
        """Put the folder and the model back."""
        rmtree(self.stages.root)
        copytree(self._copy, self.stages.root)
        self.stages.restart_all()
        for name, value in deepcopy(self._copied).items():
            setattr(self, name, value)

    @property
    def _copy(self) -> str:
        return f"{self.stages.root}.copy"
