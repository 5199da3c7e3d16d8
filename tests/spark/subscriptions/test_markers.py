"""What ingest remembers is read back from the tables at a start, the same wherever they lie."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from pipeline.client.create import create_all
from pipeline.delta.deltars import append
from pipeline.delta.reading.messages import MessageLog
from pipeline.delta.warehouse import Warehouse
from pipeline.storage.files import Files
from pipeline.subscriptions.incarnations import Joined, alive
from pipeline.subscriptions.markers import IngestMemory, Marker, Markers, marker_rows
from schemas import MESSAGES, SEGMENTS
from tests.support.rows import T0, messages

SEGMENT_MS = 60_000
FIRST = T0 // SEGMENT_MS


@pytest.mark.parametrize("here", [True, False], ids=["in the driver", "by Spark"])
def test_the_segments_in_which_messages_wait(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, here: bool
) -> None:
    """One for each with a parked message, however many; what was not parked, or was loaded, is in the state already."""
    warehouse = Warehouse(str(tmp_path / "warehouse"), spark)
    create_all(warehouse.root)
    due_messages = [
        (0, 1, True), (3, 0, True), (3, SEGMENT_MS - 1, True), (4, 0, False), (3, 5, False), (90_000, 9, True),
        (1, 2, True),
    ]  # fmt: skip
    waits = [
        {"entry_id": number, "ledger_id": 7, "parked": parked, "due_time": (FIRST + segment) * SEGMENT_MS + late}
        for number, (segment, late, parked) in enumerate(due_messages)
    ]
    for part in (waits[::2], waits[1::2]):
        messages(spark, *part).write.format("delta").mode("append").save(warehouse.path(MESSAGES))
    marker = marker_rows(Marker(1, (FIRST + 1) * SEGMENT_MS, 3, {}, {}))
    append(warehouse.root, SEGMENTS, marker.append_column("batch_id", pa.array([0])))
    if not here:
        monkeypatch.setattr(MessageLog, "readable_paths", lambda *_: None)
    found = IngestMemory.of_tables(warehouse, MessageLog(warehouse), SEGMENT_MS)
    assert found.parked == {FIRST + 1, FIRST + 3, FIRST + 90_000}
    assert (found.loaded, found.next_ledger) == ((FIRST + 1) * SEGMENT_MS, 8)


@pytest.mark.parametrize("here", [True, False], ids=["in the driver", "by Spark"])
def test_markers_tell_the_same_whoever_reads_them(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, here: bool
) -> None:
    """The last instant and ledger, and the last life of each: now, up to a marker, and at an older version."""
    warehouse = Warehouse(str(tmp_path / "warehouse"), spark)
    create_all(warehouse.root)
    a, b = ("t", "a"), ("t", "b")
    markers = [
        Marker(1, T0 + 1, 3, {a: Joined(0, 1), b: Joined(2, 64)}, {}),
        Marker(2, T0 + 7, 5, {}, {a: 1, b: 1}),
        Marker(3, T0 + 7, 9, {a: Joined(5, 4)}, {a: 1}),
    ]
    for each in markers:
        append(warehouse.root, SEGMENTS, marker_rows(each).append_column("batch_id", _zeros(marker_rows(each))))
    monkeypatch.setattr(*((Warehouse, "read", None) if here else (Files, "local", lambda *_: None)))
    now, before = Markers(warehouse), Markers(warehouse, 1)
    assert (now.top(), before.top()) == ((3, T0 + 7, 9), (1, T0 + 1, 3))
    assert {name: (life.number, life.since) for name, life in alive(now.lives()).items()} == {a: (2, 5)}
    assert alive(now.lives(2)) == {}
    assert alive(now.lives(1)) == alive(before.lives())
    assert {name: life.tick_ms for name, life in before.lives().items()} == {a: 1, b: 64}


def test_a_warehouse_without_markers_says_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """As a new one is."""
    warehouse = Warehouse(str(tmp_path / "warehouse"), spark)
    create_all(warehouse.root)
    assert IngestMemory.addressed(Markers(warehouse)) == IngestMemory()


def _zeros(rows: pa.Table) -> pa.Array:
    return pa.array([0] * rows.num_rows)
