"""Warehouses from before there was acknowledgement go on, and learn to take back what failed."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from shutil import copytree

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from pipeline.config.stages import SCHEDULE
from pipeline.delta.tables import bring_up_to_date
from pipeline.delta.warehouse import Warehouse
from schemas import SEGMENTS, TABLES
from tests.support.older import NEW_COLUMNS, age, columns
from tests.support.retries import Again, again, put_back
from tests.support.stream import (
    Step,
    World,
    advance,
    append,
    check,
    delivered,
    empty_warehouse,
    message,
    play,
    restart,
    stop,
    subscribe,
)

T0 = 1_700_000_000_000
MINUTE, HOUR = 60_000, 3_600_000


def aged(world: World) -> None:
    """The warehouse is an old one."""
    age(world.warehouse.spark, world.warehouse.root)


def rebuilt(world: World) -> None:
    """The schedule loses its state before the warehouse was started anew."""
    world.lose(SCHEDULE)
    aged(world)
    world.rebuild(SCHEDULE)


@pytest.mark.parametrize(
    "how",
    [pytest.param([check(aged)], id="restarted"), pytest.param([check(rebuilt)], id="rebuilt", marks=pytest.mark.soak)],
)
def test_what_waits_in_an_old_warehouse_comes_once_and_can_come_again(
    spark: SparkSession, folder: str, how: list[Step]
) -> None:
    """Near and parked messages wait in state and log; then a start finds tables and columns missing."""

    def complete(world: World) -> None:
        assert columns(world.warehouse.root) == SEGMENTS.schema.names
        for table in TABLES:
            assert DeltaTable(world.warehouse.path(table)).version() >= 0
        log = Path(world.warehouse.path(SEGMENTS), "_delta_log")
        newest = DeltaTable(world.warehouse.path(SEGMENTS)).version()
        # Delta would read the whole log back for each look without them.
        assert json.loads((log / f"{newest:020d}.crc").read_text())["metadata"]["schemaString"].count("cause") == 1

    due = T0 + 2 * HOUR
    play(
        spark,
        folder,
        [
            subscribe("t", "s"),
            append(message("now"), message("near", after=HOUR), message("parked", after=5 * HOUR)),
            advance(T0),
            append(message("soon", after=2 * MINUTE)),
            advance(T0 + MINUTE),
            stop(),
            *how,
            restart(),
            append(message("new")),
            advance(T0 + HOUR),
            delivered("now", "soon", "near", "new"),
            check(complete),
            put_back(Again("near", due), Again("now", due)),
            restart(),
            advance(due),
            advance(T0 + 6 * HOUR),
            delivered("now", "soon", "near", "new", "now", "near", "parked"),
            check(lambda world: _came(world, due)),
        ],
    )


def _came(world: World, due: int) -> None:
    assert again(world) == [("s", name, 1, "nack", due) for name in ("near", "now")]


def test_two_processes_that_start_together_bring_a_warehouse_up_to_date_once(spark: SparkSession, folder: str) -> None:
    """Each stage may be a process of its own. Whoever comes second finds it done, and so does each later start."""
    copytree(empty_warehouse(300_000), folder)
    age(spark, folder)
    with ThreadPoolExecutor(2) as both:
        for each in [both.submit(bring_up_to_date, Warehouse(folder, spark)) for _ in range(2)]:
            each.result()
    bring_up_to_date(Warehouse(folder, spark))
    for table, _ in NEW_COLUMNS:
        assert columns(folder, table) == table.schema.names
    versions = {table.name: DeltaTable(f"{folder}/{table.name}").version() for table in TABLES}
    assert versions == dict.fromkeys(versions, 0) | {table.name: 1 for table, _ in NEW_COLUMNS}


def test_a_folder_that_is_no_warehouse_stays_as_it_is(spark: SparkSession, folder: str) -> None:
    """A name that was mistyped makes no tables; who wants some says so."""
    bring_up_to_date(Warehouse(folder, spark))
    assert not Path(folder).exists()
