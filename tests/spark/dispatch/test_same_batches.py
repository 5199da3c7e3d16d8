"""Spark and the driver make the same of any batch of dispatch: worlds with all kinds of policies.

The same ones each time; `tests/soak/test_same_worlds.py` looks for others.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from hypothesis import Phase, example, given, settings
from pyspark.sql import SparkSession

from pipeline.config.stages import INGEST
from pipeline.delta.warehouse import Warehouse
from tests.support.drawnscripts import POLICIES, Act, Line, Script, scripts
from tests.support.playedscripts import SETTINGS, Played, Way, play, undisturbed

_ROW = {"topic": "plain", "message_key": "a", "properties": None, "deliver_after_ms": 500, "payload": b"x"}
LATE = Script(
    (Line("plain", "asks for nothing", 1, earliest=False, joins=False),),
    (
        Act("send", rows=((_ROW,),)),
        Act("pass"),
        Act("away"),
        Act("pass", 1_000),
        Act("cancel"),
        Act("return"),
        Act("pass", 4_000),
    ),
)
"""What is cancelled was released four seconds before dispatch left it out: it counts as left out from then on."""


def by_spark(spark: SparkSession, root: str) -> Way:
    """Dispatch does its batches by Spark, however small they are."""
    stages = Played(root, Warehouse(root, spark), replace(SETTINGS, driver_rows=0))
    stages.spared = {INGEST}
    return Way(stages)


def test_spark_makes_of_a_batch_what_the_driver_does(spark: SparkSession) -> None:
    """Deliveries in their order, what is held, left out and refused, and what comes again."""

    @settings(max_examples=1, phases=[Phase.explicit, Phase.generate], derandomize=True)
    @example(LATE)
    @given(scripts(POLICIES, 2, 3))
    def search(script: Script) -> None:
        play(script, undisturbed, partial(by_spark, spark))

    search()
