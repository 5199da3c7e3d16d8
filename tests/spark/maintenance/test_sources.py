"""How far a source has read is known, however long it is quiet, and does not hold the log of `inbox`."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.config.settings import SECOND_MS
from pipeline.config.wallclock import wall_ms
from pipeline.delta.logs.entries import newest
from pipeline.delta.logs.logstore import TableLog
from pipeline.delta.warehouse import Warehouse
from pipeline.delta.writing.oncewriter import Sink
from pipeline.maintenance import cutlogs
from pipeline.storage.files import Files
from schemas import INBOX
from tests.support.client import new_warehouse

SOURCE = "source-orders"


def test_the_note_of_a_quiet_source_is_repeated_and_the_log_before_it_goes(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other producers append meanwhile; the source that goes on is not taken for another one."""
    warehouse = Warehouse(str(tmp_path), spark)
    new_warehouse(warehouse.root)
    monkeypatch.setattr(cutlogs, "unread_from", lambda *_: newest(Files(), warehouse.path(INBOX)))
    runs = Sink(warehouse, INBOX, SOURCE)
    noted = runs.commit([], "owner", 3, {"read": {"t": {"0": 7}}})
    for _ in range(3):
        Sink(warehouse, INBOX, "replay").commit([], "other", 1, {})
        TableLog(spark, warehouse.path(INBOX)).checkpoint()
    cut(warehouse)
    TableLog(spark, warehouse.path(INBOX)).checkpoint()
    assert cut(warehouse) > noted
    found = Sink(warehouse, INBOX, SOURCE).last
    assert found is not None
    assert (found.owner, found.batch, found.note) == ("owner", 3, {"read": {"t": {"0": 7}}})
    runs.commit([], "owner", 4, {"read": {"t": {"0": 8}}})


def cut(warehouse: Warehouse) -> int:
    """Cut all that may be cut; give the version with which the log begins then."""
    cutlogs.cut_log(warehouse, INBOX, wall_ms() + SECOND_MS)
    return min(int(each.stem) for each in Path(warehouse.path(INBOX), "_delta_log").glob("*.json"))
