"""Deliveries from before the beginning of the log, and logs that are not what they should be."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake

from pipeline.client.insight.pending import pending
from pipeline.client.tables.deliveries import Deliveries
from pipeline.config.errors import BrokenVersion, VersionGone
from pipeline.delta.deltars import open_table, path_of, rows_of
from schemas import DELIVERIES, INBOX, SUBSCRIPTIONS, Table
from tests.support.client import at, delivery_row, message_row, new_warehouse, put


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A new warehouse."""
    new_warehouse(str(tmp_path))
    return str(tmp_path)


def cut(root: str, first: int) -> None:
    """Cut the log of `deliveries` as maintenance does, up to a version that gets a checkpoint."""
    folder = path_of(root, DELIVERIES)
    DeltaTable(folder, version=first).create_checkpoint()
    for entry in Path(folder, "_delta_log").glob("*.json"):
        if int(entry.stem) < first:
            entry.unlink()


def test_what_was_delivered_before_the_beginning_of_the_log_is_read_from_the_table(root: str) -> None:
    """It printed what the log still had, nothing of the rest, and ended as if that were all."""
    due = [5, 3, 9, 1, 7]
    for number, second in enumerate(due):
        row = message_row(1, number, second * 1_000, topic="t" if number != 1 else "u")
        put(root, DELIVERIES, {**delivery_row(row, 1), "batch_id": number})
    cut(root, 4)
    reader = Deliveries(root)
    found = list(reader.take())
    assert [each.position[1] for each in found] == [3, 1, 0, 2, 4]
    assert [each.order for each in found] == [(4, 1), (4, 2), (4, 3), (4, 4), (5, 1)]
    assert [(each.visible_at is None, each.late_s is None) for each in found] == [(True, True)] * 4 + [(False, False)]
    put(root, DELIVERIES, delivery_row(message_row(1, 9, 9_000), 1))
    assert [each.position[1] for each in reader.take()] == [9]
    assert [each.position[1] for each in Deliveries(root).take(topic="t")] == [3, 0, 2, 4, 9]
    assert list(Deliveries(root, earliest=False).take()) == []


def test_older_deliveries_come_in_order_however_they_lie_in_files(root: str) -> None:
    """Merging puts rows of many commits into a file; what is due together comes by release, batch and sequence."""
    rows = []
    for number in range(3_000):
        row = delivery_row(message_row(1, number, (number * 7_919 % 50) * 1_000), number * 31 % 3_000)
        rows.append({**row, "batch_id": number % 3, "released_at": at(60_000 + number % 5)})
    folder = Path(path_of(root, DELIVERIES))
    for place in range(3):
        write_deltalake(folder, rows_of(DELIVERIES, rows[place::3]), mode="append")
    for name in [each.name for each in folder.glob("*.parquet")]:
        pq.write_table(pq.read_table(folder / name), folder / name, row_group_size=37)
    cut(root, 3)
    found = [each.position[1] for each in Deliveries(root).take()]
    keys = ("due_time", "released_at", "batch_id", "sequence")
    wanted = sorted(rows, key=lambda row: tuple(row[name] for name in keys))
    assert found == [row["entry_id"] for row in wanted]


def test_older_deliveries_of_which_one_instant_has_very_many_are_held_a_few_at_a_time(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that was due at nine o'clock may be more than memory has."""
    rows = [delivery_row(message_row(1, number, 9_000), number + 1) for number in range(2_000)]
    folder = Path(path_of(root, DELIVERIES))
    put(root, DELIVERIES, *rows)
    (file,) = folder.glob("*.parquet")
    pq.write_table(pq.read_table(file), file, row_group_size=100)
    cut(root, 1)
    read: Callable[..., Iterator[pa.RecordBatch]] = pq.ParquetFile.iter_batches
    most, taken = list[int](), list[int]()

    def counted(self: pq.ParquetFile, *args: Any, **more: Any) -> Iterator[pa.RecordBatch]:  # noqa: ANN401 - whatever it takes
        most.append(100 * (len(most) + 1) - len(taken))
        return read(self, *args, **more)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", counted)
    for each in Deliveries(root).take():
        taken.append(each.position[1])
    assert taken == list(range(2_000))
    assert len(most) >= 20
    assert max(most) <= 300


def test_a_version_whose_number_was_cut_before_it_came_is_nobody_s(root: str) -> None:
    """Who commits for longer than logs are kept lands below their beginning: that is neither a beginning nor news."""
    for number in range(4):
        put(root, DELIVERIES, delivery_row(message_row(1, number, number * 1_000), 1))
    reader = Deliveries(root, begin=3)
    log = Path(path_of(root, DELIVERIES), "_delta_log")
    late = (log / f"{3:020d}.json").read_text()
    cut(root, 4)
    (log / f"{3:020d}.json").write_text(late.replace("part-", "late-"))
    assert [each.position[1] for each in Deliveries(root).take()] == [0, 1, 2, 3]
    with pytest.raises(VersionGone):
        list(reader.take())


@pytest.mark.parametrize("left", [0, 20, -5])
@pytest.mark.parametrize("table", [DELIVERIES, INBOX, SUBSCRIPTIONS], ids=lambda table: table.name)
def test_a_newest_version_that_was_cut_by_a_power_cut_is_said(root: str, table: Table, left: int) -> None:
    """delta-rs takes an empty one for a version that did nothing: messages would be missing without a word."""
    open_table(root, table).alter.set_table_properties({"delta.checkpointInterval": "50"})
    entry = Path(path_of(root, table), "_delta_log", f"{1:020d}.json")
    entry.write_bytes(entry.read_bytes()[:left])
    looks: list[Callable[[], object]] = [lambda: open_table(root, table), lambda: pending(root)]
    if table is DELIVERIES:
        looks.append(lambda: Deliveries(root))
    for look in looks:
        with pytest.raises(BrokenVersion) as refused:
            look()
        assert (refused.value.table, refused.value.version, refused.value.entry) == (table.name, 1, str(entry))
    entry.unlink()
    assert open_table(root, table).version() == 0
