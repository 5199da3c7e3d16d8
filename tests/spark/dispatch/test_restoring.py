"""A rebuild of dispatch looks for what was released and is nowhere: all of that, and nothing that was there before.

The stages of these tests need no JVM; the rebuild has the session.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.client.commanding.commands import cancel, shift
from pipeline.client.subscribing.policysetting import set_policy
from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from pipeline.config.errors import BrokenVersion, TableBehind
from pipeline.config.options import Options
from pipeline.config.settings import Settings
from pipeline.config.stages import DISPATCH
from pipeline.delta.deltars import append, open_table, rows_of
from pipeline.delta.warehouse import Warehouse
from pipeline.delta.writing.oncewriter import Sink
from pipeline.dispatch.restore import restore
from pipeline.service.rebuild import rebuild
from pipeline.storage.files import Files
from pipeline.subscriptions.policies import Policies
from pipeline.subscriptions.settled import SettledMark, raise_to
from pipeline.testing.stages import VIRTUAL
from schemas import CONSUMER_EVENTS, DELIVERIES, HELD, REJECTED_DISPATCH, Table
from tests.support.examined import sound, wrong
from tests.support.stages import Stages
from tests.support.stream import at, message

T0 = 2_000_000_000_000
SECOND = 1_000
Came = Counter[tuple[str, str, int]]


@dataclass
class Job:
    """The stages of a warehouse; times are seconds since `T0`."""

    spark: SparkSession
    root: str
    stages: Stages = field(init=False)

    def __post_init__(self) -> None:
        """Begin the stages."""
        self.stages = Stages(self.root)

    def subscribe(self, **policies: Policies) -> None:
        """Register subscriptions of the topic `t`."""
        for name, each in policies.items():
            subscribe(self.root, Subscription("t", name, tick_ms=1, policies=each))
        self.go(0)

    def go(self, second: int, *payloads: str, death: str | None = None) -> None:
        """Messages are sent, and all stages come to a time; dispatch may die on its way."""
        self.stages.instant = T0 + second * SECOND
        assert self.stages.ingest(*(message(each) for each in payloads))
        while self.stages.has_ingest:
            assert self.stages.ingest()
        assert self.stages.release()
        self.stages.die_after(death)
        while self.stages.has_dispatch and self.stages.dispatch():
            pass
        assert self.stages.steps[-1:] == [death] or death is None
        if death is None:
            assert self.stages.publish()
            assert self.stages.settle()

    def send(self, second: int, payload: str) -> None:
        """A message is sent at a time and comes then."""
        self.stages.instant = T0 + second * SECOND
        assert self.stages.ingest(message(payload, published=self.stages.instant))
        self.go(second)

    def rebuild(self) -> None:
        """Dispatch loses its checkpoint."""
        rebuild(Warehouse(self.root, self.spark), DISPATCH, Options(VIRTUAL))
        self.stages.restart(DISPATCH)

    def delete(self, condition: str) -> None:
        """Somebody deletes deliveries."""
        open_table(self.root, DELIVERIES).delete(condition)

    def lose_notes(self) -> None:
        """What is noted of prepared deliveries is gone."""
        for note in self.notes():
            note.unlink()

    def lose_files(self) -> None:
        """The files of prepared deliveries are gone."""
        for note in self.notes():
            for file in (file for part in json.loads(note.read_text())["parts"] for file in part["files"]):
                Path(self.root, DELIVERIES.name, file["path"]).unlink()

    def notes(self) -> list[Path]:
        """The notes of prepared deliveries."""
        return sorted(Path(self.root, DELIVERIES.name, "_prepared").glob("*.json"))

    def reasons(self) -> list[str]:
        """Why something was left out or refused."""
        return sorted(open_table(self.root, REJECTED_DISPATCH).to_pyarrow_table().column("reason").to_pylist())

    def came(self) -> Came:
        """Subscription, payload and redelivery count of all that is in `deliveries`."""
        rows = open_table(self.root, DELIVERIES).to_pyarrow_table().to_pylist()
        return Counter((row["subscription"], row["payload"].decode(), row["redelivery_count"]) for row in rows)


@pytest.fixture
def job(spark: SparkSession, folder: str) -> Job:
    """A warehouse."""
    return Job(spark, folder)


def older_than(second: int) -> str:
    """What was due before a time."""
    return f"due_time < '{at(T0 + second * SECOND).isoformat()}'"


def test_what_users_deleted_does_not_come_again_though_something_was_held_once(job: Job) -> None:
    """A pause that is long over is no reason to look at the beginning of the table."""
    job.subscribe(s=Policies(), paused=Policies(paused=True))
    job.go(1, "old")
    assert set_policy(job.root, "t", "paused", paused=False)
    job.go(2)
    job.go(100, "new")
    assert job.came() == Counter((name, each, 0) for name in ("s", "paused") for each in ("old", "new"))
    job.delete(older_than(50))
    job.rebuild()
    job.go(101)
    assert job.came() == Counter({("s", "new", 0): 1, ("paused", "new", 0): 1})


def test_what_a_batch_took_from_what_was_held_comes_when_its_note_is_gone(job: Job) -> None:
    """However long ago it was due: it comes once, and nothing that users deleted comes with it."""
    job.subscribe(s=Policies(), paused=Policies(paused=True))
    job.go(1, "old")
    job.go(100, "new")
    job.delete(older_than(50))
    assert set_policy(job.root, "t", "paused", paused=False)
    job.go(101, death="dispatch.held")
    job.lose_notes()
    job.rebuild()
    job.go(102)
    wanted = Counter({("s", "new", 0): 1, ("paused", "new", 0): 1, ("paused", "old", 0): 1})
    assert job.came() == wanted
    job.rebuild()
    job.go(103)
    assert job.came() == wanted


def test_what_is_missing_comes_again_though_something_is_prepared(job: Job) -> None:
    """What is prepared comes once, by the note that is there."""
    job.subscribe(s=Policies())
    job.go(1, "first", "gone")
    job.go(2, "last", death="dispatch.noted")
    job.delete("payload = X'676f6e65'")
    job.rebuild()
    assert len(job.notes()) == 1
    job.go(3)
    assert job.came() == Counter({("s", each, 0): 1 for each in ("first", "gone", "last")})
    assert job.notes() == []


def test_a_redelivery_whose_note_is_gone_comes_though_its_message_was_due_below_the_mark(job: Job) -> None:
    """The mark says that first deliveries are settled, and nothing of what came again since.

    The batch held something, too, so the new checkpoint begins behind it.
    """
    job.subscribe(s=Policies(ack=True), paused=Policies(paused=True))
    job.go(1, "failed", "fine")
    rows = open_table(job.root, DELIVERIES).to_pyarrow_table().to_pylist()
    (row,) = (each for each in rows if each["payload"] == b"failed")
    names = ("topic", "subscription", "life", "ledger_id", "redelivery_count")
    nack = {name: row[name] for name in names} | {"kind": "nack", "after_ms": 10, "at": at(0)}
    nack |= {"first_entry": row["entry_id"], "last_entry": row["entry_id"]}
    append(job.root, CONSUMER_EVENTS, rows_of(CONSUMER_EVENTS, [nack]))
    job.go(5)
    job.go(100, "held", death="dispatch.held")
    raise_to(Files(), job.root, SettledMark(T0 + 3 * SECOND, ledger=1_000, marker=0))
    job.lose_notes()
    job.rebuild()
    job.go(101)
    assert job.came() == Counter({("s", each, 0): 1 for each in ("failed", "fine", "held")} | {("s", "failed", 1): 1})


@pytest.mark.parametrize("losing", ["notes", "files"])
def test_a_backlog_of_who_has_no_delivery_yet_comes_and_what_others_deleted_does_not(job: Job, losing: str) -> None:
    """It was due before the oldest delivery of anybody. When a file was gone, all that others had deleted came, too."""
    job.subscribe(s=Policies(), paused=Policies(paused=True))
    job.go(1, "old")
    job.send(100, "new")
    job.delete(older_than(50))
    subscribe(job.root, Subscription("t", "late", tick_ms=1, start="earliest"))
    if losing == "notes":
        # It is held for another one, so the new checkpoint begins behind it.
        job.go(101, "last", death="dispatch.held")
        job.lose_notes()
    else:
        job.go(101, "last", death="dispatch.noted")
        job.lose_files()
    job.rebuild()
    job.go(102)
    assert job.reasons() == []
    wanted = [("late", "old", 0), *((name, each, 0) for name in ("s", "late") for each in ("new", "last"))]
    assert job.came() == Counter(wanted)


def test_a_note_that_is_gone_from_the_middle_is_looked_for_once(job: Job) -> None:
    """What takes its place says so: a start was refused again, and the rebuild that it named had been done."""
    job.subscribe(s=Policies())
    job.go(1, "first")
    job.go(2, "gone")
    job.delete("payload = X'676f6e65'")
    sink = Sink(job.stages.warehouse, DELIVERIES, DISPATCH)
    assert sink.last is not None
    # Part 2 was not due yet when part 3 became visible.
    sink.commit([], sink.last.owner, sink.last.batch, {**sink.last.note, "top": 3, "below": [2], "shown": []})
    job.stages.restart(DISPATCH)
    with pytest.raises(TableBehind):
        job.stages.start(DISPATCH)
    job.rebuild()
    job.go(3)
    assert job.came() == Counter({("s", each, 0): 1 for each in ("first", "gone")})


def test_what_was_due_long_before_comes_when_its_file_is_gone_though_its_batch_held_something(job: Job) -> None:
    """The start looked no further back than a minute before what was seen last, but for what was held."""
    job.subscribe(s=Policies(), paused=Policies(paused=True))
    job.go(1, "old")
    job.send(100, "new")
    job.stages.instant = T0 + 101 * SECOND
    assert job.stages.ingest(message("late", published=T0 + 5 * SECOND))
    job.go(101, death="dispatch.noted")
    job.lose_files()
    restore(Warehouse(job.root, job.spark), Settings())
    job.stages.restart(DISPATCH)
    job.go(102)
    assert job.came() == Counter({("s", each, 0): 1 for each in ("old", "new", "late")})


def test_the_first_batch_of_all_comes_when_its_file_is_gone_and_the_rebuild_does_what_it_was_to_hold(job: Job) -> None:
    """The commit to `held` says then how far dispatch is, and the note was dropped as if nobody had come so far."""
    job.subscribe(s=Policies(), paused=Policies(paused=True))
    job.go(1, "first", death="dispatch.shelved")
    job.lose_files()
    job.rebuild()
    job.go(2)
    assert job.came() == Counter({("s", "first", 0): 1})
    assert open_table(job.root, HELD).to_pyarrow_table().num_rows == 1


def test_what_was_left_out_does_not_come_though_users_deleted_the_rows_that_say_so(job: Job) -> None:
    """They may delete those and keep `deliveries`: a rebuild took what was cancelled, or had expired, for lost."""
    late = Policies(ttl_ms=5 * SECOND)
    job.subscribe(s=Policies(), moved=Policies(), late=late, guarded=Policies(guard="payload_text <> 'gone'"))
    job.go(1, "first")
    job.stages.instant = T0 + 2 * SECOND
    assert job.stages.ingest(message("gone", deliver_at=T0 + 10 * SECOND))
    cancel(job.root, "t", "s", where="true")
    shift(job.root, "t", "moved", where="true", span=timedelta(seconds=60))
    assert set_policy(job.root, "t", "late", paused=True)
    job.go(11)
    job.go(40)
    reasons = job.reasons()
    assert reasons == ["cancelled", "expired", "rescheduled", "suppressed"]
    open_table(job.root, REJECTED_DISPATCH).delete()
    assert wrong(job.root) == {("not_delivered", f"t/{name}") for name in ("s", "moved", "late", "guarded")}
    job.rebuild()
    job.go(41)
    sound(job.root)
    first = Counter((name, "first", 0) for name in ("s", "moved", "late", "guarded"))
    assert (job.came(), job.reasons()) == (first, reasons)
    job.go(80)
    assert job.came() == first + Counter({("moved", "gone", 0): 1})


def test_of_two_checkpoints_that_end_at_one_place_all_comes_once(job: Job) -> None:
    """A new checkpoint that only lets go of what was held ends where the old one did, by batches of lower numbers."""
    job.subscribe(s=Policies(), paused=Policies(paused=True))
    job.go(1, "first")
    job.go(2, "second")
    job.rebuild()
    assert set_policy(job.root, "t", "paused", paused=False)
    job.go(3, death="dispatch.held")
    job.lose_notes()
    job.rebuild()
    job.go(4)
    wanted = Counter((name, each, 0) for name in ("s", "paused") for each in ("first", "second"))
    assert job.came() == wanted
    job.rebuild()
    job.go(5)
    assert job.came() == wanted


@pytest.mark.parametrize("table", [DELIVERIES, HELD], ids=lambda table: table.name)
def test_a_newest_entry_that_a_power_cut_left_empty_is_deleted_and_dispatch_rebuilt(job: Job, table: Table) -> None:
    """As the page says of `BrokenVersion` without a copy."""
    job.subscribe(s=Policies(), paused=Policies(paused=True))
    job.go(1, "first")
    job.go(2, "second")
    entry = max(Path(job.root, table.name, "_delta_log").glob("*.json"))
    entry.write_text("")
    job.stages.restart_all()
    with pytest.raises(BrokenVersion):
        job.stages.start(DISPATCH)
    entry.unlink()
    job.rebuild()
    job.go(3)
    assert set_policy(job.root, "t", "paused", paused=False)
    job.go(4)
    assert job.came() == Counter((name, each, 0) for name in ("s", "paused") for each in ("first", "second"))
