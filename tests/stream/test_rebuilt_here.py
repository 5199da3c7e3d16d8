"""What a rebuild puts into the index is the same by whole arrays as by Spark."""

from __future__ import annotations

from pathlib import Path
from shutil import copytree
from typing import Any

import pyarrow.compute as pc
from hypothesis import Phase, given, settings
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
from tests.support.drawnscripts import POLICIES, Script, scripts
from tests.support.playedscripts import Played, Way, begun


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


def rebuilt_both_ways(root: str, spark: SparkSession) -> list[tuple[Any, ...]]:
    """What a rebuild puts into the index of a warehouse: the same here and by Spark."""
    copytree(root, f"{root}.spark")
    for each, session in ((root, None), (f"{root}.spark", spark)):
        rebuild(Warehouse(each, session), SCHEDULE, Options(LiveClock()))
    waits = indexed(root)
    assert waits == indexed(f"{root}.spark")
    return waits


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
    waits = rebuilt_both_ways(world.root, spark)
    assert {each[6] for each in waits} == {0, 1}
    assert {each[7] for each in waits} > {None}


def test_both_put_the_same_into_the_index_of_any_world(spark: SparkSession) -> None:
    """With all kinds of policies, commands, lives and deaths."""

    @settings(max_examples=2, phases=[Phase.explicit, Phase.generate], derandomize=True)
    @given(scripts(POLICIES, deaths=True))
    def search(script: Script) -> None:
        with begun(script, lambda root: Way(Played(root), dies=True)) as (way,):
            for act in script.acts:
                way.act(script, act)
            rebuilt_both_ways(way.root, spark)

    search()
