"""A main in this process, on the session of the tests: how it ends. `make soak` has it as a process of its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread

import pytest

from jobs import main
from pipeline.delta.warehouse import Warehouse
from pipeline.service.process import StopFile
from schemas import INBOX
from tests.support.jobs import PATIENCE_S, PROFILE, name_a_file_that_is_not_there
from tests.support.spark import lent

LOOK_S = 0.05


@pytest.fixture(autouse=True)
def shared(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The main is given the session of the tests."""
    with lent() as spark:
        monkeypatch.setattr(main, "kept_session", lambda *_, **__: spark)
        yield


def ingest(warehouse: Path, then: Callable[[], None]) -> int:
    """The exit code of the main of ingest; something is done when its first batch is over."""

    def do() -> None:
        end = time.monotonic() + PATIENCE_S
        while not (warehouse / "_checkpoints/ingest/commits/0").exists() and time.monotonic() < end:
            time.sleep(LOOK_S)
        then()

    beside = Thread(target=do)
    beside.start()
    code = main.run(["ingest"], ["--profile", str(PROFILE), "--warehouse", str(warehouse)])
    beside.join()
    return code


def test_a_stop_file_ends_a_stage_well_and_a_lost_file_ends_it_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit codes 0 and 1. An old request does not stop a new process."""
    warehouse = tmp_path / "warehouse"
    assert ingest(warehouse, StopFile(Warehouse(str(warehouse))).ask) == main.STOPPED
    assert "delayline: " not in capsys.readouterr().err
    assert ingest(warehouse, lambda: name_a_file_that_is_not_there(warehouse / INBOX.name)) == main.FAILED
    (reason,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("delayline: ")]
    assert reason.startswith("delayline: stage ingest: ")
    assert "gone.parquet" in reason
