"""Rows of sources as rows of `inbox`, evaluated by Spark."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

from pipeline.client.checks import EPOCH
from pipeline.client.create import create_all
from pipeline.client.subscribing.topics import create_partitioned_topic
from pipeline.config.errors import BadSetting
from pipeline.config.sources import Source
from pipeline.delta.warehouse import Warehouse, ask
from pipeline.sources.door import InboxRows, SourceConnector
from pipeline.subscriptions import partitions
from pipeline.subscriptions.partitions import PartitionCounts
from pipeline.subscriptions.records import REFUSED_MS
from pipeline.subscriptions.topicnames import partition_name, routed
from tests.support.modules import ROOT


class Door:
    """A system whose rows say where they are."""

    derived: Mapping[str, str] = {}
    defaults: Mapping[str, str] = {}
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
    page = (ROOT / "docs/kafka.md").read_text(encoding="utf-8")
    (written,) = re.findall('[|] `deliver_at` [|] none [|] `"(.*)"` [|]', page)
    named = [({"deliver-at": each}, number) for number, each in enumerate([text, "1800000000123"])]
    rows = spark.createDataFrame(named, "properties MAP<STRING, STRING>, number INT")
    strange, found = rows_of(rows, topic="'t'", deliver_at=written)
    assert (strange["deliver_at"], strange["deliver_after_ms"]) == (None, REFUSED_MS)
    assert (found["deliver_at"], found["deliver_after_ms"]) == (EPOCH + timedelta(milliseconds=1_800_000_000_123), None)


def test_columns_that_are_named_as_in_the_inbox_are_taken_as_they_are(spark: SparkSession) -> None:
    """They were left out, and all came at once that was to come later."""
    rows = spark.sql(
        "SELECT 't' AS topic, 'k' AS message_key, map('a', '1') AS properties, timestamp_millis(1) AS publish_time,"
        " timestamp_millis(5) AS Deliver_At, X'00' AS payload, 7 AS number"
    )
    (found,) = rows_of(rows)
    assert [found[name] for name in ("topic", "message_key", "properties")] == ["t", "k", [("a", "1")]]
    times = [EPOCH + timedelta(milliseconds=ms) for ms in (1, 5)]
    assert [found[name] for name in ("publish_time", "deliver_at", "payload")] == [*times, b"\0"]
    (stated,) = rows_of(rows, deliver_after_ms="number", topic="'u'", payload="NULL")
    assert (stated["topic"], stated["payload"], stated["message_key"]) == ("u", None, "k")
    assert (stated["deliver_after_ms"], stated["deliver_at"]) == (7, None)
    (later,) = rows_of(rows.withColumn("deliver_at", F.lit(None)))
    assert (later["deliver_at"], later["deliver_after_ms"]) == (None, None), "a row of the inbox may have no due time"


def test_a_column_of_another_type_than_in_the_inbox_is_refused(spark: SparkSession) -> None:
    """Before anything is read; a profile may say that it is not taken."""
    rows = spark.sql("SELECT 't' AS topic, '2026-11-29' AS deliver_at, 1 AS number")
    with pytest.raises(BadSetting, match=r"source\.theirs\.deliver_at = 'deliver_at', allowed: a TIMESTAMP.*STRING"):
        rows_of(rows)
    (found,) = rows_of(rows, deliver_at="NULL", deliver_after_ms="5")
    assert (found["deliver_at"], found["deliver_after_ms"]) == (None, 5)


@pytest.mark.parametrize("here", [True, False], ids=["in the driver", "by Spark"])
def test_the_registry_says_how_many_partitions_there_are(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, here: bool
) -> None:
    """As it is now; it is read again only when it has moved."""
    warehouse, asked = Warehouse(str(tmp_path / "warehouse"), spark), list[int]()
    create_all(warehouse.root)
    if not here:
        monkeypatch.setattr("pipeline.delta.warehouse.read_here", lambda *_: None)

    def noted(*args: Any) -> Sequence[Any]:  # noqa: ANN401 - of `ask`
        asked.append(args[-1])
        return ask(*args)

    monkeypatch.setattr(partitions, "ask", noted)
    counts = PartitionCounts(warehouse)
    assert [counts.now(), counts.now()] == [{}, {}]
    create_partitioned_topic(warehouse.root, "orders", 3)
    assert [counts.now(), counts.now()] == [{"orders": 3}] * 2
    create_partitioned_topic(warehouse.root, "orders", 5)
    create_partitioned_topic(warehouse.root, "mails", 1)
    assert counts.now() == {"orders": 5, "mails": 1}
    assert len(asked) == 3
