"""What `delayline status` and `delayline topics` print, for people and for scripts."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("typer", reason="the command needs requirements/all.lock")
pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

from jobs.commands.status import as_json, look, report
from pipeline.client.client import Client
from pipeline.client.producing.inbox import OutgoingMessage, send
from pipeline.client.subscribing.policysetting import set_policy
from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from pipeline.client.subscribing.topics import create_partitioned_topic
from pipeline.client.tables.job import Job, job_of
from pipeline.storage.locks import StageLock, holder
from schemas import MESSAGES, PUBLICATIONS, REJECTED_INGEST, SUBSCRIPTIONS
from tests.support.client import at, message_row, new_warehouse, noticed, put
from tests.support.invoked import output

NOON = 3_999_960_000_000
OFFSETS = 'v1\n{"batchWatermarkMs": 0}\n{"instant": %d}\n{"reservoirVersion": 3, "index": -1}'


@pytest.fixture
def root(tmp_path: Path) -> str:
    """Two topics, one of them divided; a message waits in each, one in the inbox, and one was refused."""
    root = new_warehouse(str(tmp_path))
    create_partitioned_topic(root, "shop", 2)
    for marker, topic in enumerate(("orders", "shop-partition-0", "shop-partition-1")):
        subscribe(root, Subscription(topic, "s"))
        noticed(root, "s", 0, topic=topic, marker=marker)
        put(root, MESSAGES, message_row(marker, 0, NOON + marker, topic=topic))
    put(root, REJECTED_INGEST, {"reason": "no_topic", "rejected_at": at(0), "batch_id": 0})
    send(root, [OutgoingMessage("orders", b"")])
    return root


def checkpoint(root: str, stage: str, number: int, seen_ms: int, instant_ms: int) -> None:
    """A batch of a stage, as its checkpoint has it."""
    for folder, text in (("offsets", OFFSETS % instant_ms), ("commits", "v1")):
        file = Path(root, "_checkpoints", stage, folder, str(number))
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="ascii")
        os.utime(file, (seen_ms / 1_000, seen_ms / 1_000))


def lines(root: str, now_ms: int = NOON - 60_000) -> dict[str, str]:
    """What `status` says of each subject at a time."""
    first, *rest = report(look(root, now_ms))
    assert first == root
    return dict(re.split(" {2,}", each, maxsplit=1) for each in rest)


def test_one_screen_says_how_a_warehouse_stands(root: str) -> None:
    """Each subject in a line, what the doctor says among them."""
    set_policy(root, "orders", "s", paused=True)
    said = lines(root)
    assert said["job"] == f"has never run; start it with: delayline run --warehouse {root}"
    assert said["waits"] == ("3 pending, next due 2096-10-01T20:00:00.000Z (in 1m), 1 in the inbox")
    assert said["subscriptions"] == "3 of 3 topics, 0 consumers, 1 paused"
    assert said["rejected"] == "ingest: 1 no_topic"
    assert said["doctor"] == "nothing is wrong"
    line = {"topic": "orders", "subscription": "s", "type": "shared", "start": "latest", "tick_ms": 5, "active": True}
    put(root, SUBSCRIPTIONS, line)
    assert next(each for each in report(replace(look(root, NOON), found=None)) if each.startswith("doctor")).endswith(
        "  has not finished yet"
    )
    wrong = lines(root)["doctor"]
    assert wrong.startswith("warning: orders/s: 2 lines")
    assert wrong.endswith(f"; look at: delayline doctor --warehouse {root}")


def test_a_job_is_seen_by_its_checkpoints_and_its_locks(root: str) -> None:
    """Also while it starts, and when it runs somewhere else."""
    lock, mine = StageLock("schedule", f"{root}/_checkpoints"), os.getpid()
    assert job_of(root) == Job(None, None, None)
    with lock.held():
        assert lines(root)["job"] == f"starts, process {mine}"
        now = NOON - 5_000
        checkpoint(root, "ingest", 9, now - 5_000, now)
        checkpoint(root, "ingest", 10, now, now - 1_250)
        assert job_of(root) == Job(now, 1_250, mine)
        assert lines(root, NOON)["job"] == f"runs, process {mine}, last seen 5s ago", "it idles"
        checkpoint(root, "ingest", 10, now, now - 11_250)
        assert lines(root, NOON)["job"] == f"runs, process {mine}, last seen 5s ago, 11.2 s behind"
    assert lines(root, NOON)["job"] == "no process of this machine runs it, last seen 5s ago"
    checkpoint(root, "ingest", 9, now - 95_000, now)
    checkpoint(root, "ingest", 10, now - 90_000, now)
    assert lines(root, NOON)["job"] == "does not run, last seen 1m 35s ago"
    Path(root, "_clock").mkdir()
    Path(root, "_clock", "0").touch()
    assert job_of(root).behind_ms is None


@pytest.mark.parametrize("virtual", [False, True])
def test_how_late_deliveries_were_is_not_told_of_a_replay(root: str, *, virtual: bool) -> None:
    """Its clock moves in steps, and what is due in one comes at its end: that would be the length of the step."""
    now, late = NOON - 60_000, 1_000
    times = {"first_due": at(now - late), "committed_at": at(now)}
    put(root, PUBLICATIONS, {"batch_id": 0, "count": 3, "last_due": at(now), **times})
    if virtual:
        Path(root, "_clock").mkdir()
        Path(root, "_clock", "0").touch()
    shown = json.loads(as_json(look(root, now)))
    said = lines(root, now)["late"]
    if virtual:
        assert said.startswith("not told: by a virtual clock")
        assert (shown["late_p50_ms"], shown["late_p99_ms"]) == (None, None)
    else:
        assert said == "at most 1,000 ms (p50), 1,000 ms (p99), of 3 in the last hour"
        assert (shown["late_p50_ms"], shown["late_p99_ms"]) == (late, late)


def test_nobody_is_taken_for_the_holder_of_a_lock(tmp_path: Path) -> None:
    """A file that is left behind, of a process that lives or not."""
    assert holder("ingest", str(tmp_path)) is None
    (tmp_path / "ingest.lock").write_text(f"{os.getpid()}\n", encoding="ascii")
    assert holder("ingest", str(tmp_path)) is None
    assert holder("ingest", "s3://bucket/folder") is None


def test_topics_are_listed_with_what_they_hold(root: str) -> None:
    """A divided one once; what is in no subscription's way is there, too."""
    put(root, MESSAGES, message_row(7, 0, NOON, topic="nobody"))
    heads, *rows = output(root, "topics").splitlines()
    assert heads.split() == ["TOPIC", "PARTITIONS", "MESSAGES", "PENDING", "NEXT", "DUE", "SUBSCRIPTIONS"]
    assert [row.split() for row in rows] == [
        ["nobody", "-", "1", "0", "-", "(none)"],
        ["orders", "-", "1", "1", "2096-10-01T20:00:00.000Z", "s"],
        ["shop", "2", "2", "2", "2096-10-01T20:00:00.001Z", "s"],
    ]
    first, _, last = json.loads(output(root, "topics", "--json"))
    assert first["subscription_names"] == []
    assert (last["partitions"], last["next_due"]) == (2, "2096-10-01T20:00:00.001Z")
    with Client(root) as client:
        assert [each.pending for each in client.topics()] == [0, 1, 2]


def test_a_new_warehouse_has_no_topic_and_its_status_is_told(tmp_path: Path) -> None:
    """Nothing is there yet, for scripts, too."""
    root = new_warehouse(str(tmp_path))
    assert output(root, "topics") == "No topic.\n"
    said = json.loads(output(root, "status", "--json"))
    assert (said["seen_at"], said["pending"], said["subscriptions"], said["healthy"]) == (None, 0, [], True)
