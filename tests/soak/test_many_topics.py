"""Very many topics, each with a subscription and one message: what they cost, and that each message comes once."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

from benchmarks.support.processes import memory
from pipeline.client.insight.pending import pending
from pipeline.config.settings import MINUTE_MS
from pipeline.delta.deltars import append
from pipeline.delta.tables import create_all
from pipeline.delta.warehouse import Warehouse
from pipeline.service.replay import ReplayClock, replay
from schemas import DELIVERIES, INBOX, SUBSCRIPTIONS
from tests.support.spark import session

COUNT = int(os.environ.get("DELAYLINE_TOPICS", "20000"))
T0 = 1_700_000_000_000
SPAN_MS = 10 * MINUTE_MS


def registered(root: str) -> None:
    """A subscription for each topic, in one commit."""
    columns = {
        "topic": [f"topic-{number}" for number in range(COUNT)],
        "subscription": ["s"] * COUNT,
        "type": ["shared"] * COUNT,
        "start": ["latest"] * COUNT,
        "tick_ms": [1_000] * COUNT,
        "active": [True] * COUNT,
    }
    policies = pa.nulls(COUNT, pa.map_(pa.string(), pa.string()))
    append(
        root, SUBSCRIPTIONS, pa.table(columns).append_column("policies", policies).select(SUBSCRIPTIONS.schema.names)
    )


def one_each(spark: SparkSession) -> DataFrame:
    """A message of 100 bytes to each topic, due within ten minutes after `T0`."""
    given = {
        "topic": F.concat(F.lit("topic-"), F.col("id").cast("string")),
        "publish_time": F.timestamp_millis(F.lit(T0)),
        "deliver_at": F.timestamp_millis(F.lit(T0 + 1) + F.col("id") % SPAN_MS),
        "payload": F.lpad(F.col("id").cast("string"), 100, "0").cast("binary"),
    }
    fields = INBOX.schema.fields
    kinds = (given.get(each.name, F.lit(None)).cast(each.dataType).alias(each.name) for each in fields)
    return spark.range(0, COUNT, 1, 4).select(*kinds)


def lines() -> Iterator[str]:
    """Memory of each kind of process, now and at most."""
    for kind, used in memory(os.getpid()).items():
        yield f"{kind} {used.resident >> 20:,} MB, at most {used.peak >> 20:,} MB"


def test_a_message_to_each_of_very_many_topics_comes_once(tmp_path: Path) -> None:
    """One topic more must cost no more than the others did; DELAYLINE_TOPICS asks for another number of them."""
    warehouse = Warehouse(str(tmp_path), spark := session())
    create_all(warehouse)
    registered(warehouse.root)
    course = [time.monotonic()]
    replay(warehouse, one_each(spark), ReplayClock(T0, T0 + SPAN_MS + MINUTE_MS, SPAN_MS + MINUTE_MS),
           on_instant=lambda _: course.append(time.monotonic()))  # fmt: skip
    taken = [round(after - before) for before, after in pairwise(course)]
    print(f"{COUNT:,} topics: {taken} s to take them in and to release them; {', '.join(lines())}")
    rows = warehouse.read(DELIVERIES).agg(F.count("*"), F.count_distinct("topic")).collect()[0]
    assert (rows[0], rows[1]) == (COUNT, COUNT)
    found = pending(warehouse.root)
    assert (len(found.backlogs), sum(each.count for each in found.backlogs), found.in_inbox) == (COUNT, 0, 0)
