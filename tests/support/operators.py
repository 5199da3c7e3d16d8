"""What operators do to a warehouse while stages run, or are away: rules for state machines on stages without a JVM."""

from __future__ import annotations

from pathlib import Path
from shutil import rmtree
from typing import Any
from unittest.mock import patch

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from pipeline.config.settings import SECOND_MS
from pipeline.config.wallclock import wall_ms
from pipeline.delta.deltars import open_table
from pipeline.maintenance.cutlogs import cut_log
from schemas import (
    CLOSED,
    CONSUMER_EVENTS,
    CURSORS,
    DELIVERIES,
    HELD,
    REDELIVERY,
    REJECTED_DISPATCH,
    SEGMENTS,
    Table,
)
from tests.support.without_jvm import Session, Stages

_TABLES = (HELD, SEGMENTS, REDELIVERY, DELIVERIES, CURSORS, CLOSED, CONSUMER_EVENTS, REJECTED_DISPATCH)
_SESSION: Any = Session()
_INTERVAL = "delta.checkpointInterval"


class Operators(RuleBasedStateMachine):
    """Nothing of it may change what becomes of a message."""

    stages: Stages

    def shorten_logs(self) -> None:
        """Give logs a checkpoint every other commit, or none would be cut in so few steps."""
        for table in _TABLES:
            open_table(self.stages.root, table).alter.set_table_properties({_INTERVAL: "2"})

    @rule(table=st.sampled_from(_TABLES), number=st.integers(2, 5), vacuum=st.booleans())
    def change(self, table: Table, number: int, *, vacuum: bool) -> None:
        """What `docs/tables.md` allows on each of these tables: a VACUUM with the usual hours, or a property."""
        opened = open_table(self.stages.root, table)
        if vacuum:
            opened.vacuum(dry_run=False)
        else:
            opened.alter.set_table_properties({_INTERVAL: str(number)})

    @rule(table=st.sampled_from(_TABLES))
    def cut(self, table: Table) -> None:
        """Maintenance cuts a log as far as it may, whichever stage is away or has died in the middle of a batch."""
        with patch("pipeline.maintenance.readers._committed", lambda _, folder: self.stages.begun(Path(folder).name)):
            cut_log(_SESSION, self.stages.warehouse, table, wall_ms() + SECOND_MS)

    @rule()
    def lose_checkpoint(self) -> None:
        """The folder of settle's checkpoint is gone: all that it needs is in the tables."""
        self.stages.restart("settle")
        rmtree(self.stages.warehouse.checkpoint("settle"), ignore_errors=True)
