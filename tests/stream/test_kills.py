"""Killed between any two commits, started again: the result is the same, row for row."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import pytest
from pyspark.sql import SparkSession

from schemas import DELIVERIES, MESSAGES, PUBLICATIONS, REDELIVERY, REJECTED_DISPATCH, REJECTED_INGEST, SEGMENTS, Table
from tests.support.spark import session
from tests.support.stream import Step, World, advance, append, kill_after, message, play, restart, subscribe

T0 = 1_700_000_000_000
HOUR = 3_600_000

FIRST = (
    "ingest.counted",
    "ingest.messages",
    "ingest.rejected",
    "ingest.segments",
    "schedule.counted",
    "schedule.redelivery",
    "dispatch.counted",
    "dispatch.deliveries",
    "dispatch.publications",
)
"""Where the process dies while it takes in new messages."""
LATER = ("ingest.segments", "schedule.counted", "schedule.redelivery", "dispatch.deliveries")
"""Where it dies while it loads and releases parked ones."""


def script(first: str | None = None, later: str | None = None) -> list[Step]:
    """Immediate, delayed, parked and refused messages; killed as asked, restarted with other settings."""
    taken = [kill_after(first)] if first else []
    loaded = [kill_after(later)] if later else []
    # Before its first commit a batch belongs to nobody: settings may still decide its rows.
    limits = {"horizon_ms": 0, "max_delay_ms": 1, "max_payload_bytes": 0, "entries_per_ledger": 2}
    sizes = {"partitions": 3, "rows_per_task": 1, "max_files": 1}
    changed = [restart(**sizes, **({} if first == "ingest.counted" else limits))] if first or later else []
    return [
        subscribe("t", "s"),
        subscribe("t", "coarse", tick_ms=60_000),
        advance(T0 - 1_000),
        *taken,
        append(
            *(message(f"now {i}") for i in range(3)),
            message("refused", after=-1),
            message("soon", after=1_000),
            message("parked", after=5 * HOUR),
            message("parked too", after=5 * HOUR),
        ),
        advance(T0),
        *(changed if first else []),
        advance(T0 + 60_000),
        *loaded,
        advance(T0 + 6 * HOUR),
        *(changed if later else []),
    ]


def facts(world: World, table: Table, *without: str) -> list[tuple[str, ...]]:
    """A table's rows in a fixed order, less the columns that a kill may change."""
    names = [name for name in table.schema.names if name not in ("batch_id", *without)]
    return sorted(tuple(str(row[name]) for name in names) for row in world.rows(table))


@cache
def unkilled() -> World:
    """The run that nobody disturbed."""
    return play(session(), str(Path(mkdtemp()) / "warehouse"), script())


def same_as_unkilled(world: World) -> None:
    """Every table holds what the undisturbed run holds."""
    for table in (MESSAGES, REDELIVERY, DELIVERIES, PUBLICATIONS, REJECTED_INGEST, REJECTED_DISPATCH):
        assert facts(world, table) == facts(unkilled(), table), table.name
    moved = (
        "loaded_until",
        "next_ledger",
        "marker",
        "kind",
        "chunk",
        "count",
        "first_due",
        "last_due",
        "segment_start",
    )
    assert len(facts(world, SEGMENTS, *moved)) >= 1


@pytest.mark.parametrize("step", FIRST)
def test_a_kill_while_messages_are_taken_in_changes_nothing(spark: SparkSession, folder: str, step: str) -> None:
    """The process dies right after the step and comes back with other settings."""
    same_as_unkilled(play(spark, folder, script(first=step)))


@pytest.mark.parametrize("step", LATER)
def test_a_kill_while_parked_messages_are_loaded_changes_nothing(spark: SparkSession, folder: str, step: str) -> None:
    """The process dies right after the step and comes back with other settings."""
    same_as_unkilled(play(spark, folder, script(later=step)))
