"""What ingest remembers is read back from the tables at a start, the same wherever they lie."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from pipeline.client.create import create_all
from pipeline.delta.deltars import append
from pipeline.delta.messagelog import MessageLog
from pipeline.delta.warehouse import Warehouse
from pipeline.subscriptions.markers import IngestMemory, Marker, marker_rows
from schemas import MESSAGES, SEGMENTS
from tests.support.rows import T0, messages

SEGMENT_MS = 60_000
FIRST = T0 // SEGMENT_MS


@pytest.mark.parametrize("here", [True, False], ids=["in the driver", "by Spark"])
def test_the_segments_in_which_messages_wait(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, here: bool
) -> None:
    """One for each with a parked message, however many; what was not parked, or was loaded, is in the state already."""
    warehouse = Warehouse(str(tmp_path / "warehouse"))
    create_all(warehouse.root)
    told = [
        (0, 1, True), (3, 0, True), (3, SEGMENT_MS - 1, True), (4, 0, False), (3, 5, False), (90_000, 9, True),
        (1, 2, True),
    ]  # fmt: skip
    waits = [
        {"entry_id": number, "ledger_id": 7, "parked": parked, "due_time": (FIRST + segment) * SEGMENT_MS + late}
        for number, (segment, late, parked) in enumerate(told)
    ]
    for part in (waits[::2], waits[1::2]):
        messages(spark, *part).write.format("delta").mode("append").save(warehouse.path(MESSAGES))
    marker = marker_rows(Marker(1, (FIRST + 1) * SEGMENT_MS, 3, {}, frozenset()))
    append(warehouse.root, SEGMENTS, marker.append_column("batch_id", pa.array([0])))
    if not here:
        monkeypatch.setattr(MessageLog, "local_paths", lambda *_: None)
    markers, log = warehouse.read(spark, SEGMENTS), MessageLog(spark, warehouse)
    found = IngestMemory.of_tables(markers, warehouse.read(spark, MESSAGES), log, SEGMENT_MS)
    assert found.parked == {FIRST + 1, FIRST + 3, FIRST + 90_000}
    assert (found.loaded, found.next_ledger) == ((FIRST + 1) * SEGMENT_MS, 8)
