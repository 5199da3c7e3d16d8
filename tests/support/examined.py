"""A small warehouse as the stages would have left it, written without Spark, and ways to look at it."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pyarrow.parquet as pq
from deltalake import CommitProperties, write_deltalake

from pipeline.client.create import create_all
from pipeline.client.producing.inbox import OutgoingMessage, send
from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from pipeline.delta.deltars import open_table, path_of, rows_of
from pipeline.doctor.examine import examine
from pipeline.doctor.look import Finding, Severity
from schemas import DELIVERIES, MESSAGES, PUBLICATIONS, REDELIVERY, SEGMENTS, Table
from tests.support.client import at, message_row

Row = dict[str, Any]
NOW = 1_000_000
"""The instant up to which all stages have come."""
BEHIND_ALL = 10**15
"""An instant behind all that tests play, ms UTC: by a clock of that time no stage stands at one that is to come."""
DUE = (1_000, 2_000, 3_000, 900_000)
"""When the messages of the first ledger are due; one more is parked."""
OWNERS = {"ingest": "i", "schedule": "s", "dispatch": "d"}


def wrong(root: str) -> set[tuple[str, str]]:
    """What is wrong with a warehouse, and of what."""
    return {(each.what, each.subject) for each in found(root)}


def sound(root: str) -> None:
    """Nothing is wrong, whatever state the stages are in."""
    assert wrong(root) == set(), wrong(root)


def found(root: str) -> list[Finding]:
    """All findings but information, and but for the disk of this machine.

    What it finds wrong the doctor looks for twice: the clock of a test would double what each call costs.
    """
    findings = examine(root, BEHIND_ALL).findings
    return [each for each in findings if each.severity is not Severity.NOTE and each.check != "space"]


@cache
def made() -> str:
    """A healthy warehouse, made once."""
    folder = mkdtemp()
    healthy(folder)
    return folder


def healthy(root: str) -> None:
    """Two subscriptions got all that is due of five messages; one is parked. Each stage has done one batch."""
    create_all(root)
    for name in ("a", "b"):
        subscribe(root, Subscription("t", name, tick_ms=1))
    send(root, [OutgoingMessage("t", b"")] * 3)
    send(root, [OutgoingMessage("t", b"")] * 2)
    rows = [message_row(0, entry, due) for entry, due in enumerate(DUE)]
    parked = {**message_row(0, len(DUE), 10 * NOW), "parked": True}
    plan = {"now": NOW, "begin": [0, -1], "source": [3, -1], "registry": 2, "next_ledger": 1}
    commit(root, MESSAGES, [*rows, parked], "ingest", plan)
    commit(root, SEGMENTS, [marker(), marker("a"), marker("b")], "ingest", plan)
    runs = [run_row(name, first, last, due) for name in "ab" for first, last, due in ((0, 0, 1), (1, 1, 2), (2, 2, 3))]
    runs += [run_row(name, 3, 3, 900) for name in "ab"]
    commit(root, REDELIVERY, runs, "schedule", {"instant": NOW, "version": 2, "index": -1})
    shown = {"top": 1, "below": [], "source": [2, -1], "shown": [[0, 8, 1_000, 900_000, NOW]]}
    commit(root, DELIVERIES, [delivery(row, name) for name in "ab" for row in rows], "dispatch", shown)
    commit(root, PUBLICATIONS, [publication()], "dispatch", {"version": 1})
    for stage, version in (("ingest", 3), ("schedule", 2), ("dispatch", 2)):
        checkpoint(root, stage, 0, version)


def commit(root: str, table: Table, rows: list[Row], stage: str, note: Row, batch: int = 0) -> None:
    """Append rows in one commit with a note of a stage."""
    metadata = json.dumps({"stage": stage, "owner": OWNERS[stage], "batch": batch, "note": note})
    properties = CommitProperties(custom_metadata={"userMetadata": metadata})
    write_deltalake(open_table(root, table), rows_of(table, rows), mode="append", commit_properties=properties)


def checkpoint(root: str, stage: str, batch: int, version: int, *, committed: bool = True) -> None:
    """A batch in a checkpoint folder, whose source it takes up to a version."""
    folder = Path(root, "_checkpoints", stage)
    for name in ("offsets", "commits"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "metadata").write_text(json.dumps({"id": OWNERS[stage]}))
    source = {"sourceVersion": 1, "reservoirVersion": version, "index": -1}
    lines = ["v1", json.dumps({"batchWatermarkMs": NOW}), json.dumps({"instant": NOW}), json.dumps(source)]
    (folder / "offsets" / str(batch)).write_text("\n".join(lines))
    if committed:
        (folder / "commits" / str(batch)).write_text("v1\n{}")


def marker(name: str | None = None) -> Row:
    """A row by which ingest says how far it has come, or who has joined."""
    listeners = [] if name is None else [{"name": name, "life": 0, "tick_ms": 1}]
    row = {"topic": "t" if name else "", "subscriptions": listeners, "count": 0, "kind": "marker", "batch_id": 0}
    columns = {"loaded_until": at(2 * NOW), "next_ledger": 1, "marker": 1}
    return {**row, **columns, "first_ledger": None if name is None else 0}


def run_row(name: str, first: int, last: int, due_s: int, ledger: int = 0, **more: Any) -> Row:  # noqa: ANN401
    """A row of `redelivery`."""
    row = {"topic": "t", "subscription": name, "life": 1, "ledger_id": ledger, "first_entry": first, "last_entry": last}
    times = {"due_time": at(due_s * 1_000), "message_due": at(due_s * 1_000), "released_at": at(NOW)}
    return {**row, **times, "tick_ms": 1, "redelivery_count": 0, "cause": "due", "batch_id": 0, **more}


def delivery(row: Row, name: str) -> Row:
    """The row of `deliveries` for a row of `messages`."""
    kept = {
        column: row[column] for column in ("topic", "ledger_id", "entry_id", "due_time", "publish_time", "deliver_at")
    }
    columns = {"subscription": name, "life": 1, "released_at": at(NOW), "redelivery_count": 0, "cause": "due"}
    return {**kept, **columns, "batch_id": 0, "sequence": 1, "payload": b""}


def publication() -> Row:
    """The row of `publications` for the deliveries."""
    return {"batch_id": 0, "committed_at": at(NOW), "count": 8, "first_due": at(1_000), "last_due": at(900_000)}


def files(root: str, table: Table) -> list[Path]:
    """The data files of a table."""
    return sorted(Path(path_of(root, table)).glob("*.parquet"))


def entries(root: str, table: Table) -> list[Path]:
    """The entries of a table's log."""
    return sorted(Path(path_of(root, table), "_delta_log").glob("*.json"))


def prepare(root: str, number: int, *rows: Row, version: int = 2) -> Path:
    """Put a part on the shelf, with its file; give the file."""
    folder = Path(path_of(root, DELIVERIES))
    file = folder / f"prepared-{number}.parquet"
    pq.write_table(rows_of(DELIVERIES, list(rows)), file)
    file_entry = {"path": file.name, "size": file.stat().st_size, "modified": 0, "rows": len(rows), "stats": "{}"}
    part = {"number": number, "first_due": 0, "last_due": 2 * NOW, "files": [file_entry]}
    noted = {"owner": "d", "batch": 1, "released_at": NOW, "source": [version, -1], "parts": [part]}
    (folder / "_prepared").mkdir(exist_ok=True)
    (folder / "_prepared" / f"{number}.json").write_text(json.dumps(noted))
    return file
