"""Rows of sources as rows of `inbox`, evaluated by Spark."""

from __future__ import annotations

import re
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from pipeline.client.checks import EPOCH
from pipeline.client.create import create_all
from pipeline.client.subscribing.topics import create_partitioned_topic
from pipeline.config.sources import Source
from pipeline.delta.warehouse import Warehouse
from pipeline.sources.door import InboxRows, SourceConnector
from pipeline.subscriptions import partitions
from pipeline.subscriptions.partitions import PartitionCounts
from pipeline.subscriptions.records import REFUSED_MS
from pipeline.subscriptions.topicnames import partition_name, routed
from tests.support.modules import ROOT


class Door:
    """A system whose rows say where they are."""

    derived: dict[str, str] = {}
    defaults: dict[str, str] = {}
    position = "concat('at ', number)"


def rows_of(rows: DataFrame, counts: dict[str, int] | None = None, **stated: str) -> list[dict[str, Any]]:
    """Rows as `inbox` gets them."""
    door: SourceConnector = Door()  # type: ignore[assignment] # only its expressions are looked at
    mapping = InboxRows(Source("theirs", "delta:/theirs", **stated), door)  # type: ignore[arg-type] # texts all
    mapping.check(rows.sparkSession, rows.schema)
    found: list[dict[str, Any]] = mapping.of(rows, counts or {}).toArrow().to_pylist()
    return found


def test_a_row_for_a_divided_topic_goes_to_the_partition_that_producers_choose(spark: SparkSession) -> None:
    """It went to the topic itself, where nobody listens, and was deleted some time later."""
    keys = ["", "a", "order-1", "ü", "\U0001f600", "x" * 1_000]
    named = [(topic, key, number) for topic in ("orders", "mails", "else") for number, key in enumerate(keys)]
    rows = spark.createDataFrame(named, "topic STRING, key STRING, number INT")
    counts = {"orders": 4, "mails": 10_000, "never": 3}
    found = rows_of(rows, counts, topic="topic", message_key="key", payload="CAST(number AS STRING)")
    wanted = [routed(topic, key, 0, counts.get(topic, 0)) for topic, key, _ in named]
    assert [row["topic"] for row in found] == wanted


def test_rows_without_a_key_are_spread_and_each_goes_where_it_went(spark: SparkSession) -> None:
    """A batch may be read again; producers count turns, which nobody would know then."""
    rows = spark.createDataFrame([(number,) for number in range(400)], "number INT")
    stated = {"topic": "'orders'", "payload": "CAST(number AS STRING)"}
    first, again = (rows_of(each, {"orders": 4}, **stated) for each in (rows, rows.orderBy(rows.number.desc())))
    chosen = Counter(row["topic"] for row in first)
    assert chosen.keys() == {partition_name("orders", number) for number in range(4)}
    assert min(chosen.values()) > 50
    assert {row["payload"]: row["topic"] for row in again} == {row["payload"]: row["topic"] for row in first}


@pytest.mark.parametrize("text", ["1800000000000000000", "-1800000000000000000", "soon", "", None])
def test_a_due_time_of_a_page_that_no_clock_shows_is_refused(spark: SparkSession, text: str | None) -> None:
    """A number in nanoseconds would be an error of the query, again at each start, without the cast to a decimal."""
    (row,) = re.findall("[|] `deliver_at` [|] none [|] `\"(.*)\"` [|]", (ROOT / "docs/kafka.md").read_text(encoding="utf-8"))
    rows = spark.sql("SELECT map('deliver-at', :text) AS properties, 1 AS number", {"text": text})
    usual = spark.sql("SELECT map('deliver-at', '1800000000123') AS properties, 2 AS number")
    strange, found = rows_of(rows.union(usual), topic="'t'", deliver_at=row)
    assert (strange["deliver_at"], strange["deliver_after_ms"]) == (None, REFUSED_MS)
    assert (found["deliver_at"], found["deliver_after_ms"]) == (EPOCH + timedelta(milliseconds=1_800_000_000_123), None)


@pytest.mark.parametrize("here", [True, False], ids=["in the driver", "by Spark"])
def test_the_registry_says_how_many_partitions_there_are(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, here: bool
) -> None:
    """As it is now; it is read again only when it has moved."""
    warehouse, asked = Warehouse(str(tmp_path / "warehouse"), spark), list[int]()
    create_all(warehouse.root)
    if not here:
        monkeypatch.setattr("pipeline.delta.warehouse.read_here", lambda *_: None)
    ask = partitions.ask
    monkeypatch.setattr(partitions, "ask", lambda *args: (asked.append(args[-1]), ask(*args))[1])
    counts = PartitionCounts(warehouse)
    assert [counts.now(), counts.now()] == [{}, {}]
    create_partitioned_topic(warehouse.root, "orders", 3)
    assert [counts.now(), counts.now()] == [{"orders": 3}] * 2
    create_partitioned_topic(warehouse.root, "orders", 5)
    create_partitioned_topic(warehouse.root, "mails", 1)
    assert counts.now() == {"orders": 5, "mails": 1}
    assert len(asked) == 3
