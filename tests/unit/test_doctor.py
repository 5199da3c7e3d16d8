"""What `delayline doctor` finds in a warehouse: each mistake planted once, and nothing in a healthy one."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")
pytest.importorskip("typer", reason="the command needs requirements/all.lock")

import pyarrow as pa
from deltalake import DeltaTable, Field, write_deltalake
from deltalake.schema import PrimitiveType
from typer.testing import CliRunner

from jobs import cli
from pipeline.client.delta import append, open_table, path_of, rows_of
from pipeline.client.errors import NoWarehouse
from pipeline.client.inbox import Message, send
from pipeline.client.registry import Subscription, subscribe
from pipeline.doctor.examine import CHECKS, examine
from pipeline.doctor.finding import Finding, Severity, error
from pipeline.doctor.look import Look
from pipeline.settled import MARK, Settled
from schemas import (
    DELIVERIES,
    INBOX,
    MESSAGES,
    PUBLICATIONS,
    REDELIVERY,
    REJECTED_DISPATCH,
    REJECTED_INGEST,
    SEGMENTS,
    SUBSCRIPTIONS,
)
from tests.support.client import at, message_row
from tests.support.examined import (
    DUE,
    NOW,
    checkpoint,
    commit,
    delivery,
    entries,
    files,
    healthy,
    marker,
    publication,
    run_row,
    wrong,
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A healthy warehouse, made once."""
    folder = tmp_path_factory.mktemp("made") / "warehouse"
    healthy(str(folder))
    return folder


@pytest.fixture
def root(made: Path, tmp_path: Path) -> str:
    """A copy of it."""
    return str(shutil.copytree(made, tmp_path / "warehouse"))


def found(root: str) -> list[Finding]:
    """All findings but information."""
    return [each for each in examine(root, NOW).findings if each.severity is not Severity.NOTE]


def test_nothing_is_wrong_with_a_healthy_warehouse(root: str) -> None:
    """A doctor that cries wolf is not listened to."""
    report = examine(root, NOW)
    assert (report.findings, report.healthy) == ((), True)
    assert report.versions["inbox"] == 2


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
        return [error("clock", "planted", f"subject {len(looks)}", "", ""), error("clock", "planted", "same", "", "")]

    monkeypatch.setitem(CHECKS, "clock", once)
    assert wrong(root) == {("planted", "same")}


def test_a_folder_without_tables_is_no_warehouse(tmp_path: Path) -> None:
    """The name of a folder is easily mistyped."""
    with pytest.raises(NoWarehouse):
        examine(str(tmp_path), NOW)


# --- tables ----------------------------------------------------------------------------------------------------------


def test_a_table_that_is_missing_is_named_and_the_others_are_looked_at(root: str) -> None:
    """Half a copy is a copy that somebody will start."""
    shutil.rmtree(path_of(root, SEGMENTS))
    entries(root, INBOX)[-1].write_bytes(b"")
    assert {("table_missing", "segments"), ("entry_torn", "inbox")} <= wrong(root)


def test_columns_are_those_of_the_contract(root: str) -> None:
    """A column more is somebody's wish; one that is not there, or of another type, is an error."""
    open_table(root, INBOX).alter.add_columns([Field("trace", PrimitiveType("string"))])
    (more,) = found(root)
    assert (more.what, more.subject, more.severity) == ("column_added", "inbox", Severity.WARNING)
    shutil.rmtree(path_of(root, SUBSCRIPTIONS))
    columns = {"topic": pa.array([1], pa.int64()), "subscription": ["s"], "type": ["shared"], "start": ["latest"]}
    write_deltalake(path_of(root, SUBSCRIPTIONS), pa.table({**columns, "tick_ms": [1], "active": [True]}))
    assert {("column_changed", "subscriptions"), ("column_missing", "subscriptions")} <= wrong(root)


def test_a_feature_that_a_stage_would_refuse_is_found_before_the_start(root: str) -> None:
    """The start says the same, hours later."""
    DeltaTable(path_of(root, MESSAGES)).alter.set_table_properties({"delta.enableChangeDataFeed": "true"})
    assert ("feature_unknown", "messages") in wrong(root)


