"""`delayline doctor`: what it says of a healthy warehouse, of its surroundings, and how it ends."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")
pytest.importorskip("typer", reason="the command needs requirements/all.lock")


from pipeline.client.subscribing.policysetting import set_policy
from pipeline.client.subscribing.subscriptions import subscriptions
from pipeline.config.errors import NoWarehouse
from pipeline.delta.deltars import append, rows_of
from pipeline.doctor.examine import CHECKS, examine
from pipeline.doctor.look import Finding, Look, Severity, error
from schemas import (
    LEFT_OUT,
    MESSAGES,
    REJECTED_DISPATCH,
    REJECTED_INGEST,
)
from tests.support.client import at, left_out_row, message_row, put
from tests.support.examined import (
    NOW,
    files,
    found,
    made,
    wrong,
)
from tests.support.invoked import invoke, invoke_line


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A healthy warehouse, to be hurt."""
    return str(shutil.copytree(made(), tmp_path / "warehouse"))


def test_nothing_is_wrong_with_a_healthy_warehouse(root: str) -> None:
    """A doctor that cries wolf is not listened to."""
    assert found(root) == []
    assert examine(root, NOW).versions["inbox"] == 2


def test_each_check_is_made_of_something(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A check that fails says so; it neither hides the others nor passes for health."""

    def fails(_: Look) -> list[Finding]:
        raise RuntimeError("planted")

    monkeypatch.setitem(CHECKS, "clock", fails)
    assert wrong(root) == {("not_checked", "clock")}


def test_what_is_there_for_a_moment_only_is_not_told(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stages run while somebody looks: what is wrong between two of their commits is right at the second look."""
    looks: list[Look] = []

    def once(look: Look) -> list[Finding]:
        looks.append(look)
        return [error("planted", f"subject {len(looks)}", "", ""), error("planted", "same", "", "")]

    monkeypatch.setitem(CHECKS, "clock", once)
    assert wrong(root) == {("planted", "same")}


def test_a_folder_without_tables_is_no_warehouse(tmp_path: Path) -> None:
    """The name of a folder is easily mistyped."""
    with pytest.raises(NoWarehouse):
        examine(str(tmp_path), NOW)


def test_a_clock_that_was_ahead_is_told(root: str) -> None:
    """Delays count from the future until real time catches up; a replay's clock is nobody's."""
    (ahead, *_) = examine(root, NOW - 600_000).findings
    assert (ahead.what, ahead.subject, ahead.severity) == ("clock_ahead", "ingest", Severity.WARNING)
    Path(root, "_clock").mkdir()
    Path(root, "_clock", "ingest").touch()
    assert examine(root, NOW - 600_000).findings == ()


@pytest.mark.parametrize(
    ("free", "severity"), [(10 << 30, None), (4 << 30, Severity.WARNING), (500 << 20, Severity.ERROR)]
)
def test_a_disk_that_fills_is_told(
    root: str, free: int, severity: Severity | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stages stop when nothing can be written any more."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _: (100 << 30, 0, free))
    assert [each.severity for each in examine(root, NOW).findings] == ([] if severity is None else [severity])


def test_refused_rows_are_told_by_reason_and_are_not_wrong(root: str) -> None:
    """They are the senders' matter."""
    rows = [{"reason": reason, "rejected_at": at(NOW), "batch_id": 0} for reason in ("b", "a", "b")]
    append(root, REJECTED_INGEST, rows_of(REJECTED_INGEST, rows))
    report = examine(root, NOW)
    assert [(each.severity, each.subject, each.text) for each in report.findings] == [
        (Severity.NOTE, "rejected_ingest", "2 b, 1 a")
    ]
    assert report.healthy


def test_what_was_left_out_was_not_refused(root: str) -> None:
    """A command moved it or withdrew it, it expired, or it did not meet its guard: no sender did wrong."""
    put(root, REJECTED_DISPATCH, *(left_out_row(9, 9, 2_000, subscription="gone", reason=each) for each in LEFT_OUT))
    assert [each for each in examine(root, NOW).findings if each.what == "rejected"] == []


def test_the_command_tells_what_is_wrong_with_the_remedy_and_its_exit_code(root: str) -> None:
    """0 nothing, 1 something, 2 usage: a script looks at nothing else."""
    said = invoke(["doctor", "-w", root])
    assert (said.exit_code, said.stdout.splitlines()[-1]) == (0, "Nothing is wrong.")
    shutil.rmtree(Path(root, "_checkpoints/ingest"))
    said = invoke(["doctor", "-w", root])
    assert said.exit_code == 1
    assert f"remedy: delayline rebuild --warehouse {root} --stage ingest" in said.stdout
    result = invoke(["doctor", "-w", root, "--json"])
    assert result.exit_code == 1
    assert [each["what"] for each in json.loads(result.stdout)["findings"]] == ["foreign_owner"]
    assert invoke(["doctor"]).exit_code == 2


@pytest.mark.parametrize(("free", "word"), [(10**8, "disk_full"), (4 * 10**9, "disk_filling")])
def test_a_disk_with_little_room_is_told_until_there_is_room(
    root: str, monkeypatch: pytest.MonkeyPatch, free: int, word: str
) -> None:
    """Before a write fails."""
    with monkeypatch.context() as little:
        little.setattr(shutil, "disk_usage", lambda _: (10**11, 10**11 - free, free))
        assert [each.what for each in examine(root, NOW).findings if each.check == "space"] == [word]
    monkeypatch.setattr(shutil, "disk_usage", lambda _: (10**11, 0, 10**11))
    assert [each.what for each in examine(root, NOW).findings if each.check == "space"] == []


def test_what_expires_while_its_subscription_is_closed_is_told(root: str) -> None:
    """Nobody would get what is due in the evening. What lives for a weekend lives long enough."""
    name = next(iter(subscriptions(root))).named
    set_policy(root, *name, open="Mo-Fr 08:00-18:00", open_zone="Europe/Rome", ttl_ms=3_600_000)
    (finding,) = (each for each in examine(root, NOW).findings if each.what == "expires_closed")
    assert (finding.subject, finding.severity) == ("/".join(name), Severity.WARNING)
    invoke_line(finding.remedy.partition(": ")[2])
    assert "expires_closed" not in {each.what for each in examine(root, NOW).findings}


def test_messages_that_are_not_due_yet_are_not_read(root: str) -> None:
    """They are nearly all that a large warehouse has: who looks each minute must not read ten million of them."""
    (before,) = files(root, MESSAGES)
    put(root, MESSAGES, *({**message_row(0, entry, 10 * NOW), "parked": True} for entry in (5, 6, 7)))
    parked = next(each for each in files(root, MESSAGES) if each != before)
    parked.unlink()
    assert wrong(root) == {("file_missing", "messages")}
