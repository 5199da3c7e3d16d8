"""The mains as processes of their own: what they refuse, with one line and an exit code."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROFILE = ROOT / "conf" / "local.toml"
PATIENCE_S = 300
Process = subprocess.Popen[bytes]


@contextmanager
def started(command: list[str], folder: Path, **environment: str) -> Iterator[Process]:
    """A process in a folder of its own, its words in `log`; killed if the test leaves it running."""
    folder.mkdir(exist_ok=True)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, env=os.environ | environment, stdout=log, stderr=log)  # noqa: S603 - our own
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()


def main(job: str, warehouse: Path, profile: Path = PROFILE) -> list[str]:
    """The command of a main without spark-submit."""
    return [sys.executable, "-m", f"jobs.{job}", "--profile", str(profile), "--warehouse", str(warehouse)]


def said(folder: Path) -> str:
    """What the process wrote."""
    return (folder / "log").read_text(encoding="utf-8", errors="replace")


@pytest.mark.parametrize(
    "profile", ["[settings]\nhorizon_ms = -1", "[settings]\nhorizont_ms = 1", "[clock", '[settings]\npartitions = "2"']
)
def test_a_bad_profile_is_refused_with_one_line(tmp_path: Path, profile: str) -> None:
    """Before anything is started: the exit code is 2, and the line names the file."""
    path = tmp_path / "bad.toml"
    path.write_text(profile, encoding="utf-8")
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