def cut(root: str) -> None:
    """The last entry was cut off by a power cut."""
    entry = entries(root, INBOX)[-1]
    entry.write_bytes(entry.read_bytes()[:-20])


def emptied(root: str) -> None:
    """The last entry has no bytes."""
    entries(root, INBOX)[-1].write_bytes(b"")


def holed(root: str) -> None:
    """An entry in the middle is missing."""
    entries(root, INBOX)[1].unlink()


def pointed(root: str) -> None:
    """The checkpoint to which a log points is missing."""
    open_table(root, INBOX).create_checkpoint()
    next(Path(path_of(root, INBOX), "_delta_log").glob("*.checkpoint.parquet")).unlink()


def lost(root: str) -> None:
    """A file is missing."""
    files(root, INBOX)[0].unlink()


def shortened(root: str) -> None:
    """A file is shorter than it was."""
    path = files(root, INBOX)[0]
    path.write_bytes(path.read_bytes()[:100])


@pytest.mark.parametrize(
    ("plant", "what"),
    [
        (cut, "entry_torn"),
        (emptied, "entry_torn"),
        (holed, "entry_missing"),
        (pointed, "checkpoint_missing"),
        (lost, "file_missing"),
        (shortened, "file_changed"),
    ],
)
def test_a_log_or_a_file_that_is_damaged_is_found(root: str, plant: Callable[[str], None], what: str) -> None:
    """Readers pass over some of these without a word."""
    plant(root)
    assert (what, "inbox") in wrong(root)


def test_an_entry_before_the_beginning_of_a_log_is_found(root: str) -> None:
    """A commit that took too long landed where nobody looks, and its writer was told that all is well."""
    for _ in range(3):
        send(root, [Message("t", b"")])
    open_table(root, INBOX).create_checkpoint()
    first, second, *others = entries(root, INBOX)
    for entry in (first, *others[:-1]):
        entry.unlink()
    assert ("entry_below", "inbox") in wrong(root)
    second.unlink()
    checkpoint(root, "ingest", 0, 5)
    assert not any(subject == "inbox" for _, subject in wrong(root))


# --- ingest ----------------------------------------------------------------------------------------------------------


def test_rows_that_wait_in_the_inbox_are_not_wrong(root: str) -> None:
    """Ingest may stand still for as long as it likes."""
    send(root, [Message("t", b"")])
    assert found(root) == []


@pytest.mark.parametrize("name", ["merge", "overwrite"])
def test_a_version_of_the_inbox_that_is_no_append_is_found(root: str, name: str) -> None:
    """Line 5: rows that a MERGE updated, or an overwrite wrote, never come, and nobody said so."""
    rows = rows_of(INBOX, [{"topic": "t", "payload": b"new"}])
    if name == "merge":
        merging = open_table(root, INBOX).merge(rows, "s.topic = t.topic", source_alias="s", target_alias="t")
        merging.when_matched_update({"payload": "s.payload"}).execute()
    else:
        write_deltalake(open_table(root, INBOX), rows, mode="overwrite")
    assert wrong(root) == {("not_an_append", "inbox")}
    listed = {"reason": "not_an_append", "rejected_at": at(NOW), "batch_id": 1, "properties": [("version", "3")]}
    append(root, REJECTED_INGEST, rows_of(REJECTED_INGEST, [listed]))
    assert wrong(root) == set()


def test_a_delete_or_an_optimize_of_the_inbox_is_not_wrong(root: str) -> None:
    """Neither adds anything."""
    open_table(root, INBOX).optimize.compact()
    open_table(root, INBOX).delete()
    assert wrong(root) == set()


def test_rows_that_ingest_passed_over_are_found(root: str) -> None:
    """Line 1, afterwards: a batch was taken for a narrower one, and what lay between went by."""
    send(root, [Message("t", b"")])
    send(root, [Message("t", b"")])
    plan = {"now": NOW, "begin": [4, -1], "source": [5, -1], "registry": 2}
    commit(root, MESSAGES, [message_row(1, 0, 10 * NOW)], "ingest", plan, batch=1)
    commit(root, SEGMENTS, [marker()], "ingest", plan, batch=1)
    checkpoint(root, "ingest", 1, 5)
    assert wrong(root) == {("batch_differs", "ingest"), ("not_taken", "inbox")}


