"""A table that was set back by a version, as a script of stages: who is refused, and what is rebuilt."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from pipeline.config.errors import SourceBehind, TableBehind
from pipeline.config.stages import DISPATCH, INGEST, SCHEDULE
from schemas import DELIVERIES, INBOX, MESSAGES, REDELIVERY, SEGMENTS, Table
from tests.support.stream import Step, World, advance, append, check, message, payloads, restart, subscribe, void

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
    """Rebuild stages that are stopped."""
    return check(lambda world: void(world.rebuild(*stages)))


def set_back(table: Table) -> Step:
    """Set a table back by one version."""

    def step(world: World) -> None:
        world.lose()
        last = max(Path(world.warehouse.path(table), "_delta_log").glob("*.json"))
        last.rename(last.with_suffix(".aside"))
        last.with_suffix(".crc").unlink(missing_ok=True)

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
            set_back(table),
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
        set_back(REDELIVERY),
        refused(SCHEDULE, TableBehind),
        check(refused_as_well),
        bring_back(REDELIVERY),
        restart(),
        append(message("b", topic)),
        advance(at + 1),
        all_once(topic, "a", "b"),
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
        set_back(INBOX),
        check(said),
        bring_back(INBOX),
        restart(),
    ]
