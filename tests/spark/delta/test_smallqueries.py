"""Rows of a table that a frame holds when they are few: those that Spark reads, and no further look at the table."""

from __future__ import annotations

from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
from chispa import assert_df_equality
from delta.tables import DeltaTable as SparkTable
from deltalake.exceptions import DeltaError
from pyspark.sql import DataFrame

from pipeline.delta import deltars
from pipeline.delta.warehouse import Warehouse, frame_of
from schemas import REDELIVERY, SEGMENTS, Table
from tests.support.examined import marker, run_row
from tests.support.spark import session
from tests.support.stream import empty_warehouse


def run_rows(*names: str) -> list[dict[str, Any]]:
    """A run of each subscription."""
    return [run_row(name, 0, 3, 1_001 if name == "c" else 1_000) for name in names]


@pytest.fixture
def warehouse(folder: str) -> Warehouse:
    """Runs of three subscriptions, in three versions, and a row that has lists in it."""
    copytree(empty_warehouse(300_000), folder)
    for name in "abc":
        write(folder, REDELIVERY, run_rows(name))
    write(folder, SEGMENTS, [{**marker("a"), "chunk": b"bytes"}, {**marker(), "kind": "retry"}])
    return Warehouse(folder, session())


def write(root: str, table: Table, rows: list[dict[str, Any]]) -> None:
    """Append rows in one commit."""
    deltars.append(root, table, deltars.rows_of(table, rows))


def is_held(rows: DataFrame) -> bool:
    """Whether the frame reads no file."""
    return not rows.inputFiles()


@pytest.mark.parametrize(
    ("table", "version", "where", "count"),
    [
        (REDELIVERY, None, "true", 3),
        (REDELIVERY, 2, "true", 2),
        (REDELIVERY, 0, "true", 0),
        (REDELIVERY, None, "subscription = 'b'", 1),
        (REDELIVERY, None, "due_time >= TIMESTAMP '1970-01-01T00:16:40.001000+00:00'", 1),
        (SEGMENTS, None, "kind = 'retry'", 1),
        (SEGMENTS, None, "kind = 'marker'", 1),
    ],
    ids=str,
)
def test_few_rows_are_held_and_are_those_that_spark_reads(
    warehouse: Warehouse, table: Table, version: int | None, where: str, count: int
) -> None:
    """Of each version, with times, bytes, lists and columns without a value."""
    asked = (warehouse, table, table.schema.names, version, where)
    held, read = frame_of(*asked), frame_of(*asked, most=0)
    assert (is_held(held), is_held(read)) == (True, version == 0)
    assert_df_equality(held, read, ignore_nullable=True, ignore_row_order=True)
    assert held.count() == count


def test_more_rows_than_the_driver_may_hold_are_read_by_spark(warehouse: Warehouse) -> None:
    """The limit counts what was asked for, and not what the table has."""
    asked = (warehouse, REDELIVERY, ("subscription", "last_entry"), None)
    assert not is_held(frame_of(*asked, most=2))
    assert is_held(frame_of(*asked, most=3))
    assert is_held(frame_of(*asked, where="subscription = 'a'", most=1))


def test_a_large_table_is_read_by_spark(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """However few rows are asked for: all of it may have to be read for them."""
    monkeypatch.setattr("pipeline.delta.warehouse._MOST_BYTES", 1_000)
    assert not is_held(frame_of(warehouse, REDELIVERY, ("subscription",), where="subscription = 'a'"))


def test_rows_that_were_taken_out_are_not_held(warehouse: Warehouse) -> None:
    """By a deletion vector, beside the file that still has them."""
    path = warehouse.path(REDELIVERY)
    warehouse.spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    write(warehouse.root, REDELIVERY, run_rows("d", "e"))
    SparkTable.forPath(warehouse.spark, path).delete("subscription = 'd'")
    rows = frame_of(warehouse, REDELIVERY, ("subscription",))
    assert sorted(row["subscription"] for row in rows.collect()) == [*"abce"]


def test_what_delta_rs_refuses_is_read_by_spark(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """A feature of a table that it does not know costs seconds, and no row."""

    def refuse(*_: object, **__: object) -> None:
        raise DeltaError("a feature that it does not know")

    monkeypatch.setattr("pipeline.delta.warehouse.batches_of", refuse)
    rows = frame_of(warehouse, REDELIVERY, ("subscription",))
    assert not is_held(rows)
    assert sorted(row["subscription"] for row in rows.collect()) == [*"abc"]


def test_a_frame_that_holds_its_rows_stays_what_it_was(warehouse: Warehouse) -> None:
    """Whoever writes meanwhile, and whatever becomes of the files."""
    rows = frame_of(warehouse, REDELIVERY, ("subscription",))
    write(warehouse.root, REDELIVERY, run_rows("d"))
    for file in Path(warehouse.path(REDELIVERY)).glob("*.parquet"):
        file.unlink()
    assert sorted(row["subscription"] for row in rows.collect()) == [*"abc"]