def test_rows_that_were_taken_by_two_batches_are_found(root: str) -> None:
    """A message that is accepted twice is delivered twice."""
    plan = {"now": NOW, "begin": [2, -1], "source": [3, -1], "registry": 2}
    commit(root, REJECTED_INGEST, [], "ingest", plan, batch=1)
    commit(root, SEGMENTS, [marker()], "ingest", plan, batch=1)
    checkpoint(root, "ingest", 1, 3)
    assert ("taken_twice", "inbox") in wrong(root)


def test_rows_that_were_taken_and_are_nowhere_are_found(root: str) -> None:
    """Of three rows two were accepted: the third one is accounted for by nobody."""
    for batch, rows in ((1, 2), (2, 3)):
        send(root, [Message("t", b"")] * 3)
        plan = {"now": NOW, "begin": [batch + 2, -1], "source": [batch + 3, -1], "registry": 2}
        parked = [message_row(batch, entry, 10 * NOW) for entry in range(rows)]
        commit(root, MESSAGES, parked, "ingest", plan, batch)
        commit(root, SEGMENTS, [marker()], "ingest", plan, batch)
        checkpoint(root, "ingest", batch, batch + 3)
    assert wrong(root) == {("not_accepted", "messages")}


# --- schedule and dispatch -------------------------------------------------------------------------------------------


def test_a_position_that_the_schedule_lost_is_found(root: str) -> None:
    """It is due, and nobody will ever let it go."""
    open_table(root, REDELIVERY).delete("subscription = 'b' AND first_entry = 1")
    open_table(root, DELIVERIES).delete("subscription = 'b' AND entry_id = 1")
    assert wrong(root) == {("not_released", "t/b")}
    (lost,) = found(root)
    assert lost.remedy == f"delayline rebuild --warehouse {root} --stage schedule"


def test_what_retention_took_away_is_not_missed(root: str) -> None:
    """Below the mark all was settled; tables lose their rows one after the other."""
    Path(path_of(root, MESSAGES), MARK).write_text(Settled(2_000, 1, 1).dumps(), encoding="ascii")
    for table, due in ((MESSAGES, "due_time"), (REDELIVERY, "message_due"), (DELIVERIES, "due_time")):
        open_table(root, table).delete(f"{due} <= '1970-01-01T00:00:02Z'")
        assert wrong(root) == set()


def test_a_position_that_is_not_due_for_a_coarse_tick_is_not_missed(root: str) -> None:
    """Due is the end of a bucket."""
    subscribe(root, Subscription("t", "coarse", tick_ms=1 << 20))
    plan = {"now": NOW, "begin": [3, -1], "source": [3, -1], "registry": 3}
    commit(root, SEGMENTS, [{**marker("coarse"), "subscriptions": [{"name": "coarse", "life": 0, "tick_ms": 1 << 20}]}],
           "ingest", plan, batch=1)  # fmt: skip
    checkpoint(root, "ingest", 1, 3)
    checkpoint(root, "schedule", 1, 3)
    assert wrong(root) == set()
    lines = Path(root, "_checkpoints/schedule/offsets/1").read_text()
    Path(root, "_checkpoints/schedule/offsets/1").write_text(lines.replace(str(NOW), str(1 << 20)))
    assert wrong(root) == {("not_released", "t/coarse")}


def test_what_the_schedule_has_not_read_yet_is_not_missed(root: str) -> None:
    """It stands still, and the log goes on."""
    send(root, [Message("t", b"")])
    plan = {"now": NOW, "begin": [3, -1], "source": [4, -1], "registry": 2}
    commit(root, MESSAGES, [message_row(1, 0, 1_000)], "ingest", plan, batch=1)
    commit(root, SEGMENTS, [{**marker(), "marker": 2, "next_ledger": 2}], "ingest", plan, batch=1)
    checkpoint(root, "ingest", 1, 4)
    assert wrong(root) == set()
    checkpoint(root, "schedule", 1, 3)
    assert wrong(root) == {("not_released", "t/a"), ("not_released", "t/b")}


