"""What a rebuild puts into the index is the same by whole arrays as by Spark."""

from __future__ import annotations

from pathlib import Path
from shutil import copytree
from typing import Any

import pyarrow.compute as pc
from pyspark.sql import SparkSession

from pipeline.config.options import Options
from pipeline.config.settings import LiveClock
from pipeline.config.stages import SCHEDULE
from pipeline.delta.deltars import open_table
from pipeline.delta.warehouse import Warehouse
from pipeline.service.rebuild import rebuild
from pipeline.worker.encode import ARROW
from pipeline.worker.express import Express
from schemas import SEGMENTS
from tests.support.clones import World


def indexed(root: str) -> list[tuple[Any, ...]]:
    """What the last rebuild of a warehouse put into its index: whose, which position, which round, when, why."""
    rows = open_table(root, SEGMENTS).to_pyarrow_table(columns=ARROW.names).cast(ARROW)
    rebuilt = rows.filter(pc.equal(rows.column("kind"), "rebuild"))
    found = set[tuple[Any, ...]]()
    for batch in Express(0, 0)(iter(rebuilt.to_batches())):
        for run in batch.to_pylist():
            same = [run[name] for name in ("topic", "subscription", "life", "ledger_id", "due_time")]
            again = [run[name] for name in ("redelivery_count", "round", "cause")]
            found |= {(*same, entry, *again) for entry in range(run["first_entry"], run["last_entry"] + 1)}
    assert len(found) == sum(rebuilt.column("count").to_pylist())
    return sorted(found, key=str)


def test_a_rebuild_by_arrays_puts_into_the_index_what_spark_does(spark: SparkSession, tmp_path: Path) -> None:
    """First deliveries and those that come again, less what was released, closed, or is loaded later."""
    world = World.new(str(tmp_path / "here"), horizon_ms=20_000)
    world.send(0, 0, 0, 0, 5, 5, 15, 3_600)
    world.go_on(0)
    for number, kind in enumerate(["ack", "nack", "nack", "nack"]):
        world.consume(number, kind)
    world.go_on(1)
    world.consume(2, "ack")
    world.shift(4, 3)
    world.shift(6, -10)
    world.cancel(5)
    world.go_on(2)
    copytree(world.root, tmp_path / "spark")
    for root, session in ((world.root, None), (str(tmp_path / "spark"), spark)):
        rebuild(Warehouse(root, session), SCHEDULE, Options(LiveClock()))
    waits = indexed(world.root)
    assert waits == indexed(str(tmp_path / "spark"))
    assert {each[6] for each in waits} == {0, 1}
    assert {each[7] for each in waits} > {None}
