"""Maintenance waits and says why: somebody does what the doctor says then, and it goes on.

The stages and maintenance are the real ones, without a JVM.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from pathlib import Path
from shutil import copytree, rmtree

import pytest

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the stages are made for sessions of Spark")
pytest.importorskip("typer", reason="the doctor's tests need requirements/all.lock")

from deltalake import DeltaTable, write_deltalake

from pipeline.config.settings import SECOND_MS
from pipeline.config.stages import SETTLE
from pipeline.delta.deltars import open_table, path_of
from pipeline.maintenance.exemptions import SettleBehind, retention_limits
from pipeline.maintenance.layout import cluster
from pipeline.maintenance.retention import raise_mark, visible
from pipeline.subscriptions.settled import SettledMark
from schemas import MESSAGES, REDELIVERY
from tests.support.stages import Stages
from tests.support.stream import message
from tests.unit.doctor.test_again import begun, came, findings, go, open_of, whats

HOUR = 3_600 * SECOND_MS


@pytest.fixture
def stages(tmp_path: Path) -> Stages:
    """Four messages were delivered, and two of them failed and came again."""
    made = begun(tmp_path)
    go(made, 61)
    return made


def hours_later(stages: Stages) -> None:
    """Another message comes."""
    stages.instant += 5 * HOUR
    assert stages.ingest(message("new", "t"))
    go(stages)


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """What is logged as a warning since it was asked for last."""

    def since() -> list[str]:
        found = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
        caplog.clear()
        return found

    return since


def test_what_is_not_settled_holds_the_mark_until_it_is_repaired(
    stages: Stages, said: Callable[[], list[str]], tmp_path: Path
) -> None:
    """Releases are gone, and nobody can tell what was delivered of what was due then."""
    copytree(stages.root, tmp_path / "copy")
    open_table(stages.root, REDELIVERY).delete("redelivery_count = 0")
    hours_later(stages)
    assert raise_mark(stages.warehouse, HOUR) == SettledMark()
    assert [re.sub(r"\d+ ms", "N ms", each) for each in said()] == [
        "nothing is deleted: of what was due until N ms, 1 ledgers are not settled"
    ]
    (remedy,) = {each.remedy for each in findings(stages) if each.what == "not_released"}
    assert remedy.startswith("restore `redelivery` from the same copy as `deliveries`")
    rmtree(stages.root)
    copytree(tmp_path / "copy", stages.root)
    stages.restart_all()
    hours_later(stages)
    assert raise_mark(stages.warehouse, HOUR).due_ms > 0
    assert said() == []
    goes_on(stages)


def goes_on(stages: Stages) -> None:
    """The stages start again, and all comes once."""
    stages.restart_all()
    assert stages.ingest(message("newer", "t"))
    go(stages, 1)
    assert (max(came(stages).values()), len(came(stages))) == (1, 8)
    assert whats(stages) == set()


def test_what_settle_has_not_read_holds_the_rows_until_it_has_started(stages: Stages) -> None:
    """The doctor says so when it has stood still for a minute."""
    hours_later(stages)
    stages.restart(SETTLE)
    version = open_table(stages.root, REDELIVERY).version()
    assert stages.ingest(message("unread", "t"))
    stages.instant += SECOND_MS
    assert stages.ingest()
    stages.schedule.step(stages.instant)
    assert stages.dispatch()
    assert open_table(stages.root, REDELIVERY).version() > version
    mark = raise_mark(stages.warehouse, HOUR)
    with pytest.raises(SettleBehind):
        retention_limits(stages.warehouse, visible(stages.warehouse)[1] - 1, mark)
    before = open_of(stages)
    go(stages)
    assert open_of(stages) == before + 1
    retention_limits(stages.warehouse, visible(stages.warehouse)[1] - 1, mark)


def test_files_of_a_table_that_somebody_changed_are_merged_again_when_it_is_restored(
    stages: Stages, said: Callable[[], list[str]]
) -> None:
    """By the command that the doctor names."""
    hours_later(stages)
    rows = open_table(stages.root, MESSAGES).to_pyarrow_table().drop_columns(["message_key"])
    write_deltalake(path_of(stages.root, MESSAGES), rows, mode="overwrite", schema_mode="overwrite")
    cluster(stages.warehouse, 0, 1 << 20)
    assert said() == ["files of messages are left as they are: the table is not what it was made as"]
    (remedy,) = {each.remedy for each in findings(stages) if each.what == "column_missing"}
    command = re.search(r"RESTORE TABLE delta\.`(.*)` TO VERSION AS OF (\d+)", remedy)
    assert command is not None
    DeltaTable(command[1]).restore(int(command[2]))
    cluster(stages.warehouse, 0, 1 << 20)
    assert said() == []
    goes_on(stages)
