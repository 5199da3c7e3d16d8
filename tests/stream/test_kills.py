"""Killed between any two commits, started again: the result is the same, row for row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import zip_longest

import pytest

from schemas import DELIVERIES, MESSAGES, PUBLICATIONS, REDELIVERY, REJECTED_DISPATCH, REJECTED_INGEST, SEGMENTS, Table
from tests.support.stream import (
    Step,
    World,
    advance,
    append,
    check,
    kill_after,
    message,
    restart,
    subscribe,
)
from tests.support.worlds import TWO_STORES, Play

T0 = 1_700_000_000_000
HOUR = 3_600_000

FIRST = (
    "ingest.counted",
    "ingest.messages",
    "ingest.rejected_ingest",
    "ingest.segments",
    "schedule.counted",
    "schedule.redelivery",
    "dispatch.counted",
    "dispatch.written",
    "dispatch.noted",
    "dispatch.deliveries",
    "dispatch.publications",
)
"""Where the process dies while it takes in new messages."""
LATER = ("ingest.segments", "schedule.counted", "schedule.redelivery", "dispatch.noted", "dispatch.deliveries")
"""Where it dies while it loads and releases parked ones."""


def script(first: Sequence[str] = (), later: Sequence[str] = ()) -> list[Step]:
    """Immediate, delayed, parked and refused messages; killed after one step after the other, restarted each time."""
    return [
        subscribe("t", "s"),
        subscribe("t", "coarse", tick_ms=60_000),
        advance(T0 - 1_000),
        *map(kill_after, first[:1]),
        append(
            *(message(f"now {i}") for i in range(3)),
            message("refused", after=-1),
            message("soon", after=1_000),
            message("parked", after=5 * HOUR),
            message("parked too", after=5 * HOUR),
        ),
        advance(T0),
        *restarts(first),
        advance(T0 + 60_000),
        *map(kill_after, later[:1]),
        advance(T0 + 6 * HOUR),
        *restarts(later),
    ]


def restarts(fatal: Sequence[str]) -> Iterator[Step]:
    """A restart after each death; all but the last die again, after the next step."""
    sizes = {"partitions": 3, "rows_per_task": 1, "max_files": 1}
    limits = {"horizon_ms": 0, "max_delay_ms": 1, "max_payload_bytes": 0, "entries_per_ledger": 2}
    for number, (death, following) in enumerate(zip_longest(fatal, fatal[1:])):
        # What the driver began Spark may have to finish, and the other way round.
        where = {"driver_rows": number % 2 * 1_000}
        # Before its first commit a batch belongs to nobody: settings may still decide its rows.
        yield check(lambda world: world.sound())
        yield restart(following, **sizes, **where, **({} if death == "ingest.counted" else limits))


def facts(world: World, table: Table, *without: str) -> list[tuple[str, ...]]:
    """A table's rows in a fixed order, less the columns that a kill may change."""
    names = [name for name in table.schema.names if name not in ("batch_id", *without)]
    return sorted(tuple(str(row[name]) for name in names) for row in world.rows(table))


@cache
def unkilled(play: Play) -> World:
    """The run that nobody disturbed."""
    return play(script())


def same_as_unkilled(world: World, play: Play) -> None:
    """Every table holds what the undisturbed run of a shell holds, and the doctor finds nothing."""
    world.sound()
    for table in (MESSAGES, REDELIVERY, DELIVERIES, PUBLICATIONS, REJECTED_INGEST, REJECTED_DISPATCH):
        assert facts(world, table) == facts(unkilled(play), table), table.name
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


@pytest.mark.parametrize("play", TWO_STORES)
def test_kills_between_all_commits_change_nothing(play: Play) -> None:
    """The process dies after step after step and comes back with other settings; `make soak` has them alone."""
    same_as_unkilled(play(script(FIRST, LATER)), play)
