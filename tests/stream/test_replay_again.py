"""A replay that was killed goes on where it was when it is called again."""

from __future__ import annotations

from shutil import copytree

import pytest
from pyspark.sql import SparkSession

from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from pipeline.config.settings import DAY_MS, HOUR_MS
from pipeline.delta.warehouse import Warehouse
from pipeline.service import replay
from schemas import DELIVERIES, INBOX
from tests.support.rows import rows_of
from tests.support.stream import Killed, empty_warehouse

T0 = 1_700_000_000_000
COURSE = replay.ReplayClock(T0, T0 + 2 * DAY_MS, DAY_MS)


def test_rows_that_entered_before_the_kill_belong_to_their_instant(
    spark: SparkSession, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They come once, and a delay counts from when its message was sent, whatever was killed in between."""
    warehouse = Warehouse(folder, spark)
    copytree(empty_warehouse(HOUR_MS), folder)
    subscribe(folder, Subscription("t", "s", tick_ms=1))
    row = {"topic": "t", "publish_time": T0 + DAY_MS // 2, "deliver_after_ms": HOUR_MS}
    messages, enter = rows_of(spark, INBOX.schema, row), replay.Producer.append

    def die_after(producer: replay.Producer, number: int) -> None:
        enter(producer, number)
        if number == 1:
            raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(replay.Producer, "append", die_after)
        with pytest.raises(Killed):
            replay.replay(warehouse, messages, COURSE)
    replay.replay(warehouse, messages, COURSE)
    (found,) = warehouse.read(DELIVERIES).selectExpr("unix_millis(due_time)").collect()
    assert found[0] == T0 + DAY_MS // 2 + HOUR_MS