def test_positions_released_twice_or_of_no_message_are_found(root: str) -> None:
    """The first would be delivered twice, the second never."""
    note = {"instant": NOW, "version": 2, "index": -1}
    commit(root, REDELIVERY, [run_row("a", 0, 0, 1), run_row("b", 0, 0, 1, ledger=9)], "schedule", note)
    assert wrong(root) == {("released_twice", "t/a"), ("not_a_message", "t/b")}


def test_a_released_position_that_dispatch_did_not_hand_over_is_found(root: str) -> None:
    """By position, although another one came twice and the number of rows is right."""
    open_table(root, DELIVERIES).delete("subscription = 'a' AND entry_id = 1")
    append(root, DELIVERIES, rows_of(DELIVERIES, [delivery(message_row(0, 2, DUE[2]), "a")]))
    assert wrong(root) == {("not_delivered", "t/a"), ("delivered_twice", "t/a")}


def test_what_dispatch_has_not_read_or_has_refused_or_prepared_is_not_missed(root: str) -> None:
    """A released position may be in four places."""
    plan = {"now": NOW, "begin": [3, -1], "source": [3, -1], "registry": 2}
    commit(root, MESSAGES, [message_row(0, entry, 1_000) for entry in range(5, 8)], "ingest", plan, batch=1)
    commit(root, SEGMENTS, [{**marker(), "marker": 2}], "ingest", plan, batch=1)
    checkpoint(root, "ingest", 1, 3)
    runs = [run_row(name, 5, 7, 1) for name in "ab"]
    commit(root, REDELIVERY, runs, "schedule", {"instant": NOW, "version": 2, "index": -1})
    assert wrong(root) == set()
    checkpoint(root, "dispatch", 1, 3)
    assert wrong(root) == {("not_delivered", "t/a"), ("not_delivered", "t/b")}
    refused = {"reason": "message_missing", "rejected_at": at(NOW), "redelivery_count": 0, "cause": "due"}
    refused |= {"topic": "t", "ledger_id": 0, "entry_id": 5, "due_time": at(1_000), "batch_id": 0}
    rows = [{**refused, "subscription": name} for name in "ab"]
    append(root, REJECTED_DISPATCH, rows_of(REJECTED_DISPATCH, rows))
    prepare(root, 2, *(delivery(message_row(0, entry, 1_000), name) for entry in (6, 7) for name in "ab"))
    assert wrong(root) == set()


def prepare(root: str, number: int, *rows: dict[str, object]) -> Path:
    """Put a part on the shelf, with its file; give the file."""
    folder = Path(path_of(root, DELIVERIES))
    file = folder / f"prepared-{number}.parquet"
    pa.parquet.write_table(rows_of(DELIVERIES, list(rows)), file)
    told = {"path": file.name, "size": file.stat().st_size, "modified": 0, "rows": len(rows), "stats": "{}"}
    part = {"number": number, "first_due": 0, "last_due": 2 * NOW, "files": [told]}
    noted = {"owner": "d", "batch": 1, "released_at": NOW, "source": [2, -1], "parts": [part]}
    (folder / "_prepared").mkdir(exist_ok=True)
    (folder / "_prepared" / f"{number}.json").write_text(json.dumps(noted))
    return file


def test_deliveries_that_were_not_released_are_found(root: str) -> None:
    """A rebuild of the schedule would deliver them once more."""
    open_table(root, REDELIVERY).delete("subscription = 'a' AND first_entry = 3")
    assert wrong(root) == {("not_released", "t/a")}
    assert len(found(root)) == 2


