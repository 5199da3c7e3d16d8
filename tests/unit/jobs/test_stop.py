"""`delayline stop --wait`, and how a service logs."""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("typer", reason="the command needs requirements/all.lock")
pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

from jobs.commands import stopping
from jobs.commands.logs import LogFormat, LogLevel, reporter
from pipeline.config.printed import json_record
from pipeline.config.stages import INGEST
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
