"""Somebody hurts a warehouse at work and does what the page says: all messages come, once, and the doctor is silent.

The stages are the real ones, without a JVM.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from shutil import copytree, rmtree

import pyarrow as pa
import pytest

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the stages are made for sessions of Spark")
pytest.importorskip("typer", reason="the command needs requirements/all.lock")

from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import DeltaError

from pipeline.client.producing.inbox import OutgoingMessage, send
from pipeline.client.subscribing.policysetting import set_policy
from pipeline.client.subscribing.subscriptions import Subscription, subscribe, unsubscribe
from pipeline.config.errors import BrokenVersion, ColumnGone, InboxColumn, VersionGone
from pipeline.config.options import Options
from pipeline.config.settings import VirtualClock
from pipeline.config.zones import RULES, OtherRules
from pipeline.delta.deltars import open_table, path_of
from pipeline.delta.logs.entries import actions_of
from pipeline.ingest.core.terms import Terms
from pipeline.service.takeover import take_over_ingest
from pipeline.subscriptions.policies import Policies
from schemas import (
    CONSUMER_EVENTS,
    CURSORS,
    DELIVERIES,
    IDENTITY,
    INBOX,
    MESSAGES,
    REDELIVERY,
    SEGMENTS,
    SUBSCRIPTIONS,
    TABLES,
    Table,
)
from tests.support.released import rows, say
from tests.support.stages import Stages
from tests.support.stream import message
from tests.unit.doctor.test_again import begun, came, findings, go, open_of, whats
from tests.unit.doctor.test_settle import later

CHANGED = (SUBSCRIPTIONS, MESSAGES, SEGMENTS, REDELIVERY, DELIVERIES, CURSORS)


@pytest.fixture
def stages(tmp_path: Path) -> Stages:
    """Four messages were delivered to a subscription that acknowledges, and two of them failed."""
    return begun(tmp_path)


def start(stages: Stages) -> None:
    """Start all stages again."""
    for stage in ("ingest", "dispatch", "settle"):
        stages.restart(stage)


def note(root: str, name: str, number: int, rows: pa.Table | None = None) -> None:
    """Note a number under a name in `inbox`, as the page says; beside rows, or without any."""
    inbox = DeltaTable(path_of(root, INBOX))
    noted = CommitProperties(app_transactions=[Transaction(name, number)])
    write_deltalake(
        inbox,
        inbox.schema().to_arrow().empty_table() if rows is None else rows,
        mode="append",
        commit_properties=noted,
    )


def spoil(root: str, table: Table) -> None:
    """Overwrite a table with its rows, less a column, and with another type of another one."""
    rows = pa.table(open_table(root, table).to_pyarrow_table())
    # Those that name a message are missing in warehouses of earlier versions, too.
    changed, gone = rows.column_names[2], [each for each in rows.column_names if each not in IDENTITY][-2]
    texts = pa.array([str(each) for each in rows.column(changed).to_pylist()]).cast(pa.binary())
    rows = rows.set_column(2, changed, texts).drop_columns([gone])
    write_deltalake(path_of(root, table), rows, mode="overwrite", schema_mode="overwrite")


def test_a_table_of_which_somebody_changed_columns_is_restored_to_the_version_before(stages: Stages) -> None:
    """Stages pass over both versions: rows that come back are no news."""
    for table in CHANGED:
        spoil(stages.root, table)
    changed = [each for each in findings(stages) if each.what in ("column_missing", "column_changed")]
    assert Counter(each.what for each in changed) == {"column_missing": len(CHANGED), "column_changed": len(CHANGED)}
    for table in CHANGED:
        (remedy,) = {each.remedy for each in changed if each.subject == table.name}
        assert path_of(stages.root, table) in remedy
        back(remedy)
    assert whats(stages) == set()
    start(stages)
    assert stages.ingest(message("new", "t"))
    go(stages)
    go(stages, 61)
    assert came(stages) == Counter([*((each, 0) for each in (b"0", b"1", b"2", b"3", b"new")), (b"0", 1), (b"1", 1)])
    assert whats(stages) == set()


def test_a_table_of_which_somebody_changed_columns_and_vacuumed_comes_back_from_a_copy(
    stages: Stages, tmp_path: Path
) -> None:
    """The files of the version before are gone, and the finding names both ways."""
    copytree(stages.root, tmp_path / "copy")
    go(stages, 61)
    spoil(stages.root, DELIVERIES)
    open_table(stages.root, DELIVERIES).vacuum(0, dry_run=False, enforce_retention_duration=False)
    remedy, *_ = (each.remedy for each in findings(stages) if each.what == "column_missing")
    with pytest.raises(DeltaError):
        back(remedy)
    assert remedy.endswith("restore the warehouse from a copy (docs/operations.md, Restore)")
    rmtree(stages.root)
    copytree(tmp_path / "copy", stages.root)
    stages.restart_all()
    go(stages, 61)
    assert came(stages) == Counter([*((each, 0) for each in (b"0", b"1", b"2", b"3")), (b"0", 1), (b"1", 1)])
    assert whats(stages) == set()


def test_an_inbox_of_which_somebody_changed_columns_is_restored_and_what_came_since_is_sent_again(
    stages: Stages,
) -> None:
    """`send` and ingest refuse it until then. What others have appended in the new columns is gone with them."""
    spoil(stages.root, INBOX)
    with pytest.raises(ColumnGone):
        send(stages.root, [OutgoingMessage("t", b"since")])
    stages.restart_all()
    with pytest.raises(InboxColumn):
        stages.ingest()
    (remedy,) = {each.remedy for each in findings(stages) if each.what in ("column_missing", "column_changed")}
    back(remedy)
    stages.restart_all()
    send(stages.root, [OutgoingMessage("t", b"since")])
    go(stages)
    go(stages, 61)
    assert came(stages)[b"since", 0] == 1
    assert sum(came(stages).values()) == 7
    assert {each.what for each in findings(stages)} <= {"not_an_append"}


def back(remedy: str) -> None:
    """Give the `RESTORE TABLE` of a remedy."""
    command = re.search(r"RESTORE TABLE delta\.`(.*)` TO VERSION AS OF (\d+)", remedy)
    assert command is not None
    DeltaTable(command[1]).restore(int(command[2]))


def test_the_rows_of_a_version_that_is_no_append_are_appended_and_the_doctor_is_told(stages: Stages) -> None:
    """It would name the version for as long as the log has it."""
    rows = open_table(stages.root, INBOX).to_pyarrow_table()
    new = rows.slice(0, 1).set_column(rows.column_names.index("payload"), "payload", pa.array([b"new"]))
    write_deltalake(open_table(stages.root, INBOX), pa.concat_tables([rows, new]), mode="overwrite")
    version = open_table(stages.root, INBOX).version()
    go(stages)
    (finding,) = findings(stages)
    assert (finding.what, finding.subject) == ("not_an_append", "inbox")
    send(stages.root, [OutgoingMessage("t", b"new")])
    name = re.search("under '([a-z-]+)'", finding.remedy)
    assert name is not None
    note(stages.root, name[1], version)
    go(stages, 1)
    assert came(stages)[b"new", 0] == 1
    assert whats(stages) == set()


def test_rows_that_ingest_passed_over_are_sent_again_and_the_doctor_is_told(stages: Stages) -> None:
    """They are in the files that the version has added."""
    send(stages.root, [OutgoingMessage("t", b"lost"), OutgoingMessage("t", b"gone")])
    version = open_table(stages.root, INBOX).version()
    book = stages._book("ingest")
    book.plan(replace(book.end, version=version + 1))
    book.commit()
    assert stages.ingest(message("new", "t"))
    go(stages)
    (finding,) = findings(stages)
    assert (finding.what, finding.text) == ("not_taken", f"2 rows of versions {version} were passed over by ingest")
    name = re.search("under '([a-z-]+)'", finding.remedy)
    assert name is not None
    entry = Path(path_of(stages.root, INBOX), "_delta_log", f"{version:020d}.json")
    paths = [each["add"]["path"] for each in actions_of(entry.read_text(), "inbox", version) if "add" in each]
    rows = pa.concat_tables([pa.parquet.read_table(Path(path_of(stages.root, INBOX), path)) for path in paths])
    note(stages.root, name[1], version, rows)
    go(stages, 1)
    assert [came(stages)[payload, 0] for payload in (b"lost", b"gone", b"new")] == [1, 1, 1]
    assert whats(stages) == set()


def test_a_newest_version_of_the_inbox_that_a_power_cut_left_empty_is_deleted_and_sent_again(stages: Stages) -> None:
    """As the page says where there is no copy."""
    send(stages.root, [OutgoingMessage("t", b"lost")])
    entry = max(Path(path_of(stages.root, INBOX), "_delta_log").glob("*.json"))
    entry.write_text("")
    stages.restart_all()
    with pytest.raises(BrokenVersion):
        stages.ingest()
    entry.unlink()
    stages.restart_all()
    send(stages.root, [OutgoingMessage("t", b"lost")])
    go(stages)
    go(stages, 1)
    assert came(stages)[b"lost", 0] == 1
    assert whats(stages) == set()


def test_a_settle_that_was_behind_takes_in_what_was_said_when_the_stages_start(stages: Stages) -> None:
    """Consumers have acknowledged, and messages were released, while nobody ran it."""
    before = open_of(stages)
    stages.restart("settle")
    say(stages, "ack", 2)
    later(stages.root, CONSUMER_EVENTS, 90)
    assert whats(stages) == {("settle_behind", "consumer_events")}
    start(stages)
    go(stages)
    assert open_of(stages) == before - 1
    assert whats(stages) == set()


def cut_off(stages: Stages) -> None:
    """Settle stands still while consumers say something, and the log of that is cut behind it."""
    stages.restart("settle")
    for _ in range(3):
        say(stages, "ack", 2)
    open_table(stages.root, CONSUMER_EVENTS).create_checkpoint()
    for entry in sorted(Path(path_of(stages.root, CONSUMER_EVENTS), "_delta_log").glob("*.json"))[:-1]:
        entry.unlink()
    assert ("source_cut", "settle") in whats(stages)
    with pytest.raises(VersionGone):
        stages.settle()


def test_a_settle_whose_source_was_cut_begins_anew_with_subscriptions_that_are_made_anew(stages: Stages) -> None:
    """The others go on; what was open of those that acknowledge counts as settled, as the page says."""
    subscribe(stages.root, Subscription("t", "plain", tick_ms=1))
    cut_off(stages)
    unsubscribe(stages.root, "t", "s")
    start(stages)
    go(stages)
    subscribe(stages.root, Subscription("t", "s", tick_ms=1, policies=Policies(ack=True)))
    go(stages)
    assert stages.ingest(message("new", "t"))
    go(stages, 61)
    assert came(stages)[b"new", 0] == 2
    assert open_of(stages) == 1
    assert whats(stages) == set()


def test_a_settle_whose_source_was_cut_goes_on_when_all_tables_are_restored_from_one_copy(
    stages: Stages, tmp_path: Path
) -> None:
    """What was acknowledged since the copy is open again; nothing else is."""
    before, copy = open_of(stages), tmp_path / "copy"
    copytree(stages.root, copy)
    cut_off(stages)
    for table in TABLES:
        rmtree(path_of(stages.root, table))
        copytree(path_of(str(copy), table), path_of(stages.root, table))
    start(stages)
    go(stages)
    assert open_of(stages) == before
    say(stages, "ack", 2)
    go(stages)
    assert open_of(stages) == before - 1
    assert whats(stages) == set()


@pytest.mark.parametrize("express_ms", [0, 60_000])
@pytest.mark.parametrize("entries", [2, 50_000])
def test_messages_that_were_restored_alone_are_accepted_again_at_their_positions(
    stages: Stages, tmp_path: Path, express_ms: int, entries: int
) -> None:
    """A rebuild of ingest writes what is missing: other tables know which batches took it.

    It does so also when other settings say by now how many messages fill a ledger.
    """
    stages.settings = replace(stages.settings, express_ms=express_ms, entries_per_ledger=1)
    stages.restart("ingest")
    copytree(path_of(stages.root, MESSAGES), tmp_path / "copy")
    for number in range(3):
        stages.instant += 1_000
        assert stages.ingest(
            message(f"now {number}", "t"), message(f"later {number}", "t", after=90_000), message("bad", "t", after=-1)
        )
    go(stages)
    there = rows(stages, MESSAGES)
    rmtree(path_of(stages.root, MESSAGES))
    copytree(tmp_path / "copy", path_of(stages.root, MESSAGES))
    assert ("not_accepted", "messages") in whats(stages)
    stages.settings = replace(stages.settings, entries_per_ledger=entries)
    take_over_ingest(stages.warehouse, Options(VirtualClock(), stages.settings))
    assert sorted(map(str, rows(stages, MESSAGES))) == sorted(map(str, there))
    start(stages)
    go(stages, 91)
    assert whats(stages) == set()
    assert max(came(stages).values()) == 1
    assert len(came(stages)) == 12


def test_lost_messages_of_a_window_are_accepted_again_only_by_their_rules_of_zones(
    stages: Stages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By others they would have other due times, and so other positions than those that were given out.

    Who installs the release that the line names goes on.
    """
    set_policy(stages.root, "t", window="Mo-Su 08:00-20:00", window_zone="Europe/Rome")
    copytree(path_of(stages.root, MESSAGES), tmp_path / "copy")
    stages.instant += 1_000
    with monkeypatch.context() as then:
        then.setattr("pipeline.ingest.stage.RULES", "1999a")
        assert stages.ingest(message("now", "t"), message("later", "t", after=90_000))
    go(stages)
    there = rows(stages, MESSAGES)
    rmtree(path_of(stages.root, MESSAGES))
    copytree(tmp_path / "copy", path_of(stages.root, MESSAGES))
    with pytest.raises(OtherRules) as refused:
        take_over_ingest(stages.warehouse, Options(VirtualClock(), stages.settings))
    assert (refused.value.field, refused.value.value) == ("tzdata", RULES)
    assert refused.value.allowed.startswith("1999a")
    monkeypatch.setattr("pipeline.config.zones.RULES", "1999a")
    monkeypatch.setattr("pipeline.ingest.plan.Terms", partial(Terms, rules="1999a"))
    take_over_ingest(stages.warehouse, Options(VirtualClock(), stages.settings))
    assert sorted(map(str, rows(stages, MESSAGES))) == sorted(map(str, there))
