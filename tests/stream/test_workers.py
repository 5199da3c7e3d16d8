"""Python workers that die in the middle of a batch."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

import pandas as pd
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.state import GroupState

from pipeline.schedule import stage
from pipeline.worker import release
from tests.support.stream import advance, append, delivered, message, play, subscribe

T0 = 1_700_000_000_000


def killed_once(
    marks: str, key: release.Key, frames: Iterable[pd.DataFrame], state: GroupState
) -> Iterator[pd.DataFrame]:
    """The stateful function; the system kills its process in the middle of a call, as often as there are marks."""
    for mark in sorted(Path(marks).iterdir()):
        mark.unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    yield from release.release(key, frames, state)


@pytest.mark.soak
def test_a_worker_that_is_killed_does_not_end_the_query(
    spark: SparkSession, folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Linux kills the largest process when memory ends. The task is done again, and nothing is lost or comes twice."""
    marks = tmp_path / "marks"
    marks.mkdir()
    monkeypatch.setattr(stage, "release", partial(killed_once, str(marks)))
    kill = (marks / "once").touch
    play(
        spark,
        folder,
        [
            subscribe("t", "s"),
            append(message("a", after=1_000), message("b", after=2_000)),
            lambda _: kill(),
            advance(T0),
            lambda _: kill(),
            advance(T0 + 1_000),
            delivered("a"),
            advance(T0 + 2_000),
            delivered("a", "b"),
            lambda _: no_marks(marks),
        ],
    )


def no_marks(marks: Path) -> None:
    """Each kill has happened."""
    assert not list(marks.iterdir())
