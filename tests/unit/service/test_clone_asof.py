"""A clone as of an instant holds what was pending then, and delivers that."""

from __future__ import annotations

from collections.abc import Sequence
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyspark", reason="the stages are made for sessions of Spark")
pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")

from pipeline.client.clock import turned
from pipeline.client.insight.pending import pending
from pipeline.config.stages import INGEST, SCHEDULE
from pipeline.service.clone import clone
from pipeline.testing.warehouse import TurnedClock
from tests.support.clones import PLAIN, SLOW, World
from tests.support.examined import sound

ACTS = st.one_of(
    st.tuples(st.just("send"), st.integers(0, 40)),
    st.tuples(st.just("cancel"), st.integers(0, 5)),
    st.tuples(st.just("pause"), st.sampled_from([PLAIN, SLOW])),
    st.tuples(st.just("resume"), st.sampled_from([PLAIN, SLOW])),
    st.tuples(st.just("go_on"), st.integers(1, 15)),
    st.tuples(st.just("outage"), st.integers(5, 15)),
)
"""What happens, and how long it takes, or of whom or what."""


def act(world: World, kind: str, value: int | str) -> None:
    """Let something happen."""
    with turned(world.root, TurnedClock(world.stages.instant)):
        match kind, value:
            case "send", int(after):
                world.send(after)
                world.go_on(0)
            case "cancel", int(key):
                world.cancel(key)
            case "pause" | "resume", str(name):
                world.pause(name, on=kind == "pause")
            case "outage", int(seconds):
                # Dispatch stands still meanwhile.
                world.pass_time(seconds)
                world.do(INGEST)
                world.do(SCHEDULE)
                world.go_on(1)
            case _, int(seconds):
                world.go_on(seconds)


def of_pending(root: str, as_of: int | None = None) -> list[tuple[str, int, int | None]]:
    """What is pending, or was."""
    return [(each.subscription, each.count, each.next_due) for each in pending(root, as_of=as_of).backlogs]


@settings(max_examples=8)
@given(st.lists(ACTS, max_size=8), st.lists(ACTS, max_size=8))
def test_a_clone_as_of_an_instant_is_one_that_was_made_then(
    before: Sequence[tuple[str, int | str]], after: Sequence[tuple[str, int | str]]
) -> None:
    """Whatever was sent, cancelled, held and delivered since, and late."""
    with TemporaryDirectory() as folder:
        world = World.new(f"{folder}/warehouse", ack=False)
        world.send(0, 3, 9, 30)
        world.go_on(0)
        for each in before:
            act(world, *each)
        world.go_on(0)
        then, now = world.stages.instant, f"{folder}/now"
        made_then = world.cloned(now)
        world.pass_time(1)
        for each in after:
            act(world, *each)
        world.go_on(1)
        later = clone(world.root, f"{folder}/later", as_of=then).target
        assert of_pending(later) == of_pending(world.root, then)
        made_later = world.at(later)
        made_later.stages.instant = then
        made_later.sent = made_then.sent
        assert made_later.end() == made_then.end()
        sound(later)
