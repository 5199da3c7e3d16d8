"""What the doctor finds of messages that failed, that are held, and that settle does not know: lost, or twice.

The stages are the real ones, without a JVM. Each fault is planted, found, and healed by what the finding says.
"""

from __future__ import annotations

import json
import shlex
from collections import Counter
from functools import cache
from pathlib import Path
from shutil import copytree
from tempfile import mkdtemp

import pytest

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the stages are made for sessions of Spark")
pytest.importorskip("typer", reason="the command needs requirements/all.lock")

from deltalake import CommitProperties, write_deltalake

from pipeline.client.subscribing.policysetting import set_policy
from pipeline.delta.deltars import append, open_table, rows_of
from pipeline.doctor.look import Finding
from pipeline.subscriptions.policies import Policies
from schemas import CONSUMER_EVENTS, CURSORS, DELIVERIES, HELD, REDELIVERY, SEGMENTS, Table
from tests.support.examined import found as all_found
from tests.support.invoked import invoke
from tests.support.released import release, rows, say
from tests.support.stages import Stages
from tests.support.stream import message


@pytest.fixture
def stages(tmp_path: Path) -> Stages:
    """As `begun` makes them."""
    return begun(tmp_path)


@cache
def _made() -> tuple[str, int]:
    """The folder of the warehouse that `begun` copies, and the instant to which it has come."""
    found = release(Path(mkdtemp()), *map(str, range(4)), policies=Policies(ack=True, retry_min_ms=60_000))
    for entry in (0, 1):
        say(found, "nack", entry)
    assert found.settle()
    return found.root, found.instant


def begun(folder: Path) -> Stages:
    """Four messages were delivered to a subscription that acknowledges, and two of them failed."""
    root, instant = _made()
    found = Stages(copytree(root, str(folder / "warehouse")))
    found.instant = instant
    return found


def go(stages: Stages, seconds: int = 0) -> None:
    """Time goes on, and all stages do what there is to do."""
    stages.instant += 1_000 * seconds
    assert stages.ingest()
    stages.schedule.step(stages.instant)
    while stages.has_dispatch:
        assert stages.dispatch()
    assert stages.settle()


def twice(stages: Stages, table: Table) -> None:
    """Append the rows of a table once more."""
    append(stages.root, table, rows_of(table, rows(stages, table)))


def findings(stages: Stages) -> list[Finding]:
    """What the doctor finds."""
    return all_found(stages.root)


def whats(stages: Stages) -> set[tuple[str, str]]:
    """The same by word and subject."""
    return {(each.what, each.subject) for each in findings(stages)}


def came(stages: Stages) -> Counter[tuple[bytes, int]]:
    """How often each message was delivered with each redelivery count."""
    return Counter((row["payload"], row["redelivery_count"]) for row in rows(stages, DELIVERIES))


def follow(finding: Finding) -> None:
    """Give the command of a remedy."""
    command, _, _ = finding.remedy.partition(", ")
    result = invoke(shlex.split(command)[1:])
    assert result.exit_code == 0, result.stderr


def open_of(stages: Stages) -> int:
    """How many messages are outstanding."""
    return int(stages._body("settle")._opened["t", "s"].outstanding.counts.outstanding)


def test_retries_that_come_and_are_left_out_are_sound(stages: Stages) -> None:
    """Whoever acknowledges late gets nothing again, and that is no loss; what is held is not lost either."""
    assert whats(stages) == set()
    say(stages, "ack", 0)
    assert stages.settle()
    set_policy(stages.root, "t", "s", paused=True)
    go(stages, 61)
    assert [row["redelivery_count"] for row in rows(stages, HELD)] == [1]
    assert whats(stages) == set()
    set_policy(stages.root, "t", "s", paused=False)
    go(stages)
    assert came(stages) == Counter([(b"0", 0), (b"1", 0), (b"2", 0), (b"3", 0), (b"1", 1)])
    assert whats(stages) == set()


def test_a_retry_that_was_put_into_the_index_twice_is_found(stages: Stages) -> None:
    """It comes twice with one count, and one acknowledgement settles both."""
    stages.schedule.step(stages.instant)
    retries = [row for row in rows(stages, SEGMENTS) if row["kind"] == "retry"]
    go(stages, 61)
    append(stages.root, SEGMENTS, rows_of(SEGMENTS, retries))
    go(stages, 61)
    assert came(stages)[b"0", 1] == 2
    wrong = findings(stages)
    assert {(each.what, each.subject) for each in wrong} == {("released_twice", "t/s")}
    assert "2 positions" in wrong[0].text
    before = open_of(stages)
    assert wrong[0].remedy.startswith("acknowledge each once")
    for entry in (0, 1):
        say(stages, "ack", entry, 1)
    assert stages.settle()
    assert open_of(stages) == before - 2
    go(stages, 10_000)
    assert came(stages)[b"0", 1] == 2


