"""A schedule on the wall clock that keeps nothing has no batches, and is there at once when something comes."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession

from pipeline.client.create import create_all
from pipeline.client.producing.inbox import OutgoingMessage, send
from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from pipeline.config.options import Options
from pipeline.config.settings import LiveClock
from pipeline.config.stages import SCHEDULE
from pipeline.delta.checkpoints import Checkpoint, let_go
from pipeline.delta.deltars import open_table, query
from pipeline.delta.warehouse import Warehouse
from pipeline.service.run import start_all, stop_all
from schemas import DELIVERIES, REDELIVERY

_STEPS_S, _PATIENCE_S = 5.0, 240.0
"""More than two steps of the clock; and so long a busy machine may take."""


def until(met: Callable[[], bool]) -> None:
    """Wait for something."""
    end = time.monotonic() + _PATIENCE_S
    while not met():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.soak
def test_a_schedule_that_keeps_nothing_rests_until_something_comes(spark: SparkSession, folder: str) -> None:
    """Twelve batches a minute without a row were most of what an idle job took."""
    create_all(folder)
    subscribe(folder, Subscription("t", "s", tick_ms=1))
    warehouse = Warehouse(folder, spark)
    schedule = Checkpoint(warehouse.files, warehouse.checkpoint(SCHEDULE))

    def rests() -> bool:
        last = schedule.done
        if last is None or let_go(schedule.text(f"offsets/{last}") or "") != schedule.position(last).version:
            return False
        time.sleep(_STEPS_S)
        return schedule.batches()[-1] == last

    def delivered() -> int:
        return open_table(folder, DELIVERIES).count()

    running = start_all(warehouse, Options(LiveClock(lookahead_ms=4_000)))
    try:
        until(rests)
        send(folder, [OutgoingMessage("t", b"at once")])
        until(lambda: delivered() == 1)
        now = time.time_ns() // 1_000_000
        send(folder, [OutgoingMessage("t", b"soon", deliver_at=now + 5_000)])
        until(lambda: delivered() == 2)
        until(rests)
        assert not any(stage.failure for stage in running)
    finally:
        stop_all(running)
    rows = query("SELECT cause FROM runs ORDER BY due_time", runs=open_table(folder, REDELIVERY))
    assert [row["cause"] for row in rows] == ["express", "due"]
