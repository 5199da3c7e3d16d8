"""Whatever dies, begins anew or is rebuilt between two batches: the tables say what they say where nothing happens.

Random worlds are played on several ways at once (`tests.support.playedscripts`).
"""

from __future__ import annotations

from functools import partial
from shutil import rmtree

import pytest
from hypothesis import Phase, given, settings

pytest.importorskip("pyspark", reason="the stages are made for sessions of Spark")
pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")

from pipeline.config.options import Options
from pipeline.config.settings import VirtualClock
from pipeline.config.stages import DISPATCH, INGEST, SCHEDULE, SETTLE
from pipeline.service.rebuild import rebuild
from schemas import PUBLICATIONS, REDELIVERY, SEGMENTS
from tests.support.drawnscripts import POLICIES, STEADY, Script, scripts
from tests.support.playedscripts import OF_BATCHES, SETTINGS, Played, Way, play, undisturbed

_PHASES = [Phase.explicit, Phase.reuse, Phase.generate]
"""To make a script shorter takes long: rather look at what its failure names."""
IS_SHORT = settings().max_examples <= 50
"""Then the same worlds are played each time: a long search looks for others."""
EXAMPLES = max(1, min(settings().max_examples // 50, 60))


def dying(root: str) -> Way:
    """Stages die in the middle of batches, and do them again."""
    return Way(Played(root), dies=True, but=OF_BATCHES, less=(PUBLICATIONS,))


def begun_anew(root: str) -> Way:
    """All stages begin anew before each step: what they know is in the tables."""
    return Way(Played(root), before=Played.restart_all, but=OF_BATCHES, less=(PUBLICATIONS,))


def forgetful(root: str) -> Way:
    """The checkpoint of settle is lost before each step: all that it needs is in the tables."""

    def before(stages: Played) -> None:
        stages.restart(SETTLE)
        rmtree(stages.warehouse.checkpoint(SETTLE), ignore_errors=True)

    return Way(Played(root), before=before)


def rebuilt(stage: str, root: str) -> Way:
    """A stage is rebuilt before each step: the others go on. Its batches count from 0 again."""

    def before(stages: Played) -> None:
        rebuild(stages.warehouse, stage, Options(VirtualClock(), SETTINGS), whole=True)
        stages.restart(stage)

    return Way(Played(root), before=before, but=OF_BATCHES, less=(SEGMENTS, PUBLICATIONS, REDELIVERY), rebuilt=True)


@settings(max_examples=EXAMPLES, phases=_PHASES, derandomize=IS_SHORT)
@given(scripts(STEADY, deaths=True))
def test_a_batch_that_is_repeated_does_what_it_does_where_nobody_dies(script: Script) -> None:
    """Ingest, dispatch and settle die after any step."""
    play(script, undisturbed, dying)


@settings(max_examples=EXAMPLES, phases=_PHASES, derandomize=IS_SHORT)
@given(scripts(STEADY))
def test_who_begins_anew_knows_what_it_knew(script: Script) -> None:
    """All that a stage keeps in memory is in the tables, or follows from them."""
    play(script, undisturbed, begun_anew)


@settings(max_examples=EXAMPLES, phases=_PHASES, derandomize=IS_SHORT)
@given(scripts(POLICIES))
def test_settle_needs_no_checkpoint(script: Script) -> None:
    """Whatever is lost between two batches."""
    play(script, undisturbed, forgetful)


@pytest.mark.parametrize("stage", [INGEST, SCHEDULE, DISPATCH])
def test_what_is_rebuilt_is_what_was_kept(stage: str) -> None:
    """The index beside that of a stage that runs on, and the places of ingest and dispatch."""

    @settings(max_examples=EXAMPLES, phases=_PHASES, derandomize=IS_SHORT)
    @given(scripts(STEADY))
    def search(script: Script) -> None:
        play(script, undisturbed, partial(rebuilt, stage))

    search()
