"""Dead letters of a batch that are more than anybody would hold at once."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="settle is made for sessions of Spark")
pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("typer", reason="the command needs requirements/all.lock")

from deltalake import CommitProperties, Transaction, write_deltalake

from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from pipeline.delta.deltars import append, open_table, path_of, rows_of
from pipeline.delta.logs.logstore import TableLog
from pipeline.settle import letters, lookup
from pipeline.subscriptions.letters import APPLICATION, BEFORE
from pipeline.subscriptions.policies import Policies
from schemas import COMMANDS, CONSUMER_EVENTS, INBOX, MESSAGES
from tests.support.examined import found, wrong
from tests.support.forged import INFO, version
from tests.support.invoked import output
from tests.support.stages import Stages
from tests.support.stream import Killed, at, message

T0 = 2_000_000_000_000
"""Behind any wall clock, by which a release is due."""
COUNT, PAYLOAD_BYTES, PIECE_BYTES = 40, 1_000, 9_000


class Appends:
    """What settle appends to the inbox; it may die before one of the appends."""

    def __init__(self) -> None:
        """It lives."""
        self.bytes, self.dies_before = list[int](), -1

    def __call__(self, root: str, table: Any, rows: pa.Table, **how: Any) -> int:  # noqa: ANN401 - as it is called
        """Append rows."""
        if len(self.bytes) == self.dies_before:
            raise Killed
        self.bytes.append(sum(len(each) for each in rows.column("payload").to_pylist()))
        return append(root, table, rows, **how)


@pytest.fixture
def appends(monkeypatch: pytest.MonkeyPatch) -> Appends:
    """A small bound, and a look at each append."""
    found = Appends()
    for module in (letters, lookup):
        monkeypatch.setattr(module, "PIECE_BYTES", PIECE_BYTES)
    monkeypatch.setattr(lookup, "_MOST_PLACES", COUNT // 3)
    monkeypatch.setattr(letters, "append", found)
    return found


@pytest.fixture
def stages(tmp_path: Path) -> Stages:
    """Messages of two topics were delivered to subscriptions that give up at the first failure, and have failed."""
    found = Stages(str(tmp_path / "warehouse"))
    policies = Policies.of_map({"ack": "true", "max_redeliveries": "0"})
    for topic in ("t", "u"):
        subscribe(found.root, Subscription(topic, "s", tick_ms=1, policies=policies))
    found.instant = T0
    assert found.ingest()
    names = [f"{number:0{PAYLOAD_BYTES}}" for number in range(COUNT)]
    assert found.ingest(*(message(name, topic) for topic in ("t", "u") for name in names))
    found.schedule.step(T0)
    assert found.settle()
    rows = open_table(found.root, MESSAGES).to_pyarrow_table().to_pylist()
    append(found.root, CONSUMER_EVENTS, rows_of(CONSUMER_EVENTS, [failed(row) for row in rows]))
    return found


def failed(row: dict[str, Any]) -> dict[str, Any]:
    """What a consumer says of a message."""
    of = {"topic": row["topic"], "subscription": "s", "life": 1, "ledger_id": row["ledger_id"], "redelivery_count": 0}
    return of | {"kind": "nack", "first_entry": row["entry_id"], "last_entry": row["entry_id"], "at": at(0)}


def sent(stages: Stages, topic: str) -> list[int]:
    """The dead letters of a topic, in the order in which ingest takes them."""
    rows = open_table(stages.root, MESSAGES).to_pyarrow_table()
    rows = rows.sort_by([("ledger_id", "ascending"), ("entry_id", "ascending")])
    return [int(row["payload"]) for row in rows.to_pylist() if row["topic"] == f"{topic}-s-DLQ"]


def test_what_is_held_of_dead_letters_is_bounded(stages: Stages, appends: Appends) -> None:
    """A million of them in one batch ended the process. They come in their order, once."""
    assert stages.settle()
    assert len(appends.bytes) > 4
    assert max(appends.bytes) < PIECE_BYTES + PAYLOAD_BYTES
    assert stages.ingest()
    for topic in ("t", "u"):
        assert sent(stages, topic) == list(range(COUNT))


def moved(row: dict[str, Any]) -> dict[str, Any]:
    """A command that gives another due time to a position behind a message, which nobody has yet."""
    names = {
        "topic": row["topic"],
        "subscription": "s",
        "life": 1,
        "command_id": "c",
        "kind": "reschedule",
        "at": at(0),
    }
    place = {"ledger_id": row["ledger_id"] + 5, "first_entry": 0, "last_entry": 0, "redelivery_count": 0, "round": 1}
    return (
        names
        | place
        | {"at": at(0), "due_time": row["due_time"], "due_before": row["due_time"], "deliver_at": at(T0 + 10**7)}
    )


@pytest.mark.parametrize("commanded", [False, True], ids=["", "commanded"])
@pytest.mark.parametrize("dies_before", [0, 1, 5])
def test_a_batch_that_was_torn_between_two_pieces_sends_each_letter_once(
    stages: Stages, appends: Appends, dies_before: int, *, commanded: bool
) -> None:
    """Each piece is noted beside its rows. Pieces stay the same when a command for one of the subscriptions comes."""
    appends.dies_before = dies_before
    assert not stages.settle()
    appends.dies_before = -1
    if commanded:
        rows = open_table(stages.root, MESSAGES).to_pyarrow_table().to_pylist()
        append(stages.root, COMMANDS, rows_of(COMMANDS, [moved(rows[-1])]))
    assert stages.settle()
    assert stages.ingest()
    for topic in ("t", "u"):
        assert sent(stages, topic) == list(range(COUNT))


@pytest.mark.parametrize("name", ["delayline-settle", APPLICATION])
@pytest.mark.parametrize("number", [2, (1 << 63) - 1])
def test_a_number_that_a_stranger_notes_under_our_name_makes_no_letter_vanish(
    stages: Stages, name: str, number: int
) -> None:
    """A batch counts as appended only by the number that was drawn for it, which nobody else knows."""
    version(stages.root, INBOX, INFO, {"txn": {"appId": name, "version": number}})
    assert stages.settle()
    assert stages.ingest()
    for topic in ("t", "u"):
        assert sent(stages, topic) == list(range(COUNT))


def test_a_batch_that_an_earlier_version_of_this_project_began_sends_each_letter_once(stages: Stages) -> None:
    """Its plan has no number that was drawn; the number of the batch stands beside what it appended."""
    stages.die_after("settle.noted")
    assert not stages.settle()
    file = Path(stages.warehouse.checkpoint("settle")) / "plan.json"
    noted = json.loads(file.read_text())
    del noted["plan"]["letters"]
    file.write_text(json.dumps(noted))
    txn = {"appId": BEFORE, "version": noted["plan"]["batch"]}
    version(stages.root, INBOX, INFO, {"txn": txn})
    assert stages.settle()
    assert stages.ingest()
    assert sent(stages, "t") == sent(stages, "u") == []


def test_letters_of_a_batch_that_are_gone_are_found_and_appended_once_more_with_its_number(stages: Stages) -> None:
    """Whatever makes them vanish, settle holds their messages for settled, and nobody else would say so."""
    assert stages.settle()
    assert "dead_letters_gone" not in {what for what, _ in wrong(stages.root)}
    log = Path(path_of(stages.root, INBOX)) / "_delta_log"
    for entry in sorted(log.glob("*.json"))[-2:]:
        kept = [line for line in entry.read_text().splitlines() if "add" not in json.loads(line)]
        entry.write_text("".join(f"{line}\n" for line in kept))
    (finding,) = (each for each in found(stages.root) if each.what == "dead_letters_gone")
    assert stages.ingest()
    there = {(topic, number) for topic in ("t", "u") for number in sent(stages, topic)}
    known = (row for row in open_table(stages.root, MESSAGES).to_pyarrow_table().to_pylist() if row["topic"] in "tu")
    gone = [row for row in known if (row["topic"], int(row["payload"])) not in there]
    assert gone
    traced = output(
        stages.root, "trace", "-t", gone[0]["topic"], "--position", f"{gone[0]['ledger_id']}:{gone[0]['entry_id']}"
    )
    assert "s: is settled" in traced
    named = re.search("number ([0-9]+) noted under '([a-z-]+)'", finding.remedy)
    assert named is not None
    inbox = open_table(stages.root, INBOX)
    noted = CommitProperties(app_transactions=[Transaction(named[2], int(named[1]))])
    rows = rows_of(INBOX, [message(row["payload"].decode(), f"{row['topic']}-s-DLQ") for row in gone])
    write_deltalake(inbox, rows, mode="append", commit_properties=noted)
    assert stages.ingest()
    for topic in ("t", "u"):
        assert sorted(sent(stages, topic)) == list(range(COUNT))
    assert "dead_letters_gone" not in {what for what, _ in wrong(stages.root)}


def test_the_doctor_counts_no_letters_of_a_batch_that_was_torn(stages: Stages, appends: Appends) -> None:
    """Where the first ones of its letters are nobody knows any more."""
    appends.dies_before = 1
    assert not stages.settle()
    appends.dies_before = -1
    assert stages.settle()
    assert "dead_letters_gone" not in {what for what, _ in wrong(stages.root)}


def test_the_doctor_counts_no_letters_of_a_batch_whose_checkpoint_is_lost(stages: Stages) -> None:
    """Its other commits say that it was begun, so its letters may lie before what `inbox` has by now."""
    row = open_table(stages.root, MESSAGES).to_pyarrow_table().to_pylist()[0]
    nobodys = failed(row | {"ledger_id": row["ledger_id"] + 50})
    append(stages.root, CONSUMER_EVENTS, rows_of(CONSUMER_EVENTS, [nobodys]))
    stages.die_after("settle.rejected_settle")
    assert not stages.settle()
    (Path(stages.warehouse.checkpoint("settle")) / "plan.json").unlink()
    assert stages.settle()
    assert "dead_letters_gone" not in {what for what, _ in wrong(stages.root)}
    assert stages.ingest()
    assert sent(stages, "t") == list(range(COUNT))


class Writes:
    """Appends as Spark does, which leaves rows out whose number is not above the last one that anybody noted."""

    def __init__(self, root: str, overtakes: int) -> None:
        """A stranger notes a higher number before so many of the first writes."""
        self._root, self.overtakes, self._options = root, overtakes, dict[str, str]()

    def createDataFrame(self, rows: pa.Table, _schema: object) -> Writes:  # noqa: N802 - Spark's name
        """The rows that are written."""
        self._rows = rows
        return self

    def coalesce(self, _count: int) -> Writes:
        """Into one file."""
        return self

    write = property(lambda self: self)

    def format(self, _name: str) -> Writes:
        """As a Delta table."""
        return self

    def mode(self, _name: str) -> Writes:
        """By an append."""
        return self

    def options(self, **options: str) -> Writes:
        """With a name and a number."""
        self._options = options
        return self

    def save(self, _path: str) -> None:
        """Append."""
        name, number = self._options["txnAppId"], int(self._options["txnVersion"])
        if self.overtakes:
            self.overtakes -= 1
            version(self._root, INBOX, INFO, {"txn": {"appId": name, "version": number + 1}})
        append(self._root, INBOX, self._rows, once=(name, number))


@pytest.mark.parametrize("overtakes", [0, 1, 2])
def test_a_stranger_who_notes_a_number_while_spark_writes_makes_no_letter_vanish(
    stages: Stages, monkeypatch: pytest.MonkeyPatch, overtakes: int
) -> None:
    """Where delta-rs does not reach, Spark leaves such rows out and says nothing."""
    made = letters.DeadLetters.__init__

    def by_spark(self: letters.DeadLetters, *where: Any) -> None:  # noqa: ANN401 - as it is called
        made(self, *where)
        self._root = None
        self._warehouse = SimpleNamespace(session=None, spark=Writes(stages.root, overtakes))  # type: ignore[assignment]

    monkeypatch.setattr(letters.DeadLetters, "__init__", by_spark)
    last = staticmethod(lambda name: open_table(stages.root, INBOX).transaction_version(name))
    monkeypatch.setattr(TableLog, "transaction", lambda _, name: last(name))
    stages.restart("settle")
    assert stages.settle()
    assert stages.ingest()
    for topic in ("t", "u"):
        assert sent(stages, topic) == list(range(COUNT))
