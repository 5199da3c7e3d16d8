"""Somebody gives `RESTORE TABLE` to a table of a warehouse at work: it is refused and taken back, or does no harm."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from shutil import copytree, rmtree

import pytest

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the stages are made for sessions of Spark")
pytest.importorskip("typer", reason="the command needs requirements/all.lock")

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from pipeline.config.stages import ALL_STAGES
from pipeline.delta.deltars import open_table, path_of
from pipeline.delta.logs.restored import TableRestored
from pipeline.delta.tables import check_tables
from pipeline.storage.files import Files
from schemas import CURSORS, DELIVERIES, INBOX, MESSAGES, PUBLICATIONS, REDELIVERY, SEGMENTS, Table
from tests.support.stages import Stages
from tests.support.stream import message
from tests.unit.doctor.test_again import begun, came, findings, go, whats

WRITTEN = [MESSAGES, SEGMENTS, REDELIVERY, DELIVERIES, PUBLICATIONS, CURSORS]
"""Tables of the stages that have rows here."""


@pytest.fixture
def stages(tmp_path: Path) -> Stages:
    """Four messages were delivered to a subscription that acknowledges, and two of them failed."""
    return begun(tmp_path)


def restore(stages: Stages, table: Table, version: int = 0) -> None:
    """Restore a table, to its beginning or to a later version."""
    DeltaTable(path_of(stages.root, table)).restore(version)


@pytest.mark.parametrize("table", WRITTEN, ids=lambda table: table.name)
def test_a_start_refuses_a_table_that_was_restored_until_that_is_taken_back(stages: Stages, table: Table) -> None:
    """What the stages had written was gone, and they went on as if it were there."""
    restore(stages, table)
    version = open_table(stages.root, table).version()
    stages.restart_all()
    for stage in ALL_STAGES:
        with pytest.raises(TableRestored) as refused:
            stages.start(stage)
        assert (refused.value.table, refused.value.version) == (table.name, version)
    (remedy,) = {each.remedy for each in findings(stages) if each.what == "table_restored"}
    command = re.search(r"RESTORE TABLE delta\.`(.*)` TO VERSION AS OF (\d+)", remedy)
    assert command is not None
    assert command[0] in str(refused.value)
    DeltaTable(command[1]).restore(int(command[2]))
    assert stages.ingest(message("new", "t"))
    go(stages)
    go(stages, 61)
    assert came(stages) == Counter([*((each, 0) for each in (b"0", b"1", b"2", b"3", b"new")), (b"0", 1), (b"1", 1)])
    assert whats(stages) == set()


def test_a_table_that_was_restored_and_vacuumed_goes_on_from_a_copy_of_all(stages: Stages, tmp_path: Path) -> None:
    """Its RESTORE cannot be taken back then, as the files are gone; the error names both ways."""
    copy = str(tmp_path / "copy")
    copytree(stages.root, copy)
    go(stages, 61)
    restore(stages, DELIVERIES)
    table = open_table(stages.root, DELIVERIES)
    table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    stages.restart_all()
    with pytest.raises(TableRestored, match="restore all tables and checkpoints from one copy") as refused:
        stages.start(ALL_STAGES[0])
    with pytest.raises(DeltaError):
        DeltaTable(refused.value.path).restore(refused.value.version - 1)
    rmtree(stages.root)
    copytree(copy, stages.root)
    go(stages, 61)
    assert came(stages) == Counter([*((each, 0) for each in (b"0", b"1", b"2", b"3")), (b"0", 1), (b"1", 1)])
    assert whats(stages) == set()


def test_a_restore_that_says_no_version_is_refused_as_any_other(stages: Stages) -> None:
    """Any writer may state one of 5 000 digits, which Python refuses to read."""
    restore(stages, DELIVERIES)
    entry = Path(path_of(stages.root, DELIVERIES), "_delta_log")
    last = max(entry.glob("*.json"))
    last.write_text(re.sub(r'"version":\s*"?\d+"?', f'"version":"{"9" * 5_000}"', last.read_text()))
    assert "9" * 5_000 in last.read_text()
    with pytest.raises(TableRestored):
        check_tables(Files(), stages.warehouse)


@pytest.mark.parametrize("stage", ["ingest", "dispatch"])
def test_a_stage_that_runs_ends_when_a_table_that_it_needs_was_restored(stages: Stages, stage: str) -> None:
    """Ingest writes messages, and dispatch looks for them there."""
    stages.start(stage)
    assert stages.ingest(message("new", "t"))
    assert stages.release()
    restore(stages, MESSAGES)
    with pytest.raises(TableRestored):
        stages.ingest(message("newer", "t")) if stage == "ingest" else stages.dispatch()


@pytest.mark.parametrize("looked", [False, True])
def test_a_stage_that_runs_bears_a_restore_that_takes_back_what_others_did(stages: Stages, *, looked: bool) -> None:
    """As a start does, whether or not it has looked meanwhile. It ended, and said to delete the rows once more."""
    assert stages.ingest(message("one", "t", after=1_000), message("two", "t", after=4_000))
    version = open_table(stages.root, MESSAGES).version()
    open_table(stages.root, MESSAGES).delete("payload = X'30'")
    if looked:
        go(stages, 3)
    restore(stages, MESSAGES, version)
    go(stages, 6)
    assert all(came(stages)[each, 0] == 1 for each in (b"one", b"two"))


@pytest.mark.parametrize("table", [REDELIVERY, INBOX], ids=lambda table: table.name)
def test_rows_that_a_restore_brings_back_are_not_taken_again(stages: Stages, table: Table) -> None:
    """They were appended once, before somebody deleted them."""
    before, version = came(stages), open_table(stages.root, table).version()
    open_table(stages.root, table).delete()
    go(stages)
    restore(stages, table, version)
    assert stages.ingest()
    assert stages.dispatch()
    assert came(stages) == before
