"""`delayline stop --wait`, and how a service logs."""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from threading import Event

import pytest

pytest.importorskip("typer", reason="the command needs requirements/all.lock")
pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

from jobs.commands import stopping
from jobs.commands.logs import LogFormat, LogLevel, reporter
from pipeline.config.printed import json_record
from pipeline.config.stages import ALL_STAGES, INGEST
from pipeline.storage.locks import StageLock, warn_unlocked
from tests.support.client import new_warehouse
from tests.support.invoked import run


@contextmanager
def own_log() -> Iterator[None]:
    """The log of a process that nobody has set up; that of the test run is as it was afterwards."""
    log = logging.getLogger()
    before, level = list(log.handlers), log.level
    log.handlers.clear()
    try:
        yield
    finally:
        log.handlers[:] = before
        log.setLevel(level)
        logging.getLogger("py4j").setLevel(logging.NOTSET)


def test_stop_waits_for_the_end_of_the_job(tmp_path: Path) -> None:
    """A script may go on then; who still runs is named."""
    root = str(tmp_path)
    new_warehouse(root)
    assert run(root, "stop", "--wait", "5s").exit_code == 0
    with StageLock(INGEST, f"{root}/_checkpoints").held():
        waited = run(root, "stop", "--wait", "1ms")
        assert (waited.exit_code, len(waited.stderr.splitlines())) == (1, 1)
        assert f"{INGEST} runs in process" in waited.stderr
        assert run(root, "stop").exit_code == 0


def test_stop_says_what_it_did_and_names_the_folder(tmp_path: Path) -> None:
    """It printed nothing, whether somebody ran or not."""
    root = str(tmp_path)
    new_warehouse(root)
    assert (run(root, "stop").exit_code, run(root, "stop").stdout) == (0, f"no job runs on {root}\n")
    with StageLock(INGEST, f"{root}/_checkpoints").held():
        asked = run(root, "stop")
    assert (asked.exit_code, asked.stdout) == (0, f"asked the job on {root} to stop\n")


def test_stop_on_a_full_disk_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system does not say where a write into an open file was."""
    root = str(tmp_path)
    new_warehouse(root)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", full)
    refused = run(root, "stop")
    assert (refused.exit_code, refused.stderr) == (
        1,
        f"delayline: the disk of {root}/_control is full; make room and try again\n",
    )


def test_stop_waits_for_the_process_and_not_only_for_its_stages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had let its stages go, and had yet to log that it stopped."""
    root, ended = str(tmp_path), Event()
    new_warehouse(root)

    def end(_: float) -> None:
        ended.set()
        process.communicate(b"\n")

    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        looks = count()
        monkeypatch.setattr(stopping, "holder", lambda *_: process.pid if next(looks) < len(ALL_STAGES) else None)
        waited = run(root, "stop", "--wait", "1ms")
        assert (waited.exit_code, f"process {process.pid} ends" in waited.stderr) == (1, True)
        looks = count()
        monkeypatch.setattr("jobs.commands.stopping.time.sleep", end)
        assert (run(root, "stop", "--wait", "30s").exit_code, ended.is_set()) == (0, True)


def test_stop_waits_for_a_job_that_the_system_does_not_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its process is in another container, or there is no list. Where there are no locks either nobody can tell."""
    root = str(tmp_path)
    new_warehouse(root)
    monkeypatch.setattr(stopping, "holder", lambda *_: None)
    with StageLock(INGEST, f"{root}/_checkpoints").held():
        waited = run(root, "stop", "--wait", "1ms")
        assert (waited.exit_code, f"{INGEST} runs in a process" in waited.stderr) == (1, True)
    assert run(root, "stop", "--wait", "5s").exit_code == 0

    def without(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", without)
    waited = run(root, "stop", "--wait", "5s")
    assert (waited.exit_code, "delayline status" in waited.stderr) == (2, True)


def test_a_service_tells_lines_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    """News and messages of the log, each a line; of Spark's bridge only warnings."""
    with own_log():
        tell = reporter(LogLevel.INFO, LogFormat.JSON, quiet=False)
        tell("Running")
        log = logging.getLogger("pipeline.test")
        log.info("two\nlines")
        log.debug("no")
        logging.getLogger("py4j").info("no")
        try:
            raise ValueError("odd")  # noqa: TRY301
        except ValueError:
            log.exception("failed")
    found = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [(each["level"], each["message"]) for each in found] == [
        ("INFO", "Running"),
        ("INFO", "two\nlines"),
        ("ERROR", "failed"),
    ]
    assert "ValueError: odd" in found[2]["trace"]
    assert all(each["at"].endswith("Z") for each in found)


def test_a_quiet_service_tells_what_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing else."""
    with own_log():
        tell = reporter(LogLevel.WARNING, LogFormat.TEXT, quiet=True)
        tell("Running")
        logging.getLogger("pipeline.test").info("no")
        logging.getLogger("pipeline.test").warning("yes")
        warn_unlocked("/a/folder")
        warn_unlocked("s3a://bucket/wh")
    yes, unlocked = capsys.readouterr().err.splitlines()
    assert (yes, unlocked.split(":")[0]) == ("yes", "No lock keeps a second process out of s3a")


def test_a_line_of_json_has_no_control_characters() -> None:
    """Those that terminals follow are spelled out, the ones above U+007F, too."""
    line = json_record(0, "INFO", "a", "\x9b31m \x85 \u202e é")
    assert line.isascii()
    assert json.loads(line)["message"] == "\x9b31m \x85 \u202e é"
