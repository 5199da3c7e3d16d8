"""What the doctor finds in single tables and their logs, and in what ingest took: each mistake planted once."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")
pytest.importorskip("typer", reason="the command needs requirements/all.lock")

import pyarrow as pa
from deltalake import DeltaTable, Field, write_deltalake
from deltalake.schema import PrimitiveType

from pipeline.client.producing.inbox import OutgoingMessage, send
from pipeline.delta.deltars import append, open_table, path_of, rows_of
from pipeline.doctor.examine import examine
from pipeline.doctor.look import Severity
from schemas import (
    DELIVERIES,
    IDENTITY,
    INBOX,
    MESSAGES,
    REJECTED_INGEST,
    SEGMENTS,
    SUBSCRIPTIONS,
)
from tests.support.client import at, message_row
from tests.support.examined import (
    NOW,
    checkpoint,
    commit,
    entries,
    files,
    found,
    made,
    marker,
    wrong,
)
from tests.support.older import take_columns


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A healthy warehouse, to be hurt."""
    return str(shutil.copytree(made(), tmp_path / "warehouse"))


def test_a_table_that_is_missing_is_named_and_the_others_are_looked_at(root: str) -> None:
    """Half a copy is a copy that somebody will start."""
    shutil.rmtree(path_of(root, SEGMENTS))
    entries(root, INBOX)[-1].write_bytes(b"")
    assert {("table_missing", "segments"), ("entry_torn", "inbox")} <= wrong(root)


def test_columns_are_those_of_the_contract(root: str) -> None:
    """A column more is somebody's wish; one that is not there, or of another type, is an error."""
    open_table(root, INBOX).alter.add_columns([Field("trace", PrimitiveType("string"))])
    (more,) = examine(root, NOW).findings
    assert (more.what, more.subject, more.severity) == ("column_added", "inbox", Severity.NOTE)
    shutil.rmtree(path_of(root, SUBSCRIPTIONS))
    columns = {"topic": pa.array([1], pa.int64()), "subscription": ["s"], "type": ["shared"], "start": ["latest"]}
    write_deltalake(path_of(root, SUBSCRIPTIONS), pa.table({**columns, "tick_ms": [1], "active": [True]}))
    assert {("column_changed", "subscriptions"), ("column_missing", "subscriptions")} <= wrong(root)


def test_a_table_made_before_its_log_was_bounded_is_named_with_the_command_that_bounds_it(root: str) -> None:
    """Otherwise a job of an older release would get slower for days before somebody asks why."""
    first = entries(root, DELIVERIES)[0]
    lines = [json.loads(line) for line in first.read_text().splitlines()]
    (metadata,) = (line["metaData"] for line in lines if "metaData" in line)
    del metadata["configuration"]["delta.deletedFileRetentionDuration"]
    first.write_text("".join(json.dumps(line) + "\n" for line in lines))
    # It says the same of its version.
    first.with_suffix(".crc").unlink()
    (unset,) = examine(root, NOW).findings
    assert (unset.what, unset.subject, unset.severity) == ("property_unset", "deliveries", Severity.WARNING)
    assert "'delta.deletedFileRetentionDuration' = 'interval 6 hours'" in unset.remedy


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
        send(root, [OutgoingMessage("t", b"")])
    open_table(root, INBOX).create_checkpoint()
    first, second, *others = entries(root, INBOX)
    for entry in (first, *others[:-1]):
        entry.unlink()
    assert ("entry_below", "inbox") in wrong(root)
    second.unlink()
    checkpoint(root, "ingest", 0, 5)
    assert not any(subject == "inbox" for _, subject in wrong(root))


def test_rows_that_wait_in_the_inbox_are_not_wrong(root: str) -> None:
    """Ingest may stand still for as long as it likes."""
    send(root, [OutgoingMessage("t", b"")])
    assert found(root) == []


