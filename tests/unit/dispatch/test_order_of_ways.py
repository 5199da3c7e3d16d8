"""What went by the schedule and what went past it is read in the order in which dispatch let it go."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("deltalake", reason="the warehouse needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the stages need requirements/all.lock")

from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from pipeline.client.tables.datarows import ORDER
from pipeline.config.settings import LiveClock
from pipeline.delta.deltars import open_table, query
from schemas import DELIVERIES
from tests.support.job import Clocks
from tests.support.stages import Stages
from tests.support.stream import message

T0 = 1_700_000_000_000


@pytest.mark.parametrize("between", [(), ("dispatch",), ("restart_all",), ("dispatch", "restart_all")])
def test_messages_of_one_instant_are_read_as_they_were_sent(tmp_path: Path, between: tuple[str, ...]) -> None:
    """The first one goes by the schedule, since somebody has just joined, and the second one past it."""
    clocks, stages = Clocks(T0), Stages(str(tmp_path / "warehouse"), clock=LiveClock())

    def take(payload: str) -> None:
        stages.instant = T0
        assert stages.ingest(message(payload, deliver_at=T0))

    with clocks.in_force():
        stages.ingest()
        subscribe(stages.root, Subscription("t", "s", "shared", tick_ms=1))
        take("m1")
        stages.schedule.step(T0 + 8_000)
        for step in between:
            getattr(stages, step)()
        take("m2")
        assert stages.dispatch()
    in_order = f"SELECT cause, CAST(payload AS VARCHAR) AS payload FROM t ORDER BY {', '.join(ORDER)}"  # noqa: S608 - our own words
    rows = query(in_order, t=open_table(stages.root, DELIVERIES))
    assert [tuple(each.values()) for each in rows] == [("due", "m1"), ("express", "m2")]
