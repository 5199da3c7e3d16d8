"""A clone as of an instant holds what was pending then, and delivers that."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark", reason="the stages are made for sessions of Spark")
pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")

from pipeline.client.clock import turned
from pipeline.client.insight.pending import pending
from pipeline.client.subscribing.subscriptions import set_policies
from pipeline.config.errors import BadValue
from pipeline.config.stages import INGEST, SCHEDULE
from pipeline.service import clone as cloning
from pipeline.service.clone import clone
from pipeline.storage.files import Files
from pipeline.subscriptions.policies import Policies
from pipeline.subscriptions.settled import SettledMark, raise_to
from pipeline.testing.warehouse import TurnedClock
from schemas import CALENDARS, COMMANDS, REPLACED, SCHEDULES
from tests.support.clones import ACKS, PLAIN, SLOW, World
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


Acts = Sequence[tuple[str, int | str]]
BEFORE: Acts = [("send", 2), ("pause", PLAIN), ("go_on", 4), ("cancel", 2), ("send", 9)]
AFTER: Acts = [("cancel", 3), ("send", 1), ("outage", 6), ("resume", PLAIN), ("send", 0), ("go_on", 12)]


def as_of_is_then(before: Acts, after: Acts, folder: str) -> None:
    """Compare a clone as of an instant with one that was made then."""
    world = World.new(f"{folder}/warehouse", ack=False)
    world.send(0, 3, 9, 30)
    world.go_on(0)
    for each in before:
        act(world, *each)
    world.go_on(0)
    then, made_then = world.stages.instant, world.cloned(f"{folder}/then")
    world.pass_time(1)
    for each in after:
        act(world, *each)
    world.go_on(1)
    later = clone(world.root, f"{folder}/later", as_of=then).target
    assert of_pending(later) == of_pending(world.root, then)
    made_later = made_then.at(later)
    assert made_later.end() == made_then.end()
    sound(later)


@pytest.mark.parametrize(("before", "after"), [(BEFORE, AFTER), ([], [("cancel", 0)])])
def test_a_clone_as_of_an_instant_is_one_that_was_made_then(tmp_path: Path, before: Acts, after: Acts) -> None:
    """What was sent, cancelled, held, let go and delivered since, and late, is undone in it, and what was held."""
    as_of_is_then(before, after, str(tmp_path))


def test_a_warehouse_of_an_earlier_version_is_set_back_too(tmp_path: Path) -> None:
    """It lacks tables until a job starts on it."""
    world = World.new(str(tmp_path / "w"), ack=False)
    world.send(0, 30)
    world.go_on(5)
    for table in (COMMANDS, REPLACED, SCHEDULES, CALENDARS):
        rmtree(tmp_path / "w" / table.name)
    then = world.stages.instant - 1_000
    assert of_pending(clone(world.root, str(tmp_path / "copy"), as_of=then).target) == of_pending(world.root, then)


@pytest.mark.soak
@given(st.lists(ACTS, max_size=8), st.lists(ACTS, max_size=8))
def test_a_clone_as_of_any_instant_is_one_that_was_made_then(before: Acts, after: Acts) -> None:
    """Whatever happened before and since."""
    with TemporaryDirectory() as folder:
        as_of_is_then(before, after, folder)


def test_an_instant_of_which_the_tables_do_not_tell_is_refused(tmp_path: Path) -> None:
    """What was open then nobody knows, nor what had which due time."""
    world = World.new(str(tmp_path / "w"))
    with pytest.raises(BadValue, match=f"t/{ACKS} acknowledges"):
        clone(world.root, str(tmp_path / "copy"), as_of=world.stages.instant)
    set_policies(world.root, "t", ACKS, Policies())
    world.send(0, 40)
    with pytest.raises(BadValue, match="ingest"):
        clone(world.root, str(tmp_path / "copy"), as_of=world.stages.instant)
    then = world.stages.instant
    world.go_on(1)
    with turned(world.root, TurnedClock(world.stages.instant)):
        world.shift(1, 5)
    with pytest.raises(BadValue, match="another due time"):
        clone(world.root, str(tmp_path / "copy"), as_of=then)
    assert clone(world.root, str(tmp_path / "copy"), as_of=world.stages.instant).as_of == world.stages.instant


def test_an_instant_is_refused_of_which_dispatch_has_yet_to_deliver(tmp_path: Path) -> None:
    """It may deliver that, or leave it out."""
    world = World.new(str(tmp_path / "w"), ack=False)
    world.send(1)
    world.go_on(0)
    world.pass_time(2)
    world.do(SCHEDULE)
    with pytest.raises(BadValue, match="dispatch"):
        clone(world.root, str(tmp_path / "copy"), as_of=world.stages.instant)


@pytest.mark.parametrize("meanwhile", [True, False])
def test_an_instant_is_refused_of_which_messages_may_be_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, meanwhile: bool
) -> None:
    """They would be missing in the copy; also when they go before it looks at the tables."""
    world = World.new(str(tmp_path / "w"), ack=False)
    world.send(1)
    world.go_on(5)
    world.go_on(5)

    look = cloning._look

    def delete(*args: Any) -> Any:  # noqa: ANN401 - of the look
        raise_to(Files(), world.root, SettledMark(world.stages.instant - 1_000, 1 << 40, 1))
        return look(*args)

    if meanwhile:
        monkeypatch.setattr(cloning, "_look", delete)
    else:
        delete(Files(), world.root)
    with pytest.raises(BadValue, match="may be deleted"):
        clone(world.root, str(tmp_path / "copy"), as_of=world.stages.instant - 2_000)
    assert not (tmp_path / "copy").exists()
