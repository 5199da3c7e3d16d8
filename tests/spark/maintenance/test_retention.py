"""Rows that go while others come: what Delta's own DELETE gives way to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from delta.tables import DeltaTable
from deltalake import DeltaTable as RustTable
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

from pipeline.delta.warehouse import Warehouse
from pipeline.delta.writing.appender import Appender
from pipeline.maintenance import retention, rewrite
from pipeline.maintenance.readers import Unread
from pipeline.maintenance.retention import InTheWay, delete
from pipeline.maintenance.rewrite import Expired
from schemas import MESSAGES
from tests.support.client import new_warehouse
from tests.support.rows import T0, messages

OLD = Expired(MESSAGES, "(ledger_id = 0 OR ledger_id = 1 AND entry_id < 2)")


@pytest.fixture
def warehouse(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Warehouse:
    """Three files of a ledger with five messages each; no stage has anything to read."""
    made = Warehouse(str(tmp_path / "warehouse"), spark)
    new_warehouse(made.root)
    for ledger in range(3):
        _append(made, ledger)
    monkeypatch.setattr(retention, "unread", lambda *_: Unread())
    return made


def _append(warehouse: Warehouse, ledger: int) -> None:
    rows = messages(warehouse.spark, *({"ledger_id": ledger, "entry_id": entry, "due_time": T0} for entry in range(5)))
    appender = Appender(warehouse.session, warehouse.path(MESSAGES), MESSAGES)
    appender.commit(appender.put(rows.toArrow()), "")


def _held(warehouse: Warehouse) -> list[tuple[int, int]]:
    table = RustTable(warehouse.path(MESSAGES)).to_pyarrow_table(columns=["ledger_id", "entry_id"])
    return sorted((row["ledger_id"], row["entry_id"]) for row in table.to_pylist())


def _meanwhile(monkeypatch: pytest.MonkeyPatch, act: Any) -> None:  # noqa: ANN401 - any function
    """Something happens between the look at a table and the commit."""
    write = Appender.write

    def slowly(appender: Appender, *words: Any) -> Any:  # noqa: ANN401 - whatever it takes and gives
        found = write(appender, *words)
        act()
        return found

    monkeypatch.setattr(Appender, "write", slowly)


def test_rows_go_while_others_come(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under load there is an append with every second; tables would grow for ever."""
    _meanwhile(monkeypatch, lambda: _append(warehouse, 7))
    assert delete(warehouse, OLD) == 7
    left = [(1, 2), (1, 3), (1, 4), *((ledger, entry) for ledger in (2, 7) for entry in range(5))]
    assert _held(warehouse) == left
    assert warehouse.spark.read.format("delta").load(warehouse.path(MESSAGES)).count() == len(left)
    monkeypatch.undo()
    monkeypatch.setattr(retention, "unread", lambda *_: Unread())
    assert delete(warehouse, OLD) == 0


def test_who_follows_the_table_hears_nothing_of_it(warehouse: Warehouse) -> None:
    """What is written again is not new."""
    delete(warehouse, OLD)
    rows = warehouse.follow(MESSAGES, 0, 100)
    query = rows.writeStream.format("memory").queryName("followed").start()
    query.processAllAvailable()
    query.stop()
    count = warehouse.spark.table("followed").count()
    warehouse.spark.catalog.dropTempView("followed")
    assert count == 15


def test_rows_that_somebody_else_takes_out_are_nobody_s_twice(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What he left would come back with the file that was written anew before."""
    table = DeltaTable.forPath(warehouse.spark, warehouse.path(MESSAGES))
    _meanwhile(monkeypatch, lambda: table.delete("ledger_id = 1 AND entry_id = 4"))
    with pytest.raises(InTheWay):
        delete(warehouse, OLD)
    assert len(_held(warehouse)) == 14


def test_what_a_stage_has_yet_to_read_stays(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the condition says."""
    monkeypatch.setattr(retention, "unread", lambda *_: Unread(batches=frozenset({0})))
    assert delete(warehouse, OLD) == 0
    monkeypatch.setattr(retention, "unread", lambda *_: None)
    assert delete(warehouse, OLD) == 0
    assert len(_held(warehouse)) == 15


def test_files_of_one_name_in_different_folders_are_told_apart(warehouse: Warehouse) -> None:
    """Spark names the files of all parts that a task writes alike."""
    rows = messages(
        warehouse.spark, *({"ledger_id": ledger, "entry_id": entry} for ledger in (8, 9) for entry in range(5))
    )
    appender = Appender(warehouse.session, warehouse.path(MESSAGES), MESSAGES)
    parts = appender.write_by(rows.withColumn("part", F.col("ledger_id") - 8).coalesce(1).sort("part"), "part")
    files = [file for each in parts.values() for file in each]
    assert len({Path(file.path).name for file in files}) < len(files)
    appender.commit(files, "")
    assert delete(warehouse, Expired(MESSAGES, "ledger_id = 8")) == 5
    assert [ledger for ledger, _ in _held(warehouse) if ledger > 7] == [9] * 5
    assert delete(warehouse, Expired(MESSAGES, "ledger_id > 7")) == 5


def test_a_log_that_counts_rows_wrong_stops_nothing(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """Delta's own way takes its time, and does not count."""
    monkeypatch.setattr(rewrite, "rows", lambda files: 1 + sum(file.rows for file in files))
    assert delete(warehouse, OLD) == 7
    assert len(_held(warehouse)) == 8
