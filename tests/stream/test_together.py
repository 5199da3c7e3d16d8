"""How several scripts become one: the order of their steps."""

from __future__ import annotations

from typing import cast

import pytest

from tests.support.stream import (
    Advance,
    Append,
    Kill,
    Restart,
    Step,
    World,
    advance,
    append,
    check,
    kill_after,
    restart,
)
from tests.support.together import Played, kept, together


def look(name: str) -> Step:
    """A step that says its name."""

    def step(_: object) -> None:
        """Nothing is looked at."""

    step.__qualname__ = name
    return check(step)


def steps_of(scripts: dict[str, list[Step]]) -> list[str]:
    """The steps of scripts that are played together, in words."""
    return [f"{name} {words(step)}" for name, step in together(scripts)]


def words(step: Step) -> str:
    """A step in a word."""
    match step:
        case Advance(instant):
            return str(instant)
        case Append():
            return "append"
        case Kill(after):
            return f"kill {after}"
        case Restart(_, changes):
            return f"restart {dict(changes)}" if changes else "restart"
        case _:
            return step.__qualname__


def test_an_instant_is_reached_once_and_each_looks_before_the_next_one() -> None:
    """What one sends waits for its own instant; what it looks at does not."""
    scripts = {
        "a": [append(), advance(1), look("first"), append(), look("sent"), advance(3), look("last")],
        "b": [look("begin"), advance(1), look("then"), advance(2), look("last")],
    }
    assert steps_of(scripts) == [
        *("b begin", "a append", "all 1", "a first", "b then"),
        *("all 2", "b last", "a append", "a sent", "all 3", "a last"),
    ]


def test_one_restart_is_for_all_who_want_it() -> None:
    """Another one, with other settings, is for who wants that."""
    scripts = {
        "a": [advance(1), restart(), look("first"), advance(2)],
        "b": [advance(1), look("before"), restart(), advance(2)],
        "c": [advance(1), restart(partitions=3), advance(2)],
    }
    assert steps_of(scripts) == [
        *("all 1", "b before", "a restart", "a first", "c restart {'partitions': 3}", "all 2"),
    ]


def test_who_dies_comes_back_before_others_look() -> None:
    """The others have reached the instant then."""
    scripts = {
        "a": [advance(1), look("first"), advance(2)],
        "b": [kill_after("step"), advance(1), look("dead"), restart(), look("alive"), append(), advance(2)],
    }
    assert steps_of(scripts) == [
        *("b kill step", "all 1", "b dead", "b restart", "b alive", "a first", "b append", "all 2"),
    ]


def test_a_script_may_end_with_what_nobody_waits_for() -> None:
    """Its last steps come when the others are done."""
    assert steps_of({"a": [append()], "b": [advance(1), look("last")]}) == ["all 1", "b last", "a append"]


def test_a_look_that_fails_is_kept_for_its_own_script() -> None:
    """Also one that waits for an error in vain. Others pass, but in a run that was ended."""
    played = Played(("a", "b"), cast("World", object()))

    def fails(_: object) -> None:
        with pytest.raises(ValueError, match="never"):
            pass

    kept("a", fails, played)(cast("World", None))
    with pytest.raises(pytest.fail.Exception):
        played.shows("a")
    assert played.shows("b") is played.world
    with pytest.raises(AssertionError):
        Played("b", broken=ValueError()).shows("b")
