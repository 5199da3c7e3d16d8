"""The doctor knows what newer messages replaced."""

from __future__ import annotations

from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

pytest.importorskip("deltalake", reason="the doctor needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

from pipeline.delta.deltars import open_table
from pipeline.storage.files import Files
from pipeline.subscriptions.settled import SettledMark, raise_to
from schemas import DELIVERIES, REJECTED_DISPATCH, REPLACED
from tests.support.client import at, left_out_row, put
from tests.support.examined import made, wrong


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A healthy warehouse."""
    return str(copytree(made(), tmp_path / "warehouse"))


def replaced(root: str, entry: int, by: int) -> None:
    """A message of the first ledger was replaced by another one."""
    row: dict[str, Any] = {"topic": "t", "ledger_id": 0, "entry_id": entry, "due_time": at(2_000), "by_ledger_id": 0}
    put(root, REPLACED, {**row, "by_entry_id": by, "replaced_at": at(1_000), "batch_id": 0})


def test_what_was_replaced_is_not_missed(root: str) -> None:
    """It is left out for one subscription; the other one had it before."""
    replaced(root, 1, 4)
    open_table(root, DELIVERIES).delete("subscription = 'a' AND entry_id = 1")
    assert wrong(root) == {("not_delivered", "t/a")}
    put(root, REJECTED_DISPATCH, {**left_out_row(0, 1, 2_000, subscription="a"), "reason": "replaced"})
    assert wrong(root) == set()


def test_what_nothing_replaced_is_not_to_be_left_out(root: str) -> None:
    """Unless rows of that time may be gone."""
    open_table(root, DELIVERIES).delete("subscription = 'a' AND entry_id = 1")
    put(root, REJECTED_DISPATCH, {**left_out_row(0, 1, 2_000, subscription="a"), "reason": "replaced"})
    assert wrong(root) == {("left_out_without_newer", "t/a")}
    raise_to(Files(), root, SettledMark(2_500, 1, 1))
    assert wrong(root) == set()


def test_a_newer_message_that_is_not_there_is_a_loss(root: str) -> None:
    """Unless it may have been due and deleted."""
    replaced(root, 4, 9)
    assert wrong(root) == {("replaced_by_nothing", "t")}
    raise_to(Files(), root, SettledMark(500, 1, 1))
    assert wrong(root) == set()
