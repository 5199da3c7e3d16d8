"""A table to which two stages write: the log is cut though one of them is silent, and its last note stays."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from pipeline.config.settings import SECOND_MS
from pipeline.config.stages import INGEST, SETTLE
from pipeline.config.wallclock import wall_ms
from pipeline.delta.logs.logstore import TableLog
from pipeline.delta.warehouse import Warehouse
from pipeline.delta.writing.oncewriter import Sink, last_commit
from pipeline.maintenance.cutlogs import cut_log
from pipeline.storage.arrays import arrow_schema
from pipeline.subscriptions.markers import PresentIncarnations
from schemas import SEGMENTS
from tests.support.client import new_warehouse

NOTHING = pa.Table.from_pylist([], schema=arrow_schema(SEGMENTS.schema))


def test_settle_alone_does_not_keep_the_log_of_segments(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Producers may be quiet for hours while consumers put back; ingest goes on from its note when they come again."""
    warehouse = Warehouse(str(tmp_path / "warehouse"), spark)
    new_warehouse(warehouse.root)
    ingest, settle = (Sink(warehouse, SEGMENTS, stage) for stage in (INGEST, SETTLE))
    ingest.append(NOTHING, "i", 4, {"registry": 0, "next_ledger": 9})
    present = PresentIncarnations(warehouse)
    assert present.marker(3) == 0
    log = TableLog(spark, warehouse.path(SEGMENTS))
    monkeypatch.setattr("pipeline.maintenance.cutlogs.unread_from", lambda *_: 99)
    first, batch = [], 0
    for _ in range(3):
        for _ in range(4):
            batch += 1
            settle.append(NOTHING, "s", batch, {})
        log.checkpoint()
        cut_log(warehouse, SEGMENTS, wall_ms() + SECOND_MS)
        names = Path(warehouse.path(SEGMENTS), "_delta_log").glob("*.json")
        first.append(min(int(each.stem) for each in names))
    assert first == [0, 5, 10], "the log is as long as before"
    kept = last_commit(warehouse, SEGMENTS, INGEST)
    assert kept is not None
    assert (kept.owner, kept.batch, kept.note["next_ledger"]) == ("i", 4, 9)
    # The note that was repeated is no other process's.
    ingest.append(NOTHING, "i", 5, {"registry": 3, "next_ledger": 9})
    assert present.marker(3) == 0
    assert present._settled == (3, 0)
