"""A main in this process, on the session of the tests: how it ends. `make soak` has it as a process of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event

import pytest

from jobs import main
from pipeline.client.producing.inbox import OutgoingMessage, send
from pipeline.config.threads import beside
from pipeline.service.stopfile import StopFile
from schemas import INBOX
from tests.support.jobs import PROFILE, lose_the_content_of_a_version
from tests.support.spark import lent

LOOK_S = 0.05


@pytest.fixture(autouse=True)
def shared(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The main is given the session of the tests."""
    with lent() as spark:
        monkeypatch.setattr(main, "kept_session", lambda *_, **__: spark)
        yield


def ingest(warehouse: Path, then: Callable[[], None]) -> int:
    """The exit code of the main of ingest; something is done when it has done its first batch of this run."""
    commits = warehouse / "_checkpoints/ingest/commits"
    before, seen = numbers(commits), Event()

    def do(ended: Event) -> None:
        while not ended.wait(LOOK_S):
            if numbers(commits) - before and not seen.is_set():
                seen.set()
                then()

    with beside(do):
        code = main.run(["ingest"], ["--profile", str(PROFILE), "--warehouse", str(warehouse)])
    assert seen.is_set()
    return code


def numbers(commits: Path) -> set[str]:
    """The batches that are over."""
    return {path.name for path in commits.glob("[0-9]*")}


def test_a_stop_file_ends_a_stage_well_and_a_lost_version_ends_it_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit codes 0 and 1. An old request does not stop a new process."""
    warehouse = tmp_path / "warehouse"
    assert ingest(warehouse, StopFile(str(warehouse)).ask) == main.STOPPED
    assert "delayline: " not in capsys.readouterr().err
    send(str(warehouse), [OutgoingMessage("t", b"")])
    assert ingest(warehouse, lambda: lose_the_content_of_a_version(warehouse / INBOX.name)) == main.FAILED
    (reason,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("delayline: ")]
    assert reason.startswith("delayline: stage ingest: ")
    assert "inbox: version" in reason
