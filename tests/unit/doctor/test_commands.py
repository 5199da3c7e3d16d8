"""The doctor knows what commands withdrew."""

from __future__ import annotations

from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

pytest.importorskip("deltalake", reason="the doctor needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

from pipeline.delta.deltars import open_table, query
from pipeline.doctor.check_commands import LONG_BEFORE_MS
from pipeline.doctor.examine import examine
from pipeline.storage.files import Files
from pipeline.subscriptions.settled import SettledMark, raise_to
from schemas import COMMANDS, DELIVERIES, HELD, MESSAGES, REDELIVERY, REJECTED_DISPATCH
from tests.support.client import at, left_out_row, put
from tests.support.examined import NOW, made, wrong

Row = dict[str, Any]


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A healthy warehouse."""
    return str(copytree(made(), tmp_path / "warehouse"))


def command(first: int, last: int, **more: Any) -> Row:  # noqa: ANN401 - columns
    """A cancel of entries of the first ledger, given when they were due."""
    of = {"topic": "t", "subscription": "a", "life": 1, "redelivery_count": 0, "ledger_id": 0}
    columns = {"kind": "cancel", "command_id": "c", "due_time": at(2_000), "at": at(1_000)}
    return {**of, **columns, "first_entry": first, "last_entry": last, **more}


def notes(root: str) -> dict[str, str]:
    """What is said of commands and is nobody's illness."""
    found = [each for each in examine(root, NOW).findings if each.check == "commands"]
    return {each.what: each.text for each in found}


def left_out(root: str, name: str) -> None:
    """Dispatch left out the second message of a subscription."""
    put(root, REJECTED_DISPATCH, left_out_row(0, 1, 2_000, subscription=name))


def test_what_is_held_is_not_missed(root: str) -> None:
    """It comes when its subscription goes on."""
    open_table(root, DELIVERIES).delete("subscription = 'a' AND entry_id = 1")
    assert wrong(root) == {("not_delivered", "t/a")}
    (run,) = query("SELECT * FROM t WHERE subscription = 'a' AND first_entry = 1", t=open_table(root, REDELIVERY))
    put(root, HELD, run)
    assert wrong(root) == set()


def test_what_was_left_out_is_not_missed_and_is_no_refusal(root: str) -> None:
    """It is where it should be."""
    put(root, COMMANDS, command(1, 1))
    open_table(root, DELIVERIES).delete("subscription = 'a' AND entry_id = 1")
    assert wrong(root) == {("not_delivered", "t/a")}
    left_out(root, "a")
    assert wrong(root) == set()
    assert "rejected" not in {each.what for each in examine(root, NOW).findings}
    assert notes(root) == {}


def test_what_was_left_out_and_delivered_is_found(root: str) -> None:
    """It is one or the other, never both."""
    put(root, COMMANDS, command(1, 1, subscription="b"))
    left_out(root, "b")
    assert wrong(root) == {("delivered_and_left_out", "t/b")}


def test_what_nobody_cancelled_and_was_left_out_is_found_unless_commands_of_its_time_may_be_gone(root: str) -> None:
    """A command that names another subscription, or another message, is no reason."""
    open_table(root, DELIVERIES).delete("subscription = 'a' AND entry_id = 1")
    left_out(root, "a")
    put(root, COMMANDS, command(1, 1, subscription="b"), command(0, 0), command(2, 3))
    assert wrong(root) == {("left_out_without_command", "t/a")}
    raise_to(Files(), root, SettledMark(2_000, 1, 1))
    assert wrong(root) == set()


def test_what_was_cancelled_long_before_and_delivered_is_found(root: str) -> None:
    """A cancel shortly before is too late, and one that was taken back says nothing."""
    long_before = at(3_000 - LONG_BEFORE_MS)
    early = [command(*each, at=long_before, command_id="early") for each in ((0, 1), (4, 4))]
    put(root, COMMANDS, *early, command(2, 2, at=at(3_000), command_id="late"))
    assert wrong(root) == set()
    put(root, COMMANDS, command(0, 2, at=long_before))
    assert wrong(root) == {("cancelled_and_delivered", "t/a")}
    Path(root, "_clock").mkdir()
    Path(root, "_clock", "0").touch()
    assert ("cancelled_and_delivered", "t/a") not in wrong(root)
    Path(root, "_clock", "0").unlink()
    put(root, COMMANDS, command(2, 2, kind="undo", command_id="u", undoes="c"))
    assert wrong(root) == set()


def test_commands_of_what_is_not_there_are_told(root: str) -> None:
    """What is deleted from the log and was delivered is there; what ingest has still to give would be withdrawn."""
    open_table(root, MESSAGES).delete("entry_id = 0")
    before = wrong(root)
    put(root, COMMANDS, command(0, 4))
    assert notes(root) == {}
    put(root, COMMANDS, command(3, 9, command_id="more"))
    assert notes(root) == {"command_of_nothing": "5 positions are named that no table has, or has any more"}
    assert wrong(root) == before
    put(root, COMMANDS, command(0, 9, command_id="coming", ledger_id=1))
    assert wrong(root) == before | {("command_of_what_comes", "t")}


def test_an_undo_of_a_command_that_is_not_there_is_told(root: str) -> None:
    """It would be in force before its cancel."""
    put(root, COMMANDS, command(0, 1, kind="undo", command_id="u", undoes="nosuch"))
    assert notes(root) == {
        "undo_of_nothing": "1 commands are taken back that are not there, the first is nosuch",
    }
    assert wrong(root) == set()


def test_rows_that_cannot_be_followed_are_told_and_are_nobodys_illness(root: str) -> None:
    """Whoever wrote them by hand wonders why nothing happened."""
    put(root, COMMANDS, {"kind": "forget"}, {"kind": "cancel"})
    assert wrong(root) == set()
    assert notes(root) == {"command_not_followed": "1 unknown_kind, 1 no_name"}
