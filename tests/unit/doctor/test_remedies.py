"""What the doctor says to do heals what it found: each fault is planted, and its remedy is followed without Spark."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")
pytest.importorskip("typer", reason="the command needs requirements/all.lock")

from pipeline.client.producing.inbox import Message, send
from pipeline.client.subscribing.subscriptions import Subscription, subscribe, unsubscribe
from pipeline.delta.deltars import open_table, path_of
from pipeline.subscriptions.policies import Policies
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
from tests.support.acknowledged import acknowledges, settled
from tests.support.client import at, put
from tests.support.examined import NOW, checkpoint, entries, files, made, wrong
from tests.support.invoked import invoke, run
from tests.support.settled import released
from tests.unit.doctor.test_settle import ACK

Fault = Callable[[str], None]


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A healthy warehouse, and a copy of it beside."""
    shutil.copytree(made(), tmp_path / "copy")
    return str(shutil.copytree(made(), tmp_path / "warehouse"))


def back(root: str, *tables: Table) -> None:
    """Bring tables back from the copy."""
    for table in tables:
        shutil.rmtree(path_of(root, table), ignore_errors=True)
        shutil.copytree(path_of(str(Path(root).parent / "copy"), table), path_of(root, table))


def inbox_back(root: str) -> None:
    """Bring the inbox back from the copy."""
    back(root, INBOX)


def file_back(root: str) -> None:
    """Bring a file back from the copy."""
    for file in files(str(Path(root).parent / "copy"), INBOX):
        shutil.copy(file, path_of(root, INBOX))


def emptied(root: str) -> None:
    """A power cut left the newest entry empty."""
    entries(root, INBOX)[-1].write_bytes(b"")


def hole(root: str) -> None:
    """An entry in the middle is gone."""
    entries(root, INBOX)[1].unlink()


def pointed(root: str) -> None:
    """The checkpoint of a log is gone."""
    open_table(root, INBOX).create_checkpoint()
    next(Path(path_of(root, INBOX), "_delta_log").glob("*.checkpoint.parquet")).unlink()


def unreadable(root: str) -> None:
    """Nothing is left of a log."""
    for entry in entries(root, INBOX):
        entry.write_text("no json")


def unlink(root: str) -> None:
    """A file is gone."""
    files(root, INBOX)[0].unlink()


def shorten(root: str) -> None:
    """A file is cut off."""
    file = files(root, INBOX)[0]
    file.write_bytes(file.read_bytes()[:100])


def drop(root: str) -> None:
    """A table is gone."""
    shutil.rmtree(path_of(root, SEGMENTS))


def below(root: str) -> None:
    """A commit that took too long lies before the beginning of the log."""
    for _ in range(3):
        send(root, [Message("t", b"")])
    open_table(root, INBOX).create_checkpoint()
    first, _, *others = entries(root, INBOX)
    for entry in (first, *others[:-1]):
        entry.unlink()
    checkpoint(root, "ingest", 0, 6)


def written_again(root: str) -> None:
    """Write the rows of the entry again, then delete it."""
    late = entries(root, INBOX)[0]
    send(root, [Message("t", b"")])
    late.unlink()


def unset(root: str) -> None:
    """A warehouse of before a property."""
    first = entries(root, DELIVERIES)[0]
    lines = [json.loads(line) for line in first.read_text().splitlines()]
    for line in lines:
        line.get("metaData", {}).get("configuration", {}).pop("delta.deletedFileRetentionDuration", None)
    first.write_text("".join(json.dumps(line) + "\n" for line in lines))
    first.with_suffix(".crc").unlink()


def set_again(root: str) -> None:
    """Set the property."""
    wanted = DELIVERIES.properties["delta.deletedFileRetentionDuration"]
    open_table(root, DELIVERIES).alter.set_table_properties({"delta.deletedFileRetentionDuration": wanted})


def policy(root: str) -> None:
    """Somebody wrote a policy that cannot be followed."""
    row = {"topic": "t", "subscription": "x", "type": "shared", "start": "latest", "tick_ms": 1, "active": True}
    put(root, SUBSCRIPTIONS, row | {"policies": {"expire_after_ms": "soon", "ttl_ms": "soon"}})


def set_policy(root: str) -> None:
    """Give the command of the finding."""
    assert run(root, "policy", "set", "--topic", "t", "--subscription", "x", "--ttl", "1h").exit_code == 0


def twice(root: str) -> None:
    """Somebody appended a line that is there."""
    row = {"topic": "t", "subscription": "a", "type": "shared", "start": "latest", "tick_ms": 2, "active": True}
    put(root, SUBSCRIPTIONS, row | {"policies": Policies(ack=True).as_map()})


def one_line(root: str) -> None:
    """Delete one of them."""
    open_table(root, SUBSCRIPTIONS).delete("subscription = 'a' AND tick_ms = 2")


