"""Somebody copies, restores and moves a warehouse at work, or its checkpoints, and does what the page says.

The stages are the real ones, without a JVM. What they deliver in the end is what they deliver undisturbed.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from shutil import copytree, rmtree

import pytest

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the stages are made for sessions of Spark")
pytest.importorskip("typer", reason="the command needs requirements/all.lock")

from pipeline.client.subscribing.policysetting import set_policy
from pipeline.config.errors import ForeignOwner, PipelineError, VersionGone
from pipeline.config.stages import STAGES
from pipeline.delta.deltars import open_table, path_of
from schemas import CONSUMER_EVENTS, HELD
from tests.support.invoked import output
from tests.support.operations import lines
from tests.support.released import rows, say
from tests.support.stages import Stages
from tests.support.stream import message
from tests.unit.doctor.test_again import begun, came, go, open_of, whats

PARTS = [
    name for line in lines() if line.startswith("for part") for name in line.partition(" in ")[2].split(";")[0].split()
]
"""What the page copies while the stages run, in its order."""
ALL = Counter([*((each, 0) for each in (b"0", b"1", b"2", b"3", b"new")), (b"0", 1), (b"1", 1)])


@pytest.fixture
def stages(tmp_path: Path) -> Stages:
    """Four messages were delivered to a subscription that acknowledges, and two of them failed."""
    return begun(tmp_path)


def copy(stages: Stages, meanwhile: Callable[[str], object] = lambda _: None) -> Stages:
    """Copy a warehouse whose stages run, in an empty folder, as the page does; something happens before each part."""
    folder = Path(stages.root).with_name("copy")
    rmtree(folder, ignore_errors=True)
    for part in PARTS:
        meanwhile(part)
        if Path(stages.root, part).exists():
            copytree(Path(stages.root, part), folder / part)
    for hint in folder.rglob("_last_checkpoint"):
        hint.unlink()
    found = Stages(str(folder))
    found.instant = stages.instant
    return found


def goes_on(stages: Stages, *more: bytes) -> None:
    """All comes once that comes undisturbed, and nothing is wrong."""
    assert stages.ingest(message("new", "t"))
    go(stages)
    go(stages, 61)
    assert came(stages) == ALL + Counter((each, 0) for each in more)
    assert open_of(stages) == 5 + len(more)
    assert whats(stages) == set()


def test_a_copy_of_which_a_log_was_cut_meanwhile_is_begun_again(stages: Stages) -> None:
    """Maintenance keeps two minutes of a log, and this copy took longer."""

    def cut(part: str) -> None:
        if part == "consumer_events":
            for _ in range(3):
                say(stages, "ack", 2)
            assert stages.settle()
            open_table(stages.root, CONSUMER_EVENTS).create_checkpoint()
            for entry in sorted(Path(path_of(stages.root, CONSUMER_EVENTS), "_delta_log").glob("*.json"))[:-1]:
                entry.unlink()

    torn = copy(stages, cut)
    with pytest.raises(VersionGone):
        torn.settle()
    assert ("source_cut", "settle") in whats(torn)
    whole = copy(stages)
    say(whole, "nack", 3)
    goes_on_without_what_was_acknowledged(whole)


def goes_on_without_what_was_acknowledged(stages: Stages) -> None:
    """One of four was acknowledged, and another one failed."""
    go(stages)
    go(stages, 61)
    assert came(stages) == ALL - Counter([(b"new", 0)]) + Counter([(b"3", 1)])
    assert open_of(stages) == 3
    assert whats(stages) == set()


def test_what_is_held_is_shown_and_a_copy_that_was_made_while_it_moved_is_made_again(stages: Stages) -> None:
    """It would be missing in the copy, or be there twice."""
    set_policy(stages.root, "t", "s", paused=True)
    assert stages.ingest(message("held", "t"))
    go(stages)

    def held() -> str:
        heads, line = output(stages.root, "subscriptions").splitlines()[:2]
        return line[heads.index("HELD") :]

    def moves(part: str) -> None:
        if part == "deliveries":
            set_policy(stages.root, "t", "s", paused=False)
            go(stages)

    assert held() == "1, paused"
    twice = copy(stages, moves)
    assert ("held_twice", "t/s") in whats(twice)
    assert (held(), rows(stages, HELD)) == ("-", [])
    goes_on(copy(stages), b"held")


def test_a_stage_that_runs_while_its_folder_moves_ends_and_goes_on_in_the_new_folder(stages: Stages) -> None:
    """And on the way back."""
    old = Path(stages.root)
    assert stages.ingest(message("moves", "t", after=1_000))
    old.rename(old.with_name("new"))
    with pytest.raises((PipelineError, OSError)):
        go(stages, 1)
    assert not old.exists()
    new = Stages(str(old.with_name("new")))
    new.instant = stages.instant
    assert new.ingest(message("there", "t"))
    go(new)
    Path(new.root).rename(old)
    stages.restart_all()
    goes_on(stages, b"moves", b"there")


@pytest.mark.parametrize("missing", [True, False], ids=["missing", "of somebody else"])
def test_a_checkpoint_that_is_missing_or_of_somebody_else_is_put_back(stages: Stages, *, missing: bool) -> None:
    """Of each stage in turn; nothing is rebuilt."""
    for stage in STAGES:
        checkpoint = Path(stages.warehouse.checkpoint(stage))
        aside = Path(copytree(checkpoint, checkpoint.with_name("aside")))
        if missing:
            rmtree(checkpoint)
        else:
            (checkpoint / "metadata").write_text(json.dumps({"id": "somebody-else"}))
        stages.restart_all()
        with pytest.raises(ForeignOwner) as refused:
            stages.start(stage)
        assert refused.value.stage == stage
        assert re.search(rf"delayline rebuild --stage {stage}$", str(refused.value))
        assert not missing or stage != STAGES[0] or ("foreign_owner", stage) in whats(stages)
        rmtree(checkpoint, ignore_errors=True)
        aside.rename(checkpoint)
    stages.restart_all()
    goes_on(stages)
