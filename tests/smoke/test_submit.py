"""The mains as processes of their own: how they end, and what they refuse with one line and an exit code."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.service.stopfile import StopFile
from schemas import INBOX
from tests.support.jobs import (
    PATIENCE_S,
    lose_the_content_of_a_version,
    main,
    said,
    started,
    until,
    words_of_ours,
)
from tests.support.modules import ROOT


@pytest.mark.soak
def test_a_stop_file_ends_a_stage_well_and_a_lost_version_ends_it_with_the_reason(tmp_path: Path) -> None:
    """Exit codes 0 and 1; a stage alone, without spark-submit. An old request does not stop a new process."""
    warehouse, first, second = (tmp_path / name for name in ("warehouse", "first", "second"))
    with started(main("ingest", warehouse), first, PYTHONPATH=str(ROOT)) as job:
        until((warehouse / "_checkpoints/ingest/commits/0").exists, job, first)
        StopFile(str(warehouse)).ask()
        assert job.wait(timeout=PATIENCE_S) == 0, said(first)
    with started(main("ingest", warehouse), second, PYTHONPATH=str(ROOT)) as job:
        lose_the_content_of_a_version(warehouse / INBOX.name)
        assert job.wait(timeout=PATIENCE_S) == 1, said(second)
    assert words_of_ours(first) == []
    (reason,) = words_of_ours(second)
    assert reason.startswith("delayline: stage ingest: ")
    assert "inbox: version" in reason


def test_a_bad_profile_is_refused_with_one_line(tmp_path: Path) -> None:
    """Before anything is started: the exit code is 2, and the line names the file."""
    path = tmp_path / "bad.toml"
    path.write_text("[clock", encoding="utf-8")
    with started(main("deliver", tmp_path / "w", path), tmp_path / "empty", PYTHONPATH=str(ROOT)) as job:
        assert job.wait(timeout=PATIENCE_S) == 2
    lines = said(tmp_path / "empty").splitlines()
    assert len(lines) == 1
    assert str(path) in lines[0]
    assert not (tmp_path / "w").exists()


def test_without_java_there_is_one_line_and_no_stack_trace(tmp_path: Path) -> None:
    """Whoever lacks it reads what to install."""
    nowhere = {"JAVA_HOME": str(tmp_path / "nowhere"), "PYTHONPATH": str(ROOT)}
    with started(main("schedule", tmp_path / "w"), tmp_path / "empty", **nowhere) as job:
        assert job.wait(timeout=PATIENCE_S) == 2
    lines = said(tmp_path / "empty").splitlines()
    assert len(lines) == 1
    assert "Java 17" in lines[0]
