"""Settle is killed between any two commits, and started again: each thing happens once, and the tables are the same."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import zip_longest
from shutil import rmtree

import pytest

from pipeline.config.stages import SETTLE
from schemas import CLOSED, DELIVERIES, INBOX, REJECTED_SETTLE, SEGMENTS, Table
from tests.support.consuming import acknowledging, says, standing
from tests.support.stream import (
    Step,
    World,
    advance,
    append,
    each_by_itself,
    kill_after,
    message,
    restart,
    revive,
)
from tests.support.worlds import Play, on_spark, play_here

T0 = 1_700_000_000_000
SECOND = 1_000
BOUNDARIES = (
    "settle.noted",
    "settle.inbox",
    "settle.segments",
    "settle.closed",
    "settle.rejected_settle",
    "settle.cursors",
    "settle.done",
)
"""Where the process dies while it takes a batch that has something for each table.

Before the plan is noted the batch is nobody's: what comes then may be in it, and its time may be another one.
"""


def script(deaths: Sequence[str] = (), *, lost: bool = False) -> list[Step]:
    """A batch that acknowledges, puts back, gives up, withdraws and refuses; killed, and started otherwise."""
    return [
        acknowledging("t", "s"),
        acknowledging("t", "strict", max_redeliveries=0),
        *([] if lost else [each_by_itself()]),
        advance(T0),
        append(*(message(each) for each in ("done", "failed", "late", "bad", "open"))),
        advance(T0 + SECOND),
        says("nack", "late", after_ms=3_600_000),
        advance(T0 + 2 * SECOND),
        *map(kill_after, deaths[:1]),
        says("ack", "done", "late"),
        says("nack", "failed", after_ms=3_600_000),
        says("nack", "bad", name="strict"),
        says("ack", "open", ledger_id=10**15),
        advance(T0 + 3 * SECOND),
        # What comes between death and restart is not of the batch that is repeated, nor is the time then.
        says("nack", "open", after_ms=3_600_000),
        move(T0 + 4 * SECOND),
        *(step for death, following in zip_longest(deaths, deaths[1:]) for step in again(following, lost=lost)),
        advance(T0 + 4 * SECOND),
    ]


def move(instant: int) -> Step:
    """Time passes; no stage has heard of it."""

    def step(world: World) -> None:
        world.instant = instant

    return step


def again(following: str | None, *, lost: bool) -> list[Step]:
    """Settle starts again, which may die as well; or all do that, and the checkpoint is lost."""

    def lose(world: World) -> None:
        world.end()
        rmtree(world.warehouse.checkpoint(SETTLE), ignore_errors=True)

    return [lose, restart(following)] if lost else [revive(following)]


@cache
def unkilled() -> World:
    """The run that nobody disturbed; on Spark it would be the same."""
    return play_here(script())


def facts(world: World, table: Table, *left_out: str) -> list[tuple[str, ...]]:
    """A table's rows in a fixed order, less what a kill may change."""
    names = [name for name in table.schema.names if name not in left_out]
    return sorted(tuple(str(row[name]) for name in names) for row in world.rows(table))


def same_as_unkilled(world: World) -> None:
    """Every table says what it says in the undisturbed run."""
    assert facts(world, CLOSED) == facts(unkilled(), CLOSED)
    assert len(facts(world, CLOSED)) == 1
    assert facts(world, REJECTED_SETTLE) == facts(unkilled(), REJECTED_SETTLE)
    retries = [[row for row in facts(each, SEGMENTS) if "retry" in row] for each in (world, unkilled())]
    assert retries[0] == retries[1]
    letters = [row for row in world.rows(INBOX) if row["topic"] == "t-strict-DLQ"]
    assert [bytes(row["payload"]) for row in letters] == [b"bad"]
    for name in ("s", "strict"):
        assert standing(world, name=name).open() == standing(unkilled(), name=name).open()
    assert facts(world, DELIVERIES, "batch_id") == facts(unkilled(), DELIVERIES, "batch_id")


def test_kills_between_all_commits_of_settle_change_nothing(play: Play) -> None:
    """It dies after one step after the other, as a process of its own, and comes back."""
    same_as_unkilled(play(script(BOUNDARIES)))


@pytest.mark.parametrize("death", [pytest.param("settle.segments", marks=pytest.mark.soak), "settle.closed"])
def test_who_lost_the_checkpoint_in_the_middle_of_a_batch_finishes_it_from_the_tables(death: str) -> None:
    """The plan of the batch is in its commits, too. All stages die with it, on Spark."""
    same_as_unkilled(on_spark(script([death], lost=True)))
