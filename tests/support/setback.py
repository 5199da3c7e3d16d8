"""A table that was set back by a version, as a script of stages: who is refused, and what is rebuilt.

A power cut left the version empty, and somebody deletes it, or brings it back from a copy, as the page says.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from operator import methodcaller
from pathlib import Path
from shutil import rmtree

import pytest

from pipeline.config.errors import BrokenVersion, SourceBehind, TableBehind
from pipeline.config.stages import DISPATCH, INGEST, SCHEDULE, SETTLE
from schemas import DELIVERIES, INBOX, MESSAGES, PUBLICATIONS, REDELIVERY, SEGMENTS, Table
from tests.support.stream import Step, World, advance, append, check, message, payloads, restart, same, subscribe

WRITTEN = [(MESSAGES, (INGEST,)), (SEGMENTS, (INGEST, SCHEDULE)), (DELIVERIES, (DISPATCH,))]
"""Tables, and what is rebuilt when one is set back: the stage that writes it, and who has read what it lacks."""


def refused(stage: str, error: type[Exception]) -> Step:
    """The start of a stage is refused, with the stage and the remedy in the error."""

    def step(world: World) -> None:
        with pytest.raises(error) as raised:
            world.start(stage)
        assert vars(raised.value)["stage"] == stage
        assert f"delayline rebuild --stage {stage}" in str(raised.value)

    return step


def all_once(topic: str, *expected: str, subscription: str = "s") -> Step:
    """Exactly these payloads were delivered so far, by whatever checkpoint."""

    def step(world: World) -> None:
        assert sorted(payloads(world, subscription, topic)) == list(expected)

    return step


def rebuilt(*stages: str) -> Step:
    """Rebuild stages that are stopped; then somebody deletes the checkpoint that was moved aside."""

    def step(world: World) -> None:
        world.rebuild(*stages)
        for stage in stages:
            rmtree(f"{world.warehouse.checkpoint(stage)}.aside-1")

    return step


def set_back(table: Table, stage: str) -> Step:
    """Set a table back by one version, which was empty; the stage that writes it says what to do."""

    def step(world: World) -> None:
        world.lose()
        last = max(Path(world.warehouse.path(table), "_delta_log").glob("*.json"))
        last.rename(last.with_suffix(".aside"))
        last.with_suffix(".crc").unlink(missing_ok=True)
        last.touch()
        with pytest.raises(BrokenVersion) as raised:
            world.start(stage)
        Path(raised.value.entry).unlink()

    return step


def bring_back(table: Table) -> Step:
    """The version is found again."""

    def step(world: World) -> None:
        (aside,) = Path(world.warehouse.path(table), "_delta_log").glob("*.aside")
        aside.rename(aside.with_suffix(".json"))

    return step


def table_set_back(table: Table, stages: Sequence[str]) -> Callable[[str, int], list[Step]]:
    """A backup of a running warehouse may have a table from before a batch that its checkpoint has done."""

    def script(topic: str, at: int) -> list[Step]:
        return [
            subscribe(topic, "s"),
            append(message("a", topic)),
            advance(at),
            set_back(table, stages[0]),
            refused(stages[0], TableBehind),
            rebuilt(*stages),
            restart(),
            append(message("b", topic)),
            advance(at + 1),
            all_once(topic, "a", "b"),
        ]

    return script


def releases_set_back(topic: str, at: int) -> list[Step]:
    """What dispatch has read is gone from `redelivery`: the schedule would release it again, to be read by nobody."""

    def refused_as_well(world: World) -> None:
        for start in (world.start, world.rebuild):
            with pytest.raises(SourceBehind) as raised:
                start(DISPATCH)
            assert (raised.value.stage, raised.value.table) == (DISPATCH, REDELIVERY.name)

    return [
        subscribe(topic, "s"),
        append(message("a", topic)),
        advance(at),
        set_back(REDELIVERY, SCHEDULE),
        refused(SCHEDULE, TableBehind),
        check(refused_as_well),
        bring_back(REDELIVERY),
        restart(),
        append(message("b", topic)),
        advance(at + 1),
        all_once(topic, "a", "b"),
    ]


def unread_set_back(topic: str, at: int) -> list[Step]:
    """What neither dispatch nor settle has read yet the schedule releases again, after a rebuild."""
    return [
        subscribe(topic, "s"),
        append(message("a", topic)),
        advance(at),
        *(check(methodcaller("end_one", name)) for name in (DISPATCH, SETTLE)),
        append(message("b", topic)),
        advance(at + 1),
        set_back(REDELIVERY, SCHEDULE),
        refused(SCHEDULE, TableBehind),
        rebuilt(SCHEDULE),
        restart(),
        append(message("c", topic)),
        advance(at + 2),
        all_once(topic, "a", "b", "c"),
    ]


def publications_set_back(topic: str, at: int) -> list[Step]:
    """Nobody goes on from them, so a start does not miss them; a rebuild writes them again."""
    lacks: list[int] = []

    def counted(world: World) -> None:
        lacks.append(len(world.rows(DELIVERIES)) - sum(row["count"] for row in world.rows(PUBLICATIONS)))

    return [
        subscribe(topic, "s"),
        append(message("a", topic)),
        advance(at),
        check(counted),
        set_back(PUBLICATIONS, DISPATCH),
        check(counted),
        rebuilt(DISPATCH),
        restart(),
        append(message("b", topic)),
        advance(at + 1),
        all_once(topic, "a", "b"),
        check(counted),
        check(lambda _: same([each - lacks[0] for each in lacks], [0, 1, 0])),
    ]


def source_set_back(topic: str, at: int) -> list[Step]:
    """What it lacks would count as read when it comes again; no note of the stage is in that table."""

    def said(world: World) -> None:
        with pytest.raises(SourceBehind) as raised:
            world.start("ingest")
        versions = re.search(r"inbox ends with version (\d+), the stage has read version (\d+)", str(raised.value))
        assert versions
        assert int(versions[1]) + 1 == int(versions[2])

    return [
        subscribe(topic, "s"),
        append(message("a", topic)),
        advance(at),
        set_back(INBOX, INGEST),
        check(said),
        bring_back(INBOX),
        restart(),
    ]