@pytest.mark.parametrize("name", ["merge", "overwrite", "restore"])
def test_a_version_of_the_inbox_that_is_no_append_is_found(root: str, name: str) -> None:
    """Line 5: rows that a MERGE updated, or an overwrite wrote, never come, and nobody said so."""
    rows = rows_of(INBOX, [{"topic": "t", "payload": b"new"}])
    if name == "merge":
        merging = open_table(root, INBOX).merge(rows, "s.topic = t.topic", source_alias="s", target_alias="t")
        merging.when_matched_update({"payload": "s.payload"}).execute()
    elif name == "overwrite":
        write_deltalake(open_table(root, INBOX), rows, mode="overwrite")
    else:
        open_table(root, INBOX).delete()
        open_table(root, INBOX).restore(2)
    newest = open_table(root, INBOX).version()
    assert [(each.what, each.severity) for each in found(root)] == [("not_an_append", Severity.WARNING)]
    passes_the_inbox(root, newest)
    assert [(each.what, each.severity) for each in found(root)] == [("not_an_append", Severity.ERROR)]
    said = [("version", str(newest)), ("rows", "1"), ("remedy", "append them")]
    listed = {"reason": "not_an_append", "rejected_at": at(NOW), "batch_id": 1, "properties": said}
    append(root, REJECTED_INGEST, rows_of(REJECTED_INGEST, [listed]))
    (finding,) = found(root)
    assert (finding.what, finding.severity) == ("not_an_append", Severity.WARNING)
    assert finding.remedy.startswith("append them; then note ")


def passes_the_inbox(root: str, newest: int) -> None:
    """A batch of a release that did not look at versions takes one more append."""
    send(root, [OutgoingMessage("t", b"")])
    plan = {"now": NOW, "begin": [3, -1], "source": [newest + 2, -1], "registry": 2}
    commit(root, MESSAGES, [message_row(1, 0, 10 * NOW)], "ingest", plan, batch=1)
    commit(root, SEGMENTS, [marker()], "ingest", plan, batch=1)
    checkpoint(root, "ingest", 1, newest + 2)


def test_a_delete_or_an_optimize_of_the_inbox_is_not_wrong(root: str) -> None:
    """Neither adds anything."""
    open_table(root, INBOX).optimize.compact()
    open_table(root, INBOX).delete()
    assert wrong(root) == set()


def test_rows_that_ingest_passed_over_are_found(root: str) -> None:
    """Line 1, afterwards: a batch was taken for a narrower one, and what lay between went by."""
    send(root, [OutgoingMessage("t", b"")])
    send(root, [OutgoingMessage("t", b"")])
    plan = {"now": NOW, "begin": [4, -1], "source": [5, -1], "registry": 2}
    commit(root, MESSAGES, [message_row(1, 0, 10 * NOW)], "ingest", plan, batch=1)
    commit(root, SEGMENTS, [marker()], "ingest", plan, batch=1)
    checkpoint(root, "ingest", 1, 5)
    assert wrong(root) == {("batch_differs", "ingest"), ("not_taken", "inbox")}


def test_a_batch_of_which_one_table_is_read_too_early_is_not_missed(root: str) -> None:
    """Tables are opened one after the other while ingest goes on: it is asked for what it had done before."""
    for batch in (1, 2):
        send(root, [OutgoingMessage("t", b"")])
        plan = {"now": NOW, "begin": [batch + 2, -1], "source": [batch + 3, -1], "registry": 2}
        if batch == 2:
            commit(
                root, REJECTED_INGEST, [{"reason": "r", "rejected_at": at(NOW), "batch_id": 2}], "ingest", plan, batch
            )
            commit(root, SEGMENTS, [marker()], "ingest", plan, batch)
        checkpoint(root, "ingest", batch, batch + 3, committed=False)
    assert wrong(root) == set()
    checkpoint(root, "ingest", 2, 5)
    assert wrong(root) == {("not_taken", "inbox")}


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
        send(root, [OutgoingMessage("t", b"")] * 3)
        plan = {"now": NOW, "begin": [batch + 2, -1], "source": [batch + 3, -1], "registry": 2}
        parked = [message_row(batch, entry, 10 * NOW) for entry in range(rows)]
        commit(root, MESSAGES, parked, "ingest", plan, batch)
        commit(root, SEGMENTS, [marker()], "ingest", plan, batch)
        checkpoint(root, "ingest", batch, batch + 3)
    assert wrong(root) == {("not_accepted", "messages")}


def test_a_warehouse_whose_job_has_not_started_since_an_update_is_healthy(root: str) -> None:
    """The next start adds the columns by which producers name messages; a column from the start is missed."""
    for table in (INBOX, MESSAGES, DELIVERIES, REJECTED_INGEST):
        take_columns(root, table, IDENTITY)
    assert wrong(root) == set()
    take_columns(root, MESSAGES, ["message_key"])
    assert ("column_missing", "messages") in wrong(root)
