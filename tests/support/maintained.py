"""Maintenance at its sharpest: whatever is not needed goes at once."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import patch
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.fs
from deltalake import DeltaTable

from pipeline.config.options import Observer, nobody
from pipeline.config.settings import SECOND_MS, Upkeep
from pipeline.config.wallclock import wall_ms
from pipeline.delta.deltars import open_table, path_of
from pipeline.delta.logs.entries import actions, log_files
from pipeline.delta.warehouse import Warehouse
from pipeline.dispatch.prepared import PreparedStore
from pipeline.maintenance.rounds import TableMetrics, maintain
from pipeline.storage.files import Files
from schemas import DELIVERIES, INBOX, MESSAGES, REDELIVERY, SEGMENTS, Table

GROWING = (INBOX, MESSAGES, SEGMENTS, REDELIVERY, DELIVERIES)
"""The tables that grow with the messages."""


def shorten_logs(root: str) -> None:
    """Give logs a checkpoint every other commit, or none could be cut within a test. The tables are empty still."""
    for table in GROWING:
        DeltaTable(path_of(root, table)).alter.set_table_properties({"delta.checkpointInterval": "2"})


def sharply(
    warehouse: Warehouse, retain_ms: int, observe: Observer = nobody, deliveries_ms: int | None = None
) -> dict[str, TableMetrics]:
    """One round; what it did, by table. Nobody writes or reads meanwhile, so nothing has to wait for anybody.

    Args:
        warehouse: whose tables.
        retain_ms: no less than from one instant to the next, or what became due in between is not settled yet.
        observe: told of each table.
        deliveries_ms: deliveries, and what tells of them, stay so long; None: they stay.
    """
    upkeep = Upkeep(retain_ms=retain_ms, retain_log_ms=0, quiet_ms=0, log_ms=0, files_ms=0)
    upkeep = replace(upkeep, retain_deliveries_ms=deliveries_ms)
    found = {}
    # File times have whole seconds on some systems.
    with patch("pipeline.maintenance.rounds.vacuum", vacuum_at_once):
        for done in maintain(warehouse, upkeep, wall_ms() + SECOND_MS):
            observe(f"maintained.{done.table}", done.rows)
            found[done.table] = done
    return found


def vacuum_at_once(warehouse: Warehouse, table: Table, slack_ms: int) -> None:  # noqa: ARG001
    """The rule of `trim.vacuum` to the second: Delta's own knows whole hours only, which no test has.

    Files go that are neither live nor named as removed by an entry behind the first one of the log. Prepared ones stay:
    they are minutes old at most when they become visible, and Delta keeps what is younger than hours.
    """
    files, folder = Files().folder(warehouse.path(table)), warehouse.path(table)
    first, *later = versions(folder)
    said = [action for version in later for action in actions(Files(), folder, version)]
    kept = {unquote(each["remove"]["path"]) for each in said if "remove" in each} | live_files(warehouse.root, table)
    kept |= {file.path for each in PreparedStore(Files(), folder).all() for part in each.parts for file in part.files}
    began = files.get_file_info(f"_delta_log/{first:020d}.json").mtime_ns
    for file in data_files(files):
        # A store knows whole seconds: what is as old as the entry may be prepared for a version to come.
        if file.path not in kept and file.mtime_ns < began:
            files.delete_file(file.path)


def versions(folder: str) -> list[int]:
    """The versions of which the log of a table has the entries."""
    return [file.version for file in log_files(Files().names(f"{folder}/_delta_log")) if file.is_entry]


def live_files(root: str, table: Table) -> set[str]:
    """The paths of the files of which a table consists, relative to its folder."""
    return {unquote(path) for path in pa.table(open_table(root, table).get_add_actions())["path"].to_pylist()}


def data_files(files: pa.fs.FileSystem) -> list[pa.fs.FileInfo]:
    """The data files in a table's folder, whether they belong to it or not."""
    found = files.get_file_info(pa.fs.FileSelector("", recursive=True))
    return [each for each in found if each.extension == "parquet" and not each.path.startswith("_delta_log/")]


def sizes(root: str) -> dict[str, tuple[int, int]]:
    """How many data files and how many log entries lie in the folder of each table, by its name."""
    folders = {table.name: path_of(root, table) for table in GROWING}
    return {name: (len(data_files(Files().folder(folder))), len(versions(folder))) for name, folder in folders.items()}