def test_who_left_is_owed_nothing(root: str) -> None:
    """Also while ingest has not noticed: dispatch looks at the registry itself."""
    open_table(root, DELIVERIES).delete("subscription = 'a'")
    line = {"topic": "t", "subscription": "a", "type": "shared", "start": "latest", "tick_ms": 1, "active": True}
    open_table(root, SUBSCRIPTIONS).delete("subscription = 'a'")
    assert wrong(root) == set()
    append(root, SUBSCRIPTIONS, rows_of(SUBSCRIPTIONS, [line]))
    assert wrong(root) == set()


def test_early_deliveries_are_found(root: str) -> None:
    """Never early is the other half of the promise."""
    early = delivery(message_row(7, 7, 5_000), "gone")
    append(root, DELIVERIES, rows_of(DELIVERIES, [{**early, "due_time": early["deliver_at"] - timedelta(seconds=1)}]))
    append(root, PUBLICATIONS, rows_of(PUBLICATIONS, [{**publication(), "committed_at": at(899_999)}]))
    assert wrong(root) == {("early", "deliveries"), ("early", "publications")}


# --- checkpoints and prepared parts ----------------------------------------------------------------------------------


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
    send(root, [Message("t", b"")])
    checkpoint(root, "ingest", 1, 4)
    assert wrong(root) == {("table_behind", "ingest")}
    Path(root, "_checkpoints/schedule/written.json").write_text('{"redelivery": 3}')
    assert wrong(root) == {("table_behind", "ingest"), ("table_behind", "schedule")}


def test_a_source_that_begins_behind_a_stage_or_lost_files_is_found(root: str) -> None:
    """A VACUUM or a clean-up of logs that did not ask who has still to read."""
    for _ in range(2):
        send(root, [Message("t", b"")])
    before = set(files(root, INBOX))
    send(root, [Message("t", b"")])
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


# --- surroundings and the command ------------------------------------------------------------------------------------


def test_a_clock_that_was_ahead_is_told(root: str) -> None:
    """Delays count from the future until real time catches up; a replay's clock is nobody's."""
    (ahead, *_) = examine(root, NOW - 600_000).findings
    assert (ahead.what, ahead.subject, ahead.severity) == ("clock_ahead", "ingest", Severity.WARNING)
    Path(root, "_clock").mkdir()
    assert examine(root, NOW - 600_000).findings == ()


@pytest.mark.parametrize(
    ("free", "severity"), [(10 << 30, None), (4 << 30, Severity.WARNING), (500 << 20, Severity.ERROR)]
)
def test_a_disk_that_fills_is_told(
    root: str, free: int, severity: Severity | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stages stop when nothing can be written any more."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _: (100 << 30, 0, free))
    assert [each.severity for each in found(root)] == ([] if severity is None else [severity])


def test_refused_rows_are_told_by_reason_and_are_not_wrong(root: str) -> None:
    """They are the senders' matter."""
    rows = [{"reason": reason, "rejected_at": at(NOW), "batch_id": 0} for reason in ("b", "a", "b")]
    append(root, REJECTED_INGEST, rows_of(REJECTED_INGEST, rows))
    report = examine(root, NOW)
    assert [(each.severity, each.subject, each.text) for each in report.findings] == [
        (Severity.NOTE, "rejected_ingest", "2 b, 1 a")
    ]
    assert report.healthy


def test_the_command_tells_what_is_wrong_with_the_remedy_and_its_exit_code(root: str) -> None:
    """0 nothing, 1 something, 2 usage: a script looks at nothing else."""
    doctor = partial(CliRunner().invoke, cli.app)
    said = doctor(["doctor", "-w", root])
    assert (said.exit_code, said.stdout.splitlines()[-1]) == (0, "Nothing is wrong.")
    shutil.rmtree(Path(root, "_checkpoints/ingest"))
    said = doctor(["doctor", "-w", root])
    assert said.exit_code == 1
    assert f"remedy: delayline rebuild --warehouse {root} --stage ingest" in said.stdout
    told = doctor(["doctor", "-w", root, "--json"])
    assert told.exit_code == 1
    assert [each["what"] for each in json.loads(told.stdout)["findings"]] == ["foreign_owner"]
    assert doctor(["doctor"]).exit_code == 2
