"""A log is cut while settle is away, which has died between two commits: its batch is finished, and not repeated."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from shutil import rmtree

import pytest

pytest.importorskip("deltalake", reason="settle needs requirements/all.lock")
pytest.importorskip("pyspark", reason="settle needs requirements/all.lock")

from pipeline.client.commanding.commands import reschedule
from pipeline.client.subscribing.subscriptions import Subscription, subscribe, unsubscribe
from pipeline.config.settings import SECOND_MS
from pipeline.config.stages import SETTLE
from pipeline.config.wallclock import wall_ms
from pipeline.delta.deltars import append, open_table, query, rows_of
from pipeline.maintenance.cutlogs import cut_log
from pipeline.maintenance.readers import settled_upto, unread_from
from pipeline.subscriptions.policies import Policies
from schemas import CONSUMER_EVENTS, REDELIVERY, SEGMENTS
from tests.support.maintained import shorten_logs
from tests.support.stages import Stages
from tests.support.stream import at, message

T0 = 2_000_000_000_000


@pytest.fixture
def stages(tmp_path: Path) -> Stages:
    """A message was released to a subscription, and has failed."""
    found = Stages(str(tmp_path / "warehouse"))
    shorten_logs(found.root)
    subscribe(found.root, Subscription("t", "s", tick_ms=1, policies=Policies(ack=True)))
    found.instant = T0
    assert found.ingest()
    assert found.ingest(message("m", "t"))
    found.schedule.step(T0)
    assert found.settle()
    nack(found)
    return found


def nack(stages: Stages) -> None:
    """What was released last fails."""
    row = max(open_table(stages.root, REDELIVERY).to_pyarrow_table().to_pylist(), key=lambda each: each["ledger_id"])
    place = {"ledger_id": row["ledger_id"], "first_entry": 0, "last_entry": 0, "redelivery_count": 0}
    failed = {name: row[name] for name in ("topic", "subscription", "life")} | {"kind": "nack", "at": at(0)} | place
    append(stages.root, CONSUMER_EVENTS, rows_of(CONSUMER_EVENTS, [failed]))


def later(stages: Stages, *payloads: str) -> None:
    """A second later messages come, and ingest and the schedule do what there is to do."""
    stages.instant += SECOND_MS
    assert stages.ingest(*(message(each, "t") for each in payloads))
    stages.schedule.step(stages.instant)


def retries(stages: Stages) -> int:
    """How many rows of what comes again `segments` has."""
    found = query("SELECT count(*) AS n FROM s WHERE kind = 'retry'", s=open_table(stages.root, SEGMENTS))
    return int(found[0]["n"])


def begins(stages: Stages) -> int:
    """The first entry of the log of `segments`."""
    return min(int(each.stem) for each in Path(stages.root, SEGMENTS.name, "_delta_log").glob("*.json"))


def first_batch_torn(tmp_path: Path, *, short_logs: bool = False) -> Stages:
    """A message failed, and the first batch of settle of all died when it had put it into `segments`."""
    found = Stages(str(tmp_path / "warehouse"))
    if short_logs:
        shorten_logs(found.root)
    subscribe(found.root, Subscription("t", "s", tick_ms=1, policies=Policies(ack=True)))
    found.instant = T0
    assert found.ingest()
    later(found, "m")
    nack(found)
    found.die_after("settle.segments")
    assert not found.settle()
    return found


def test_the_first_batch_of_all_that_died_with_its_checkpoint_is_finished(tmp_path: Path) -> None:
    """`cursors` says nothing of settle then. What failed came again twice."""
    found = first_batch_torn(tmp_path)
    rmtree(found.warehouse.checkpoint(SETTLE))
    found.instant += SECOND_MS
    assert found.settle()
    assert retries(found) == 1
    (opened,) = found._body(SETTLE)._opened.values()
    assert opened.outstanding.counts.waiting == 1


def test_the_first_batch_of_all_that_died_with_its_checkpoint_keeps_what_it_needs(tmp_path: Path) -> None:
    """Settle goes on from its plan. It found no plan any more, or not what that reads."""
    found = first_batch_torn(tmp_path, short_logs=True)
    known, written = settled_upto(found.warehouse), begins(found)
    rmtree(found.warehouse.checkpoint(SETTLE))
    for number in range(8):
        later(found, f"later {number}")
    assert settled_upto(found.warehouse) == known
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("pipeline.maintenance.cutlogs.unread_from", lambda *_: 99)
        cut_log(found.warehouse, SEGMENTS, wall_ms() + SECOND_MS)
    assert begins(found) <= written + 4
    assert found.settle()
    assert retries(found) == 1


def test_a_first_batch_that_nobody_will_finish_holds_nothing(tmp_path: Path) -> None:
    """Nobody acknowledges any more, so settle does not look for it. Nothing would be deleted for ever."""
    found = first_batch_torn(tmp_path)
    rmtree(found.warehouse.checkpoint(SETTLE))
    assert settled_upto(found.warehouse) is not None
    unsubscribe(found.root, "t", "s")
    assert settled_upto(found.warehouse) is None


def test_a_first_batch_that_gave_a_message_another_due_time_is_finished_too(tmp_path: Path) -> None:
    """Nobody acknowledges here. What was put into the index was put there once more."""
    found = Stages(str(tmp_path / "warehouse"))
    subscribe(found.root, Subscription("t", "s", tick_ms=1))
    found.instant = T0
    assert found.ingest()
    assert found.ingest(message("m", "t", after=60_000) | {"message_key": "k"})
    assert reschedule(found.root, "t", to=datetime.fromtimestamp(T0 / 1_000 + 120, UTC), key="k").command_id
    found.die_after("settle.segments")
    assert not found.settle()
    rmtree(found.warehouse.checkpoint(SETTLE))
    found.instant += SECOND_MS
    assert found.settle()
    assert retries(found) == 1


def test_a_batch_that_died_with_its_checkpoint_keeps_what_it_reads_though_nobody_acknowledges_any_more(
    stages: Stages,
) -> None:
    """Settle finishes it by the plan in its commits; it could not start when maintenance had cut what that needs."""
    unsubscribe(stages.root, "t", "s")
    later(stages, "while nobody is followed")
    assert stages.settle()
    subscribe(stages.root, Subscription("t", "other", tick_ms=1, policies=Policies(ack=True)))
    later(stages)
    later(stages, "fails")
    nack(stages)
    stages.die_after("settle.segments")
    assert not stages.settle()
    unsubscribe(stages.root, "t", "other")
    later(stages)
    known = settled_upto(stages.warehouse)
    assert known is not None
    rmtree(stages.warehouse.checkpoint(SETTLE))
    assert settled_upto(stages.warehouse) == known
    assert unread_from(stages.warehouse, REDELIVERY) is not None


@pytest.mark.parametrize("step", ["settle.segments", None])
def test_a_batch_of_settle_that_died_before_its_last_commit_is_found_in_a_log_that_was_cut(
    stages: Stages, monkeypatch: pytest.MonkeyPatch, step: str | None
) -> None:
    """Its retries came twice: maintenance kept the note of ingest only. When settle has finished, its log may go."""
    monkeypatch.setattr("pipeline.maintenance.cutlogs.unread_from", lambda *_: 99)
    stages.die_after(step)
    assert stages.settle() == (step is None)
    assert retries(stages) == 1
    written = begins(stages)
    for number in range(8):
        stages.instant += SECOND_MS
        assert stages.ingest(message(f"later {number}", "t", after=60))
    cut_log(stages.warehouse, SEGMENTS, wall_ms() + SECOND_MS)
    assert (begins(stages) > written + 4) == (step is None)
    assert stages.settle()
    assert retries(stages) == 1
    cut_log(stages.warehouse, SEGMENTS, wall_ms() + SECOND_MS)
    assert begins(stages) > written + 4
