"""The doctor knows what commands withdrew."""

from __future__ import annotations

from pathlib import Path
from shutil import copytree

import pytest

pytest.importorskip("deltalake", reason="the doctor needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

from pipeline.delta.deltars import open_table
from pipeline.doctor.examine import examine
from schemas import COMMANDS, DELIVERIES, REJECTED_DISPATCH
from tests.support.client import at, put
from tests.support.examined import NOW, made, wrong


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A healthy warehouse."""
    return str(copytree(made(), tmp_path / "warehouse"))


def left_out(root: str, name: str) -> None:
    """Dispatch left out the second message of a subscription."""
    of = {"topic": "t", "subscription": name, "life": 1, "ledger_id": 0, "entry_id": 1, "redelivery_count": 0}
    times = dict.fromkeys(("due_time", "rejected_at"), at(2_000))
    put(root, REJECTED_DISPATCH, {**of, **times, "reason": "cancelled", "cause": "due", "batch_id": 0})


def test_what_was_left_out_is_not_missed_and_is_no_refusal(root: str) -> None:
    """It is where it should be."""
    open_table(root, DELIVERIES).delete("subscription = 'a' AND entry_id = 1")
    assert wrong(root) == {("not_delivered", "t/a")}
    left_out(root, "a")
    assert wrong(root) == set()
    assert "rejected" not in {each.what for each in examine(root, NOW).findings}


def test_what_was_left_out_and_delivered_is_found(root: str) -> None:
    """It is one or the other, never both."""
    left_out(root, "b")
    assert wrong(root) == {("delivered_and_left_out", "t/b")}


def test_rows_that_cannot_be_followed_are_told_and_are_nobodys_illness(root: str) -> None:
    """Whoever wrote them by hand wonders why nothing happened."""
    put(root, COMMANDS, {"kind": "forget"}, {"kind": "cancel"})
    assert wrong(root) == set()
    (told,) = [each for each in examine(root, NOW).findings if each.check == "commands"]
    assert (told.what, told.text) == ("command_not_followed", "1 unknown_kind, 1 no_name")
