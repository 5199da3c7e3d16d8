"""What the doctor finds in checkpoints and prepared parts that do not go with the tables."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")
pytest.importorskip("typer", reason="the command needs requirements/all.lock")


from pipeline.client.producing.inbox import OutgoingMessage, send
from pipeline.delta.deltars import open_table, path_of
from pipeline.doctor.check_checkpoints import checkpoints
from pipeline.doctor.look import Look
from schemas import DELIVERIES, INBOX, REDELIVERY
from tests.support.client import message_row
from tests.support.examined import (
    DUE,
    NOW,
    checkpoint,
    commit,
    delivery,
    entries,
    files,
    made,
    prepare,
    wrong,
)


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A healthy warehouse, to be hurt."""
    return str(shutil.copytree(made(), tmp_path / "warehouse"))


@pytest.mark.parametrize("stage", ["ingest", "schedule", "dispatch"])
def test_a_checkpoint_of_somebody_else_or_none_is_found(root: str, stage: str) -> None:
    """The start refuses it; the doctor says it before."""
    Path(root, "_checkpoints", stage, "metadata").write_text('{"id": "other"}')
    assert ("foreign_owner", stage) in wrong(root)
    shutil.rmtree(Path(root, "_checkpoints", stage))
    assert ("foreign_owner", stage) in wrong(root)
    Path(root, "_checkpoints", stage).mkdir()
    origin = {
        "version": 3 if stage == "ingest" else 2,
        "index": -1,
        "instant": NOW,
        "rebuilt": None,
        "after": [stage[0]],
    }
    Path(root, "_checkpoints", stage, "origin.json").write_text(json.dumps(origin))
    assert wrong(root) == set()


@pytest.mark.parametrize("stage", ["ingest", "schedule", "dispatch"])
def test_a_checkpoint_that_is_older_than_its_table_is_found(root: str, stage: str) -> None:
    """Line 1: restored, or copied while the stage ran; by one batch, or by none but with other ends."""
    offsets = Path(root, "_checkpoints", stage, "offsets")
    shutil.copy(offsets / "0", offsets / "old")
    (offsets / "0").write_text((offsets / "0").read_text().replace('"reservoirVersion": ', '"reservoirVersion": 1'))
    assert ("batch_differs", stage) in wrong(root)
    for folder in ("offsets", "commits"):
        shutil.rmtree(Path(root, "_checkpoints", stage, folder))
    assert ("checkpoint_behind", stage) in wrong(root)


def test_offsets_that_a_power_cut_left_empty_are_found(root: str) -> None:
    """Spark says of them that a line is missing."""
    Path(root, "_checkpoints/schedule/offsets/1").write_text("v1\n")
    assert wrong(root) == {("offsets_torn", "schedule")}


def test_tables_that_are_older_than_the_checkpoint_are_found(root: str) -> None:
    """Somebody restored tables and left the checkpoints."""
    send(root, [OutgoingMessage("t", b"")])
    checkpoint(root, "ingest", 1, 4)
    assert wrong(root) == {("table_behind", "ingest")}
    Path(root, "_checkpoints/schedule/written.json").write_text('{"redelivery": 3}')
    assert wrong(root) == {("table_behind", "ingest"), ("table_behind", "schedule")}


def test_what_a_stage_writes_while_somebody_looks_is_not_missed(root: str) -> None:
    """What the checkpoint remembers is read before the tables: a stage that runs is ahead of what was read of them."""
    look = Look(root, NOW)
    Path(root, "_checkpoints/schedule/written.json").write_text('{"redelivery": 1}')
    commit(root, REDELIVERY, [], "schedule", {"instant": NOW, "version": 2, "index": -1}, batch=1)
    checkpoint(root, "schedule", 1, 2)
    assert list(checkpoints(look)) == []


def test_a_source_that_begins_behind_a_stage_or_lost_files_is_found(root: str) -> None:
    """A VACUUM or a clean-up of logs that did not ask who has still to read."""
    for _ in range(2):
        send(root, [OutgoingMessage("t", b"")])
    before = set(files(root, INBOX))
    send(root, [OutgoingMessage("t", b"")])
    (fresh,) = set(files(root, INBOX)) - before
    fresh.unlink()
    assert ("source_gone", "ingest") in wrong(root)
    open_table(root, INBOX).create_checkpoint()
    for entry in entries(root, INBOX)[:-1]:
        entry.unlink()
    assert ("source_cut", "ingest") in wrong(root)


def test_prepared_parts_whose_files_are_gone_are_found(root: str) -> None:
    """Line 2: VACUUM took them while dispatch stood still. What was in them is not told twice."""
    open_table(root, DELIVERIES).delete("subscription = 'a' AND entry_id >= 2")
    file = prepare(root, 2, *(delivery(message_row(0, entry, DUE[entry]), "a") for entry in (2, 3)))
    checkpoint(root, "dispatch", 1, 2)
    assert wrong(root) == set()
    file.unlink()
    assert wrong(root) == {("prepared_gone", "dispatch")}


def test_prepared_parts_that_are_missing_in_between_are_found(root: str) -> None:
    """Nobody would ever make them visible."""
    checkpoint(root, "dispatch", 1, 2)
    prepare(root, 4, delivery(message_row(9, 9, 1_000), "gone"))
    assert ("prepared_lost", "dispatch") in wrong(root)


def test_a_note_of_what_is_prepared_that_cannot_be_read_is_found(root: str) -> None:
    """A power cut left it empty."""
    Path(path_of(root, DELIVERIES), "_prepared").mkdir()
    Path(path_of(root, DELIVERIES), "_prepared", "2.json").write_text("")
    assert wrong(root) == {("note_torn", "dispatch")}