def torn(root: str) -> None:
    """Bytes of a cursor were changed."""
    acknowledges(root)
    settled(root, released((0, 0, 3)), read={"events": 0, "released": 1, "refused": 0})
    row = {"topic": "t", "subscription": "s", "life": 1, "batch_id": 1, "events": 0, "released": 1}
    put(root, CURSORS, row | {"block": 0, "bytes": b"torn"})


def anew(root: str) -> None:
    """End the subscription and make it anew; then settle, which drops what is over, has done a batch."""
    unsubscribe(root, "t", "s")
    subscribe(root, Subscription("t", "s", tick_ms=1, policies=Policies(ack=True)))
    row = {"topic": "t", "subscription": "s", "life": 1, "batch_id": 2, "events": 0, "released": 1}
    put(root, CURSORS, *({**row, "block": block, "bytes": None} for block in (0, -1)))


def coming(root: str) -> None:
    """A command names what ingest has not given yet."""
    of = {"topic": "t", "subscription": "a", "life": 1, "redelivery_count": 0, "ledger_id": 1}
    columns = {"kind": "cancel", "command_id": "c", "due_time": at(NOW), "at": at(1_000)}
    put(root, COMMANDS, {**of, **columns, "first_entry": 0, "last_entry": 9})


def taken_back(root: str) -> None:
    """Append rows of the kind `undo` that name the same."""
    of = {"topic": "t", "subscription": "a", "life": 1, "redelivery_count": 0, "ledger_id": 1}
    columns = {"kind": "undo", "command_id": "u", "undoes": "c", "due_time": at(NOW), "at": at(1_000)}
    put(root, COMMANDS, {**of, **columns, "first_entry": 0, "last_entry": 9})


def events_gone(root: str) -> None:
    """A VACUUM took what settle has yet to read."""
    acknowledges(root)
    settled(root, released((0, 0, 3)), read={"events": 0, "released": 1, "refused": 0})
    put(root, CONSUMER_EVENTS, ACK)
    (file,) = files(root, CONSUMER_EVENTS)
    shutil.copy(file, Path(root).parent)
    file.unlink()


def events_back(root: str) -> None:
    """Bring the file back."""
    for file in Path(root).parent.glob("*.parquet"):
        shutil.copy(file, path_of(root, CONSUMER_EVENTS))


def unknown(root: str) -> None:
    """`messages` is from before a release."""
    open_table(root, MESSAGES).delete("entry_id = 1")


def unreleased(root: str) -> None:
    """`redelivery` is older than `deliveries`."""
    open_table(root, REDELIVERY).delete("subscription = 'a' AND first_entry = 3")


def inbox_cut(root: str) -> None:
    """Somebody else cut the log of the inbox while ingest stood still."""
    for _ in range(3):
        send(root, [Message("t", b"")])
    shutil.copytree(Path(path_of(root, INBOX), "_delta_log"), Path(root).parent / "log")
    open_table(root, INBOX).create_checkpoint()
    for entry in entries(root, INBOX)[:-1]:
        entry.unlink()


def entries_back(root: str) -> None:
    """Bring the entries back."""
    for file in (Path(root).parent / "log").glob("*.json"):
        shutil.copy(file, Path(path_of(root, INBOX), "_delta_log"))


HEALED: list[tuple[str, Fault, Fault]] = [
    ("table_missing", drop, lambda root: back(root, SEGMENTS)),
    ("table_unreadable", unreadable, inbox_back),
    ("entry_torn", emptied, inbox_back),
    ("entry_missing", hole, inbox_back),
    ("checkpoint_missing", pointed, inbox_back),
    ("file_missing", unlink, file_back),
    ("file_changed", shorten, file_back),
    ("entry_below", below, written_again),
    ("property_unset", unset, set_again),
    ("policy_refused", policy, set_policy),
    ("two_lines", twice, one_line),
    ("cursor_torn", torn, anew),
    ("command_of_what_comes", coming, taken_back),
    ("source_gone", events_gone, events_back),
    ("not_released", unreleased, lambda root: back(root, REDELIVERY)),
    ("source_cut", inbox_cut, entries_back),
    ("not_a_message", unknown, lambda root: back(root, MESSAGES)),
]


@pytest.mark.parametrize(("word", "plant", "heal"), HEALED, ids=[word for word, _, _ in HEALED])
def test_what_the_doctor_finds_is_gone_when_somebody_does_what_it_says(
    root: str, word: str, plant: Fault, heal: Fault
) -> None:
    """Whoever is called at night has nothing else."""
    plant(root)
    assert word in {what for what, _ in wrong(root)}
    heal(root)
    assert word not in {what for what, _ in wrong(root)}


def test_a_folder_that_is_no_warehouse_is_made_one_by_what_the_error_says(tmp_path: Path) -> None:
    """Its line ends with the command."""
    folder = str(tmp_path / "new")
    refused = run(folder, "subscriptions")
    assert refused.exit_code == 1
    _, _, command = refused.stderr.partition("make it with: ")
    assert invoke(shlex.split(command)[1:]).exit_code == 0
    assert run(folder, "subscriptions").exit_code == 0
