"""Maintenance at its sharpest: whatever is not needed goes at once."""

from __future__ import annotations

import json
from pathlib import Path
from unittest.mock import patch
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from pipeline.config.options import Observer, nobody
from pipeline.config.settings import SECOND_MS, Upkeep
from pipeline.config.wallclock import wall_ms
from pipeline.delta.deltars import path_of
from pipeline.delta.warehouse import Warehouse
from pipeline.maintenance.rounds import Done, maintain
from schemas import DELIVERIES, INBOX, MESSAGES, REDELIVERY, SEGMENTS, Table

GROWING = (INBOX, MESSAGES, SEGMENTS, REDELIVERY, DELIVERIES)
"""The tables that grow with the messages."""


def shorten_logs(root: str) -> None:
    """Give logs a checkpoint every other commit, or none could be cut within a test. The tables are empty still."""
    for table in GROWING:
        DeltaTable(path_of(root, table)).alter.set_table_properties({"delta.checkpointInterval": "2"})


def sharply(spark: SparkSession, warehouse: Warehouse, retain_ms: int, observe: Observer = nobody) -> dict[str, Done]:
    """One round; what it did, by table. Nobody writes or reads meanwhile, so nothing has to wait for anybody.

    Args:
        spark: the session.
        warehouse: whose tables.
        retain_ms: no less than from one instant to the next, or what became due in between is not settled yet.
        observe: told of each table.
    """
    upkeep = Upkeep(retain_ms=retain_ms, retain_log_ms=0, quiet_ms=0, log_ms=0, files_ms=0)
    found = {}
    # File times have whole seconds on some systems.
    with patch("pipeline.maintenance.rounds.vacuum", vacuum_at_once):
        for done in maintain(spark, warehouse, upkeep, wall_ms() + SECOND_MS):
            observe(f"maintained.{done.table}", done.rows)
            found[done.table] = done
    return found


def vacuum_at_once(spark: SparkSession, warehouse: Warehouse, table: Table, slack_ms: int) -> None:  # noqa: ARG001
    """The rule of `trim.vacuum` to the second: Delta's own knows whole hours only, which no test has.

    Files go that are neither live nor named as removed by an entry behind the first one of the log.
    """
    folder = Path(warehouse.path(table))
    first, *later = sorted(folder.glob("_delta_log/*.json"))
    actions = [json.loads(line) for entry in later for line in entry.read_text().splitlines()]
    kept = {unquote(each["remove"]["path"]) for each in actions if "remove" in each}
    kept |= {unquote(path) for path in pa.table(DeltaTable(folder).get_add_actions())["path"].to_pylist()}
    for file in data_files(folder):
        if str(file.relative_to(folder)) not in kept and file.stat().st_mtime <= first.stat().st_mtime:
            file.unlink()


def data_files(folder: Path) -> list[Path]:
    """The data files in a table's folder, whether they belong to it or not."""
    return [file for file in folder.rglob("*.parquet") if "_delta_log" not in file.parts]


def sizes(root: str) -> dict[str, tuple[int, int]]:
    """How many data files and how many log entries lie on the disk, by table."""
    folders = {table.name: Path(path_of(root, table)) for table in GROWING}
    return {
        name: (len(data_files(folder)), len(list(folder.glob("_delta_log/*.json")))) for name, folder in folders.items()
    }
