"""What the doctor says to do heals what it finds: each fault is planted, its remedy is followed, and the stages go on.

The stages are the real ones, without a JVM. What they deliver in the end is what they deliver undisturbed.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet as pq
import pytest

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")
pytest.importorskip("typer", reason="the command needs requirements/all.lock")

from deltalake import DeltaTable

from pipeline.client.create import create_all
from pipeline.client.producing.inbox import OutgoingMessage, send
from pipeline.config.errors import CursorUnreadable
from pipeline.delta.deltars import append, open_table, path_of, rows_of
from pipeline.delta.logs.entries import actions_of
from schemas import (
    COMMANDS,
    CONSUMER_EVENTS,
    CURSORS,
    DELIVERIES,
    INBOX,
    MESSAGES,
    REDELIVERY,
    SEGMENTS,
    SUBSCRIPTIONS,
    Table,
)
from tests.support.client import at, put
from tests.support.examined import entries, found
from tests.support.invoked import invoke, invoke_line, output, run
from tests.support.operations import commands, shell
from tests.support.released import rows, say
from tests.support.stages import Stages
from tests.support.stream import message
from tests.unit.doctor.test_again import begun, came, findings, go, open_of, whats

Plant = Callable[[Stages], object]
Heal = Callable[[Stages, str], object]


def copy_of(stages: Stages) -> Path:
    """Where the copy of the warehouse lies."""
    return Path(stages.root).with_name("copy")


@pytest.fixture
def stages(tmp_path: Path) -> Stages:
    """Four messages were delivered, two of them failed, and one is yet to come; and a copy of it."""
    made = begun(tmp_path)
    assert made.ingest(message("waits", "t", after=30_000))
    go(made)
    shutil.copytree(made.root, copy_of(made))
    return made


def lose(stages: Stages) -> None:
    """A producer sends what comes at once, after the copy was made."""
    assert stages.ingest(message("late", "t"))
    go(stages)


def restore(stages: Stages, _remedy: str = "") -> None:
    """Restore the copy by the commands of the page; the producer sends again what was sent since."""
    page = list(commands({"W": stages.root, "B": str(copy_of(stages))}))
    first = next(n for n, each in enumerate(page) if each.words[0] == "mv" and each.words[-1].endswith(".broken"))
    assert [shell(each) for each in page[first : first + 2]] == [0, 0]
    send(stages.root, [OutgoingMessage("t", b"late")])


def emptied(stages: Stages) -> None:
    """A power cut left the newest entry empty."""
    lose(stages)
    entries(stages.root, INBOX)[-1].write_bytes(b"")


def hole(stages: Stages) -> None:
    """An entry in the middle is gone."""
    lose(stages)
    entries(stages.root, INBOX)[1].unlink()


def unreadable(stages: Stages) -> None:
    """Nothing is left of a log."""
    lose(stages)
    for entry in entries(stages.root, INBOX):
        entry.write_text("no json")


def pointed(stages: Stages) -> None:
    """The checkpoint of a log is gone."""
    open_table(stages.root, INBOX).create_checkpoint()
    next(Path(path_of(stages.root, INBOX), "_delta_log").glob("*.checkpoint.parquet")).unlink()


def pointed_and_late(stages: Stages) -> None:
    """The same, after something was sent."""
    lose(stages)
    pointed(stages)


def unpoint(stages: Stages, remedy: str) -> None:
    """Delete the file that the finding names."""
    named = re.match(r"delete (\S+), or", remedy)
    assert named is not None
    Path(stages.root, named[1]).unlink()


def back(stages: Stages, *tables: Table) -> None:
    """Bring tables back from the copy."""
    for table in tables:
        shutil.rmtree(path_of(stages.root, table), ignore_errors=True)
        shutil.copytree(path_of(str(copy_of(stages)), table), path_of(stages.root, table))


def copied_again(stages: Stages, _remedy: str) -> None:
    """Copy all once more."""
    shutil.rmtree(stages.root)
    shutil.copytree(copy_of(stages), stages.root)


def data(root: str | Path, table: Table) -> set[Path]:
    """The data files of a table, by their paths in the warehouse."""
    return {each.relative_to(root) for each in Path(path_of(str(root), table)).rglob("part-*.parquet")}


def files_back(stages: Stages, _remedy: str = "") -> None:
    """Bring the files of messages back from the copy."""
    for file in data(copy_of(stages), MESSAGES):
        shutil.copy(copy_of(stages) / file, Path(stages.root) / file)


def shorten(stages: Stages) -> None:
    """Files are cut off."""
    for file in data(stages.root, MESSAGES):
        os.truncate(Path(stages.root) / file, 100)


def unlink(stages: Stages) -> None:
    """Files are gone."""
    for file in data(stages.root, MESSAGES):
        (Path(stages.root) / file).unlink()


def below(stages: Stages) -> None:
    """A commit that took too long lies before the beginning of the log."""
    for _ in range(2):
        append(stages.root, INBOX, rows_of(INBOX, []))
    go(stages)
    open_table(stages.root, INBOX).create_checkpoint()
    for entry in entries(stages.root, INBOX)[:-1]:
        entry.unlink()
    send(stages.root, [OutgoingMessage("t", b"late")])
    late = entries(stages.root, INBOX)[-1]
    late.rename(late.with_name(f"{1:020d}.json"))


def written_again(stages: Stages, _remedy: str) -> None:
    """Write the rows of the entry again, then delete it."""
    late = entries(stages.root, INBOX)[0]
    for added in (each["add"] for each in actions_of(late.read_text(), INBOX.name, 1) if "add" in each):
        append(stages.root, INBOX, pq.read_table(Path(path_of(stages.root, INBOX), added["path"])))
    late.unlink()


def unset(stages: Stages) -> None:
    """A warehouse of before a property."""
    first = entries(stages.root, DELIVERIES)[0]
    lines = [json.loads(line) for line in first.read_text().splitlines()]
    for line in lines:
        line.get("metaData", {}).get("configuration", {}).pop("delta.deletedFileRetentionDuration", None)
    first.write_text("".join(json.dumps(line) + "\n" for line in lines))
    for checksum in first.parent.glob("*.crc"):
        checksum.unlink()


def altered(_stages: Stages, remedy: str) -> None:
    """Give the statement of the finding; `tests/spark/doctor/test_features.py` gives it to Spark."""
    statement = re.fullmatch(r"ALTER TABLE delta\.`(.+)` SET TBLPROPERTIES \('(.+)' = '(.+)'\)", remedy)
    assert statement is not None
    DeltaTable(statement[1]).alter.set_table_properties({statement[2]: statement[3]})


def refused_policy(stages: Stages) -> None:
    """Somebody wrote a policy that cannot be followed."""
    row = {"topic": "t", "subscription": "x", "type": "shared", "start": "latest", "tick_ms": 1, "active": True}
    put(stages.root, SUBSCRIPTIONS, row | {"policies": {"ttl_ms": "soon"}})
    go(stages)


def policy_set(_stages: Stages, remedy: str) -> None:
    """Set it again by the command that the finding prints."""
    invoke_line(f"{remedy.removesuffix(' with what is allowed')} --ttl 1h")


def policy_written(stages: Stages, _remedy: str) -> None:
    """Set it again in the table."""
    open_table(stages.root, SUBSCRIPTIONS).update({"policies": "NULL"}, predicate="subscription = 'x'")


def twice(stages: Stages) -> None:
    """Somebody appended a line that is there."""
    (row,) = (row for row in rows(stages, SUBSCRIPTIONS) if row["active"])
    put(stages.root, SUBSCRIPTIONS, row | {"tick_ms": 2})


def one_line(stages: Stages, _remedy: str) -> None:
    """Delete one of them."""
    open_table(stages.root, SUBSCRIPTIONS).delete("tick_ms = 2")


def torn(stages: Stages) -> None:
    """Bytes of a cursor were changed."""
    open_table(stages.root, CURSORS).update({"bytes": "X'00'"}, predicate="bytes IS NOT NULL")
    stages.restart_all()
    with pytest.raises(CursorUnreadable):
        stages.settle()


def life_anew(stages: Stages, _remedy: str) -> None:
    """Unsubscribe and subscribe again, by the commands."""
    output(stages.root, "unsubscribe", "--topic", "t", "--subscription", "s")
    output(stages.root, "subscribe", "--topic", "t", "--subscription", "s", "--tick", "1ms", "--ack")
    # All stages start at once, and settle may look before ingest has noticed.
    stages.restart_all()
    assert stages.settle()
    assert ("cursor_torn", "t/s") in whats(stages)


def commanded(stages: Stages, kind: str, **more: str) -> None:
    """A row of `commands` about the ledger that comes next."""
    ledger = 1 + max(row["ledger_id"] for row in rows(stages, MESSAGES))
    place = {"topic": "t", "subscription": "s", "life": 1, "redelivery_count": 0, "ledger_id": ledger}
    times = {"due_time": at(stages.instant), "at": at(stages.instant)}
    put(stages.root, COMMANDS, {**place, **times, "kind": kind, "first_entry": 0, "last_entry": 9, **more})


def taken_back(stages: Stages, _remedy: str) -> None:
    """Append rows of the kind `undo` that name the same."""
    commanded(stages, "undo", command_id="u", undoes="c")


def vacuumed(table: Table, act: Plant) -> Plant:
    """A VACUUM took what a stage has yet to read of a table."""

    def plant(stages: Stages) -> None:
        known = data(stages.root, table)
        act(stages)
        (file,) = data(stages.root, table) - known
        (copy_of(stages) / file).parent.mkdir(exist_ok=True)
        (Path(stages.root) / file).rename(copy_of(stages) / file)

    return plant


def brought(table: Table) -> Heal:
    """Bring the file back from the copy."""

    def heal(stages: Stages, _remedy: str) -> None:
        for file in data(copy_of(stages), table) - data(stages.root, table):
            shutil.copy(copy_of(stages) / file, Path(stages.root) / file)

    return heal


def release(stages: Stages) -> None:
    """A message is released, and dispatch stands still."""
    assert stages.ingest(message("late", "t"))
    assert stages.ingest()
    stages.schedule.step(stages.instant)


def inbox_cut(stages: Stages) -> None:
    """Somebody else cut the log of the inbox while ingest stood still."""
    send(stages.root, [OutgoingMessage("t", b"late")])
    send(stages.root, [OutgoingMessage("t", b"later")])
    shutil.copytree(Path(path_of(stages.root, INBOX), "_delta_log"), copy_of(stages) / "log")
    open_table(stages.root, INBOX).create_checkpoint()
    for entry in entries(stages.root, INBOX)[:-1]:
        entry.unlink()


def entries_back(stages: Stages, _remedy: str) -> None:
    """Bring the entries back."""
    for file in (copy_of(stages) / "log").glob("*.json"):
        shutil.copy(file, Path(path_of(stages.root, INBOX), "_delta_log"))


class Case(NamedTuple):
    """A word of the doctor; how its fault is planted and healed; what comes beside what comes undisturbed.

    `lost` is what does not come, `open_at_end` how many messages are outstanding in the end.
    """

    word: str
    plant: Plant
    heal: Heal
    more: tuple[bytes, ...] = ()
    lost: tuple[tuple[bytes, int], ...] = ()
    open_at_end: int = 6


LATE = (b"late",)
OLD_LIFE = ((b"waits", 0), (b"0", 1), (b"1", 1))
CASES = {
    "table_missing": Case("table_missing", lambda each: shutil.rmtree(path_of(each.root, SEGMENTS)), copied_again),
    "table_unreadable": Case("table_unreadable", unreadable, restore, LATE, open_at_end=7),
    "entry_torn": Case("entry_torn", emptied, restore, LATE, open_at_end=7),
    "entry_missing": Case("entry_missing", hole, restore, LATE, open_at_end=7),
    "checkpoint_missing": Case("checkpoint_missing", pointed_and_late, restore, LATE, open_at_end=7),
    "checkpoint_missing, deleted": Case("checkpoint_missing", pointed, unpoint),
    "file_missing": Case("file_missing", unlink, files_back),
    "file_changed": Case("file_changed", shorten, files_back),
    "entry_below": Case("entry_below", below, written_again, LATE, open_at_end=7),
    "property_unset": Case("property_unset", unset, altered),
    "policy_refused": Case("policy_refused", refused_policy, policy_set, (b"new",)),
    "policy_refused, in the table": Case("policy_refused", refused_policy, policy_written, (b"new",)),
    "two_lines": Case("two_lines", twice, one_line),
    "cursor_torn": Case("cursor_torn", torn, restore, LATE, open_at_end=7),
    "cursor_torn, anew": Case("cursor_torn", torn, life_anew, lost=OLD_LIFE, open_at_end=1),
    "command_of_what_comes": Case(
        "command_of_what_comes", lambda each: commanded(each, "cancel", command_id="c"), taken_back
    ),
    "source_gone, settle": Case(
        "source_gone", vacuumed(CONSUMER_EVENTS, lambda each: say(each, "ack", 2)), brought(CONSUMER_EVENTS),
        open_at_end=5,
    ),
    "source_gone, dispatch": Case("source_gone", vacuumed(REDELIVERY, release), brought(REDELIVERY), LATE, (), 7),
    "source_gone, ingest": Case(
        "source_gone", vacuumed(INBOX, lambda each: send(each.root, [OutgoingMessage("t", b"late")])), brought(INBOX),
        LATE, open_at_end=7,
    ),
    "not_released": Case(
        "not_released", lambda each: open_table(each.root, REDELIVERY).delete("first_entry = 0"),
        lambda each, _: back(each, REDELIVERY),
    ),
    "source_cut, restored": Case("source_cut", inbox_cut, restore, LATE, open_at_end=7),
    "source_cut": Case("source_cut", inbox_cut, entries_back, (b"late", b"later"), open_at_end=8),
    "not_a_message": Case(
        "not_a_message", lambda each: open_table(each.root, MESSAGES).delete("entry_id = 1"),
        lambda each, _: back(each, MESSAGES),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_the_doctor_finds_is_gone_when_somebody_does_what_it_says_and_the_stages_go_on(
    stages: Stages, name: str
) -> None:
    """Whoever is called at night has nothing else. All comes that comes undisturbed, once, and can be acknowledged."""
    case = CASES[name]
    case.plant(stages)
    remedy, *_ = (each.remedy for each in findings(stages) if each.what == case.word)
    case.heal(stages, remedy)
    stages.restart_all()
    go(stages)
    assert stages.ingest(message("new", "t"))
    go(stages)
    go(stages, 61)
    names = (b"0", b"1", b"2", b"3", b"waits", b"new", *case.more)
    assert came(stages) == Counter([*((each, 0) for each in names), (b"0", 1), (b"1", 1)]) - Counter(case.lost)
    assert open_of(stages) == case.open_at_end
    assert whats(stages) == set()


def test_a_new_warehouse_that_lacks_a_table_gets_it_by_the_command_of_the_doctor(tmp_path: Path) -> None:
    """`delayline init` died in between, for instance."""
    root = str(tmp_path / "new")
    create_all(root)
    shutil.rmtree(path_of(root, SEGMENTS))
    (finding,) = found(root)
    assert (finding.what, finding.subject) == ("table_missing", SEGMENTS.name)
    command, _, _ = finding.remedy.partition(", when")
    assert invoke(shlex.split(command)[1:]).exit_code == 0
    assert found(root) == []


def test_a_folder_that_is_no_warehouse_is_made_one_by_what_the_error_says(tmp_path: Path) -> None:
    """Its line ends with the command."""
    folder = str(tmp_path / "new")
    refused = run(folder, "subscriptions")
    assert refused.exit_code == 1
    _, _, command = refused.stderr.partition("make it with: ")
    assert invoke(shlex.split(command)[1:]).exit_code == 0
    assert run(folder, "subscriptions").exit_code == 0
