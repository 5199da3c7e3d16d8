"""A table that settle follows was restored alone, from an older copy: settle refuses it, and says what to do."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from shutil import copytree, rmtree
from tempfile import mkdtemp
from typing import Any

import pytest

pytest.importorskip("deltalake", reason="settle needs requirements/all.lock")
pytest.importorskip("pyspark", reason="settle needs requirements/all.lock")

from pipeline.client.commanding.commands import cancel
from pipeline.client.subscribing.subscriptions import Subscription, subscribe, unsubscribe
from pipeline.config.errors import SourceBehind
from pipeline.config.stages import DISPATCH, INGEST, SCHEDULE, SETTLE
from pipeline.delta.deltars import append, open_table, path_of, rows_of
from pipeline.subscriptions.policies import Policies
from schemas import (
    COMMANDS,
    CONSUMER_EVENTS,
    DELIVERIES,
    INBOX,
    MESSAGES,
    REDELIVERY,
    REJECTED_DISPATCH,
    SEGMENTS,
    Table,
)
from tests.support.examined import wrong
from tests.support.stages import Stages
from tests.support.stream import at, message

T0 = 2_000_000_000_000
READ = {INGEST: INBOX, SCHEDULE: SEGMENTS, DISPATCH: REDELIVERY}
"""What the other stages read."""
FOLLOWED = [CONSUMER_EVENTS, REDELIVERY, REJECTED_DISPATCH, COMMANDS]


@dataclass
class Job:
    """Stages without a JVM, and a copy of all that they have written, made while they stood still."""

    stages: Stages

    def __post_init__(self) -> None:
        """Nothing is copied yet."""
        self.root = Path(self.stages.root)
        self._copy = self.root.with_name("copy")

    def go(self, seconds: int = 0) -> None:
        """Time goes on, and all stages do what there is to do."""
        self.stages.instant += 1_000 * seconds
        while self.stages.has_ingest:
            assert self.stages.ingest()
        self.stages.schedule.step(self.stages.instant)
        while self.stages.has_dispatch:
            assert self.stages.dispatch()
        assert self.stages.settle()

    def more(self) -> None:
        """A message is sent and delivered, one is sent and cancelled, and the first one is acknowledged."""
        assert self.stages.ingest(message("late", "t"), message("off", "t", after=60_000) | {"message_key": "off"})
        self.go()
        assert cancel(str(self.root), "t", key="off").command_id
        self.acknowledge(b"first")
        self.go(61)

    def acknowledge(self, payload: bytes) -> None:
        """A consumer acknowledges a message."""
        row = next(row for row in self.rows(MESSAGES) if row["payload"] == payload)
        place = {"ledger_id": row["ledger_id"], "first_entry": row["entry_id"], "last_entry": row["entry_id"]}
        said = {"topic": "t", "subscription": "s", "life": 1, "kind": "ack", "at": at(0), "redelivery_count": 0}
        append(str(self.root), CONSUMER_EVENTS, rows_of(CONSUMER_EVENTS, [said | place]))

    def copy(self) -> None:
        """Copy the folder."""
        copytree(self.root, self._copy)

    def restore(self, table: Table) -> None:
        """Restore one table."""
        rmtree(path_of(str(self.root), table))
        copytree(self._copy / table.name, path_of(str(self.root), table))

    def restore_all(self) -> None:
        """Restore all tables and checkpoints."""
        rmtree(self.root)
        copytree(self._copy, self.root)
        self.stages.restart_all()

    def rows(self, table: Table) -> list[dict[str, Any]]:
        """What a table holds."""
        found: list[dict[str, Any]] = open_table(str(self.root), table).to_pyarrow_table().to_pylist()
        return found

    def words(self) -> set[tuple[str, str]]:
        """What the doctor finds beside what it finds at all times."""
        return wrong(str(self.root))


@cache
def made() -> tuple[Path, int]:
    """The folder of such a warehouse and its copy, to be copied, and the instant to which it has come."""
    folder = Path(mkdtemp())
    found = Job(Stages(str(folder / "warehouse")))
    subscribe(str(found.root), Subscription("t", "s", tick_ms=1, policies=Policies(ack=True)))
    found.stages.instant = T0
    assert found.stages.ingest()
    assert found.stages.ingest(message("first", "t"), message("second", "t"))
    found.go()
    found.copy()
    found.more()
    assert found.words() == set()
    return folder, found.stages.instant


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """Two messages are delivered to a subscription that acknowledges; then a copy is made, and all goes on."""
    folder, instant = made()
    copytree(folder, tmp_path, dirs_exist_ok=True)
    found = Job(Stages(str(tmp_path / "warehouse")))
    found.stages.instant = instant
    assert found.stages.settle()
    return found


@pytest.mark.parametrize("table", FOLLOWED, ids=lambda table: table.name)
def test_a_table_that_was_restored_alone_is_refused_until_all_are_restored(job: Job, table: Table) -> None:
    """What comes in the place of the versions that it lacks was passed over, and the doctor found nothing any more."""
    job.restore(table)
    assert ("settle_ahead", table.name) in job.words()
    for _ in ("while it runs", "when it starts"):
        with pytest.raises(SourceBehind) as refused:
            job.stages.settle()
        assert (refused.value.stage, refused.value.table) == (SETTLE, table.name)
        assert refused.value.newest < refused.value.read
        job.stages.restart(SETTLE)
    job.restore_all()
    job.more()
    assert job.words() == set()
    assert Counter(row["payload"] for row in job.rows(DELIVERIES)) == {b"first": 1, b"second": 1, b"late": 1}
    job.acknowledge(b"late")
    job.go()
    assert job.stages._body(SETTLE)._opened["t", "s"].outstanding.counts.outstanding == 1
    assert job.words() == set()


@pytest.mark.parametrize("stage", READ)
def test_what_a_stage_reads_was_restored_alone_and_it_is_refused_until_all_is_restored(job: Job, stage: str) -> None:
    """Nobody can tell which rows of the other table it has read."""
    job.restore(READ[stage])
    job.stages.restart(stage)
    with pytest.raises(SourceBehind) as refused:
        job.stages.start(stage)
    assert (refused.value.stage, refused.value.table) == (stage, READ[stage].name)
    job.restore_all()
    job.more()
    assert job.words() == set()
    assert Counter(row["payload"] for row in job.rows(DELIVERIES)) == {b"first": 1, b"second": 1, b"late": 1}


def test_who_follows_nothing_begins_anew_with_older_tables(job: Job) -> None:
    """Nobody acknowledges any more: nothing is open that a row could be about."""
    unsubscribe(str(job.root), "t", "s")
    job.go(1)
    for table in FOLLOWED[:3]:
        job.restore(table)
    assert "settle_ahead" not in {word for word, _ in job.words()}
    job.stages.restart(SETTLE)
    assert job.stages.settle()
    subscribe(str(job.root), Subscription("t", "new", tick_ms=1, policies=Policies(ack=True)))
    assert job.stages.ingest()
    assert job.stages.settle()
    assert job.stages.ingest(message("new", "t"))
    job.go(1)
    assert job.stages._body(SETTLE)._opened["t", "new"].outstanding.counts.outstanding == 1


@pytest.mark.parametrize("starts", [False, True])
def test_commands_that_were_restored_alone_are_refused_by_who_follows_nothing(job: Job, *, starts: bool) -> None:
    """What a command moves that comes in the place of those that are gone was left out, and never put back."""
    unsubscribe(str(job.root), "t", "s")
    subscribe(str(job.root), Subscription("t", "plain", tick_ms=1))
    job.go(1)
    job.restore(COMMANDS)
    assert ("settle_ahead", COMMANDS.name) in job.words()
    if starts:
        job.stages.restart(SETTLE)
    with pytest.raises(SourceBehind) as refused:
        job.stages.settle()
    assert refused.value.table == COMMANDS.name
