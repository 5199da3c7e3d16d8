"""A clone of a warehouse holds what waits in its source, and delivers it as the source does."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from shutil import copytree, rmtree
from threading import Event
from unittest.mock import patch

import pytest

pytest.importorskip("pyspark", reason="the stages are made for sessions of Spark")
pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")

from pipeline.client.insight.pending import pending
from pipeline.client.subscribing.policysetting import set_policy
from pipeline.client.subscribing.subscriptions import subscriptions
from pipeline.config.errors import BadValue
from pipeline.config.stages import ALL_STAGES, DISPATCH, INGEST, SCHEDULE, SETTLE
from pipeline.delta.deltars import open_table
from pipeline.service import clone as cloning
from pipeline.service.clone import SinkOff, SourceBusy, SourceIncomplete, clone
from schemas import INBOX, REJECTED_INGEST
from tests.support.clones import PLAIN, Row, World
from tests.support.examined import sound

DEATHS = (
    (INGEST, "ingest.messages"),
    (SCHEDULE, "schedule.redelivery"),
    *((DISPATCH, f"dispatch.{step}") for step in ("shelved", "deliveries")),
    (SETTLE, "settle.segments"),
)
MORE_DEATHS = (
    *((INGEST, f"ingest.{step}") for step in ("counted", "segments")),
    *((DISPATCH, f"dispatch.{step}") for step in ("written", "rejected_dispatch", "noted")),
    *((SETTLE, f"settle.{step}") for step in ("noted", "cursors")),
)
"""At one more place, for `make soak`."""


@dataclass(frozen=True)
class Begun:
    """A world in which something happened, and what is delivered in the end when it goes on undisturbed."""

    world: World
    end: Sequence[Row]


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Begun:
    """Some messages were delivered, failed, cancelled and moved; others wait."""
    folder = tmp_path_factory.mktemp("begun")
    world = World.new(f"{folder}/warehouse", horizon_ms=20_000)
    world.send(0, 0, 0, 5, 5, 30, 3_600)
    world.go_on(0)
    world.consume(0, "ack")
    world.consume(1, "nack")
    world.cancel(3)
    world.shift(4, 2)
    world.shift(5, -10)
    world.go_on(1)
    world.send(1, 9)
    world.consume(2, "nack")
    copytree(world.root, f"{folder}/copy")
    undisturbed = world.at(f"{folder}/copy")
    undisturbed.go_on(6)
    return Begun(world, undisturbed.end())


@pytest.fixture
def world(begun: Begun, tmp_path: Path) -> World:
    """One like it for one test."""
    copytree(begun.world.root, tmp_path / "warehouse")
    return begun.world.at(str(tmp_path / "warehouse"))


@pytest.mark.parametrize(
    ("stage", "death"),
    [(None, None), *DEATHS, *(pytest.param(*each, marks=pytest.mark.soak) for each in MORE_DEATHS)],
)
def test_a_clone_that_is_made_when_a_stage_has_died_delivers_the_same(
    begun: Begun, world: World, tmp_path: Path, stage: str | None, death: str | None
) -> None:
    """It is as good as the source when that is started again: what was half done is done once."""
    world.pass_time(6)
    for each in ALL_STAGES:
        if not world.do(each, death if each == stage else None):
            break
        assert each != stage
    copy = world.cloned(str(tmp_path / "copy"))
    assert copy.end() == begun.end
    sound(copy.root)


def test_a_clone_says_at_once_what_waits(world: World, tmp_path: Path) -> None:
    """Nobody has to start it for that; and the source stands as it did."""
    before = sorted((str(each), each.stat().st_mtime_ns) for each in Path(world.root).rglob("*"))
    copy = world.cloned(str(tmp_path / "copy"))
    looked = [pending(root).backlogs for root in (world.root, copy.root)]
    seen = [[(each.subscription, each.count, each.next_due) for each in backlogs] for backlogs in looked]
    assert seen[0] == seen[1]
    assert any(count for _, count, _ in seen[0])
    assert sorted((str(each), each.stat().st_mtime_ns) for each in Path(world.root).rglob("*")) == before


def test_a_source_that_lacks_a_file_is_refused(world: World, tmp_path: Path) -> None:
    """A clone that lacks messages would be found out when they are due; nothing is left of it."""
    next(Path(world.root, "messages").rglob("*.parquet")).unlink()
    with pytest.raises(SourceIncomplete) as refused:
        world.cloned(str(tmp_path / "copy"))
    assert refused.value.root == world.root
    assert not (tmp_path / "copy").exists()


def test_a_file_that_a_producer_took_away_keeps_nobody_from_a_clone(world: World, tmp_path: Path) -> None:
    """Ingest passes over it in the source, too."""
    world.send(0)
    gone = max(Path(world.root, "inbox").glob("*.parquet"), key=lambda each: each.stat().st_mtime_ns)
    gone.unlink()
    copy = world.cloned(str(tmp_path / "copy"))
    for each in (world, copy):
        each.go_on(1)
        rejected = open_table(each.root, REJECTED_INGEST).to_pyarrow_table(columns=["reason"]).to_pylist()
        assert rejected == [{"reason": "broken_file"}]


def test_a_source_whose_stages_commit_between_all_looks_is_refused(world: World, tmp_path: Path) -> None:
    """Tables of two instants would let a message come twice, or never."""
    numbers = count()

    def moving(*_: object) -> dict[str, int]:
        return {"deliveries": next(numbers)}

    with (
        patch.object(cloning, "versions", moving),
        patch("pipeline.service.clone.time.sleep", lambda _: None),
        pytest.raises(SourceBusy),
    ):
        world.cloned(str(tmp_path / "copy"))
    # It passes when they stand still.
    assert world.cloned(str(tmp_path / "copy")).root == str(tmp_path / "copy")


@pytest.mark.parametrize("target", ["warehouse", "warehouse/inside", ".", "full"])
def test_a_clone_goes_to_a_folder_of_its_own(world: World, tmp_path: Path, target: str) -> None:
    """Nothing that is there is replaced."""
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    before = sorted(map(str, tmp_path.rglob("*")))
    with pytest.raises(BadValue):
        world.cloned(str((tmp_path / target).resolve()))
    assert sorted(map(str, tmp_path.rglob("*"))) == before


def test_files_are_shared_and_a_vacuum_of_either_leaves_the_other_whole(world: World, tmp_path: Path) -> None:
    """Each has a name of its own for the same bytes."""
    copy = world.cloned(str(tmp_path / "copy"))
    shared = [each for each in Path(copy.root, "messages").glob("**/*.parquet") if each.stat().st_nlink > 1]
    assert shared
    rmtree(world.root)
    sound(copy.root)


def test_a_clone_publishes_nothing_unless_it_is_asked_to(world: World, tmp_path: Path) -> None:
    """A broker would get everything twice."""
    set_policy(world.root, "t", "plain", sink="kafka://localhost:9092/due")
    done = clone(world.root, str(tmp_path / "copy"))
    assert done.sinks == (SinkOff("t", "plain", "kafka://localhost:9092/due"),)
    assert [each.policies.sink for each in subscriptions(done.target)] == [None] * 3
    moved = clone(world.root, str(tmp_path / "moved"), keep_sinks=True)
    assert moved.sinks == ()
    assert subscriptions(moved.target) == subscriptions(world.root)


def test_clones_of_a_job_that_goes_on_hold_each_message_once(tmp_path: Path) -> None:
    """Nobody waits for a pause of the stages."""
    world, ended = World.new(str(tmp_path / "warehouse"), ack=False), Event()

    def go_on() -> None:
        while not ended.is_set():
            world.send(0, 1, 2)
            world.go_on(1)

    copies = list[str]()
    with ThreadPoolExecutor(1) as pool:
        going = pool.submit(go_on)
        try:
            for number in range(4):
                copies.append(clone(world.root, str(tmp_path / f"copy {number}")).target)
        finally:
            ended.set()
        going.result()
    counts = list[int]()
    for root in copies:
        sent = open_table(root, INBOX).to_pyarrow_table(columns=["message_key"]).column(0).to_pylist()
        came = [row["message_key"] for row in world.at(root).end() if row["subscription"] == PLAIN]
        assert sorted(came) == sorted(sent)
        counts.append(len(sent))
    assert counts == sorted(counts)
    assert counts[-1] > 0
