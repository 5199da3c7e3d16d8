"""Streams of Spark settle what they read: the blocks of the guide, on the stages themselves."""

from __future__ import annotations

import re
import sys
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from pipeline.client import public
from schemas import REJECTED_SETTLE
from state import Condition
from tests.support.consuming import acknowledging, deliveries, payloads_open, standing
from tests.support.modules import ROOT
from tests.support.stream import Step, World, advance, append, check, message, play

T0 = 1_700_000_000_000
SECOND = 1_000
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def examples() -> list[str]:
    """The blocks of the guide in which a stream settles, and in which rows are appended."""
    page = (ROOT / "docs" / "guide.md").read_text(encoding="utf-8")
    return [each for each in BLOCK.findall(page) if "DIR/deliveries" in each and "billing" in each]


def typed(number: int) -> Step:
    """Run a block to its end, with the warehouse's folder for DIR."""

    def step(world: World) -> None:
        text = examples()[number].replace("DIR", world.warehouse.root).replace("'orders'", "'t'")
        # What a program leaves running, a test has to end.
        place = f'trigger(availableNow=True).option("checkpointLocation", "{world.warehouse.root}/billing")'
        text = text.replace('option("checkpointLocation", "billing")', place)
        text = re.sub(r"^(deliveries\.writeStream.*\.start\(\))$", r"query = \1", text, flags=re.MULTILINE)
        names: dict[str, Any] = {"spark": world.spark}
        exec(text, names)  # noqa: S102 - our own page
        query: StreamingQuery | None = names.get("query")
        if query is not None:
            query.awaitTermination()

    return step


def test_a_stream_of_spark_acknowledges_what_it_did_and_gives_back_the_rest(
    spark: SparkSession, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By calls and by rows that it appends; a delivery that failed twice comes again once."""
    monkeypatch.setitem(sys.modules, "delayline", public)
    assert len(examples()) == 2

    def waits(world: World) -> None:
        assert payloads_open(world, "billing") == {""}
        assert list(standing(world, "t", "billing").open(Condition.WAITING).values()) == [1]

    def came(world: World) -> None:
        found = [(bytes(row["payload"]), row["redelivery_count"]) for row in deliveries(world, "billing")]
        assert sorted(found) == [(b"", 0), (b"", 1), (b"17", 0), (b"18", 0)]
        assert world.rows(REJECTED_SETTLE) == []

    play(
        spark,
        folder,
        [
            acknowledging("t", "billing", kind="shared"),
            advance(T0),
            append(message("17"), message("18"), message("")),
            advance(T0 + SECOND),
            advance(T0 + 2 * SECOND),
            typed(0),
            typed(1),
            advance(T0 + 3 * SECOND),
            check(waits),
            advance(T0 + 70 * SECOND),
            advance(T0 + 71 * SECOND),
            check(came),
        ],
    )