@pytest.mark.parametrize("first", [True, False])
def test_what_is_lost_from_held_is_found(stages: Stages, *, first: bool) -> None:
    """Of first deliveries and of retries: nothing else tells that they are to come."""
    set_policy(stages.root, "t", "s", paused=True)
    assert stages.ingest(message("new", "t"))
    go(stages, 61)
    open_table(stages.root, HELD).delete("redelivery_count = 0" if first else "redelivery_count = 1")
    wrong = findings(stages)
    assert {(each.what, each.subject) for each in wrong} == {("not_delivered", "t/s")}
    assert wrong[0].remedy == f"delayline rebuild --warehouse {stages.root} --stage dispatch"


@pytest.mark.parametrize("shown", [True, False])
def test_what_dispatch_has_and_redelivery_lacks_is_not_lost_in_the_schedule(stages: Stages, *, shown: bool) -> None:
    """Delivered or held: a rebuild of the schedule would release it once more, so only one remedy is named."""
    set_policy(stages.root, "t", "s", paused=not shown)
    assert stages.ingest(message("new", "t"))
    go(stages, 1)
    open_table(stages.root, REDELIVERY).delete("ledger_id > 0")
    (wrong,) = (each for each in findings(stages) if each.what == "not_released")
    assert wrong.subject == "t/s"
    assert wrong.remedy.startswith("restore `redelivery`")


@pytest.mark.parametrize("shown", [True, False])
def test_what_is_held_twice_is_found_and_comes_once_when_one_row_is_deleted(stages: Stages, *, shown: bool) -> None:
    """Twice in `held`, or there though it was delivered."""
    set_policy(stages.root, "t", "s", paused=True)
    assert stages.ingest(message("new", "t"))
    go(stages, 61)
    held = rows(stages, HELD)
    if shown:
        set_policy(stages.root, "t", "s", paused=False)
        go(stages)
        assert rows(stages, HELD) == []
        set_policy(stages.root, "t", "s", paused=True)
        stages.restart("dispatch")
    append(stages.root, HELD, rows_of(HELD, held))
    wrong = findings(stages)
    assert {(each.what, each.subject) for each in wrong} == {("held_twice", "t/s")}
    assert [int(each.text[0]) for each in wrong] == [1, 2]
    assert "delete one row of each from `held`" in wrong[0].remedy
    open_table(stages.root, HELD).delete()
    if not shown:
        append(stages.root, HELD, rows_of(HELD, held))
    assert whats(stages) == set()
    stages.restart("dispatch")
    set_policy(stages.root, "t", "s", paused=False)
    go(stages, 1)
    assert max(came(stages).values()) == 1
    assert came(stages).keys() >= {(b"new", 0), (b"0", 1), (b"1", 1)}
    assert whats(stages) == set()


def skip(stages: Stages) -> None:
    """A batch of settle begins behind the end of the one before it: what lies between is neither open nor news."""
    log = Path(stages.root, CURSORS.name, "_delta_log")
    (last,) = sorted(log.glob("*.json"))[-1:]
    (info,) = (json.loads(line)["commitInfo"] for line in last.read_text().splitlines() if "commitInfo" in line)
    commit = json.loads(info["userMetadata"])
    note = commit["note"]
    end = {name: open_table(stages.root, table).version() for name, table in
           (("events", CONSUMER_EVENTS), ("released", REDELIVERY))}  # fmt: skip
    begin = {name: note[name] for name in ("events", "released", "refused", "commands")} | end
    note |= begin | {"begin": begin, "batch": commit["batch"] + 1}
    commit["batch"] += 1
    properties = CommitProperties(custom_metadata={"userMetadata": json.dumps(commit)})
    empty = rows_of(CURSORS, [])
    write_deltalake(open_table(stages.root, CURSORS), empty, mode="append", commit_properties=properties)


def test_what_settle_passed_over_is_found_and_comes_again_after_a_seek(stages: Stages) -> None:
    """It was released, nobody settled it, and it is open no more: nobody would ever get it again."""
    open_before = open_of(stages)
    stages.restart("settle")
    assert stages.ingest(message("new", "t"), message("newer", "t"))
    stages.instant += 1_000
    assert stages.ingest()
    stages.schedule.step(stages.instant)
    skip(stages)
    while stages.has_dispatch:
        assert stages.dispatch()
    assert stages.settle()
    assert open_of(stages) == open_before
    (finding,) = findings(stages)
    assert (finding.what, finding.subject) == ("passed_over", "t/s")
    assert finding.text.startswith("2 positions")
    follow(finding)
    go(stages)
    go(stages, 1)
    assert came(stages)[b"new", 0] == 2
    assert open_of(stages) == 6
    assert whats(stages) == set()


def test_a_retry_that_is_in_no_table_is_found_and_comes_again_after_a_seek(stages: Stages) -> None:
    """`cursors` says that it waits, and nothing lets it come."""
    open_table(stages.root, SEGMENTS).delete("kind = 'retry'")
    (finding,) = findings(stages)
    assert (finding.what, finding.subject) == ("retry_gone", "t/s")
    assert finding.text.startswith("2 positions")
    follow(finding)
    stages.schedule.states = {}
    go(stages)
    go(stages, 1)
    assert came(stages)[b"0", 0] == 2
    assert open_of(stages) == 4
    assert whats(stages) == set()
