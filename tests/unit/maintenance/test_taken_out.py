"""What a batch took out of `held`, and nobody sees yet, holds maintenance: its note may be gone by now."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

import pytest

pytest.importorskip("deltalake", reason="dispatch needs requirements/all.lock")
pytest.importorskip("pyspark", reason="dispatch needs requirements/all.lock")

from pyspark.errors import AnalysisException

from pipeline.client.subscribing.policysetting import set_policy
from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from pipeline.config.settings import SECOND_MS
from pipeline.config.stages import DISPATCH
from pipeline.config.wallclock import wall_ms
from pipeline.delta.deltars import open_table
from pipeline.delta.logs.entries import newest
from pipeline.delta.writing.oncewriter import Sink, last_commit
from pipeline.dispatch.backlog import taken_since
from pipeline.maintenance.cutlogs import cut_log
from pipeline.maintenance.retention import raise_mark
from pipeline.storage.files import Files
from pipeline.subscriptions.policies import Policies
from schemas import DELIVERIES, HELD
from tests.support.stages import Stages
from tests.support.stream import message

T0 = 2_000_000_000_000
HOUR = 3_600 * SECOND_MS


@pytest.fixture
def stages(tmp_path: Path) -> Stages:
    """A message is held for an hour, while others come to others; dispatch died when it had taken it."""
    found = Stages(str(tmp_path / "warehouse"))
    subscribe(found.root, Subscription("t", "paused", tick_ms=1, policies=Policies(paused=True)))
    subscribe(found.root, Subscription("u", "free", tick_ms=1))
    go(found, 0)
    go(found, 1, "t")
    for number in range(2, 10):
        go(found, number * HOUR, "u")
    assert set_policy(found.root, "t", "paused", paused=False)
    found.die_after("dispatch.held")
    assert not found.dispatch()
    return found


def go(stages: Stages, after: int, *topics: str) -> None:
    """A message is sent to each topic, and the stages come to a time."""
    stages.instant = T0 + after
    assert stages.ingest(*(message("m", topic) for topic in topics))
    assert stages.release()
    assert stages.dispatch()


def marked(stages: Stages) -> bool:
    """Whether the mark rises above what was held."""
    return raise_mark(stages.warehouse, 0).due_ms > T0 + HOUR


def test_the_mark_waits_until_what_was_taken_out_of_held_is_visible(stages: Stages) -> None:
    """Its message would be deleted, and a rebuild would leave it out."""
    assert not marked(stages)
    assert stages.dispatch()
    assert marked(stages)


def test_the_log_of_held_stays_from_where_something_was_taken_out(stages: Stages) -> None:
    """A rebuild reads there what was on a note that is gone, whatever batches did to the table since."""
    sink = Sink(stages.warehouse, HELD, DISPATCH)
    last = sink.last
    assert last is not None
    begins = []
    for owner in (last.owner, "another checkpoint, which goes on when all is visible"):
        since = last.note["since"] if owner == last.owner else newest(Files(), stages.warehouse.path(HELD))
        sink.commit([], owner, last.batch + 1, {**last.note, "since": since})
        open_table(stages.root, HELD).create_checkpoint()
        cut_log(stages.warehouse, HELD, wall_ms() + SECOND_MS)
        entries = Path(stages.root, HELD.name, "_delta_log").glob("*.json")
        begins.append(min(int(each.stem) for each in entries) > last.note["since"])
    assert begins == [False, True]


@pytest.mark.parametrize("error", [FileNotFoundError(), AnalysisException("[PATH_NOT_FOUND]")], ids=["here", "spark"])
def test_what_was_taken_out_is_unknown_when_a_file_of_it_is_gone(
    stages: Stages, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """The mark stays, and a rebuild looks further back. In HDFS, which only Spark reaches, both ended."""
    shown = last_commit(stages.warehouse, DELIVERIES, DISPATCH)
    found = taken_since(stages.warehouse, shown)
    assert found is not None
    assert found.num_rows
    monkeypatch.setattr("pipeline.dispatch.backlog.read_files", Mock(side_effect=error))
    assert taken_since(stages.warehouse, shown) is None
    assert not marked(stages)
