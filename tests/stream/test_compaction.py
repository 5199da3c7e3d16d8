"""Compaction beside the stages: fewer files, and nothing else is different."""

from __future__ import annotations

from pyspark.sql import SparkSession

from pipeline.maintenance import Compaction, compact
from schemas import MESSAGES
from tests.support.stream import World, advance, append, check, delivered, message, play, restart, subscribe

T0 = 1_700_000_000_000
DAY = 86_400_000


def test_compacted_messages_are_loaded_and_delivered_and_the_log_goes_on(spark: SparkSession, folder: str) -> None:
    """What is parked is found in the merged file; after a restart positions are numbered behind those in it."""

    def merge(world: World) -> None:
        assert compact(world.spark, world.warehouse) == Compaction(3, 1)
        assert compact(world.spark, world.warehouse) == Compaction(0, 0)

    def positions(world: World) -> None:
        ledgers = [row["ledger_id"] for row in world.rows(MESSAGES)]
        assert len(set(ledgers)) == len(ledgers) == 4

    play(
        spark,
        folder,
        [
            subscribe("t", "s"),
            append(message("c", after=3 * DAY)),
            advance(T0),
            append(message("a", after=DAY), message("refused", after=-1)),
            advance(T0 + 1),
            append(message("b", after=2 * DAY)),
            advance(T0 + 2),
            check(merge),
            restart(),
            append(message("d", after=4 * DAY)),
            advance(T0 + 3),
            check(positions),
            advance(T0 + 5 * DAY),
            delivered("a", "b", "c", "d"),
        ],
    )
