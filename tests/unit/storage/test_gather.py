"""Files that hold more than may be held: their rows are ordered and written a piece at a time, in bounded memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.config.routes import NotInDriver
from pipeline.config.settings import Settings
from pipeline.ingest.accept_local import INBOX_ROWS, LocalBatch
from pipeline.ingest.core.terms import Terms
from pipeline.storage.gather import TEXTS, Gathered, cuts, first_items
from pipeline.storage.parquet import row_groups
from schemas import INBOX
from state.units import Ms
from tests.support.held import held

MB = 1 << 20
NOW = 1_700_000_000_000
TERMS = Terms(Ms(NOW), 10_000, MB, load_until=NOW + 500, batch_id=7)


def inbox(count: int, size: int) -> pa.Table:
    """Rows whose due times are in no order, with payloads of a size; every tenth is refused."""
    number = np.arange(count)
    columns_of = {
        "topic": pa.repeat("t", count),
        "message_key": pa.array([str(each) for each in number]),
        "deliver_after_ms": pa.array(np.where(number % 10 == 9, -1, number * 7_919 % 1_000)),
        "payload": pa.array([b"%08d" % each * (size // 8) for each in number]),
    }
    columns = [columns_of.get(each.name, pa.nulls(count)).cast(each.type) for each in INBOX_ROWS]
    return pa.Table.from_arrays(columns, schema=INBOX_ROWS)


def gathered(paths: list[Path], most: int) -> Gathered:
    """What is held of files."""
    return Gathered.read(INBOX, ((group, None) for group in row_groups(INBOX, map(str, paths))), most)


@pytest.mark.parametrize("how", [{}, {"use_dictionary": False, "compression": "none"}], ids=["small", "large"])
def test_far_more_than_may_be_held_is_taken_in_a_piece_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: dict[str, object]
) -> None:
    """A producer's file of 64 MB in one row group: no more than a few pieces of 2 MB stay in memory at any time."""
    monkeypatch.setattr("pipeline.storage.gather._PIECE_BYTES", 2 * MB)
    count, path = 256, tmp_path / "file.parquet"
    pq.write_table(inbox(count, MB // 4), path, **how)
    pool = pa.default_memory_pool()
    pool.release_unused()
    before, keys = pool.bytes_allocated(), list[str]()
    batch = LocalBatch.of(gathered([path], 8 * MB), replace(TERMS, load_until=NOW + 1_000_000))
    for piece in batch.messages(Settings()):
        assert held(before, 16 * MB) <= 16 * MB
        keys += piece.column("message_key").to_pylist()
    assert sorted(map(int, keys)) == [each for each in range(count) if each % 10 != 9]
    refused = list(batch.rejected(inbox(0, 0).append_column("reason", pa.array([], pa.string()))))
    assert sum(piece.num_rows for piece in refused) == batch.counts.rejected == count // 10


@pytest.mark.parametrize("rows", [1, 40, 300])
def test_rows_are_the_same_whether_their_texts_are_held_or_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    """Positions, order and everything that a message has; only where one file ends and the next begins may differ."""
    paths = [tmp_path / f"{number}.parquet" for number in range(3)]
    for path in paths:
        pq.write_table(inbox(rows, 800), path, row_group_size=100)

    def written(most: int, piece: int) -> pa.Table:
        monkeypatch.setattr("pipeline.storage.gather._PIECE_BYTES", piece)
        batch = LocalBatch.of(gathered(paths, most), replace(TERMS, first_ledger=5, entries=77))
        assert (batch.texts.held is None) is (most < 3 * rows * 800)
        return pa.concat_tables(batch.messages(Settings()))

    once = written(1 << 30, 1 << 30)
    again = written(3 * rows * 200, 10_000)
    assert again.combine_chunks() == once.combine_chunks()


def test_texts_come_in_the_order_in_which_they_are_asked_for(tmp_path: Path) -> None:
    """A message goes to many subscriptions, so a row may be named more than once."""
    path = tmp_path / "file.parquet"
    rows = inbox(50, 80)
    pq.write_table(rows, path, row_group_size=20)
    wanted = np.array([44, 3, 3, 21, 0, 44])
    for most in (1 << 20, 5_000):
        texts = gathered([path], most).texts
        assert texts.take(wanted).combine_chunks() == rows.take(pa.array(wanted)).select(TEXTS).combine_chunks()


def test_small_columns_that_are_too_large_are_left_to_spark(tmp_path: Path) -> None:
    """A producer whose topics are books: nothing else could hold them."""
    path = tmp_path / "file.parquet"
    rows = inbox(100, 8)
    topics = pa.array([f"{number:05}" * 1_000 for number in range(100)])
    pq.write_table(rows.set_column(0, "topic", topics), path)
    with pytest.raises(NotInDriver):
        gathered([path], 100_000)


def test_pieces_have_so_many_rows_or_bytes_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is larger by itself is a piece by itself."""
    monkeypatch.setattr("pipeline.storage.gather._PIECE_BYTES", 10)
    assert list(cuts(np.array([4, 6, 1, 20, 5, 5, 0, 0]), 3)) == [(0, 2), (2, 3), (3, 4), (4, 7), (7, 8)]
    assert list(cuts(np.array([], np.int64), 3)) == []


def test_files_with_some_of_the_columns_in_any_order_are_read_too(tmp_path: Path) -> None:
    """Who appends by Spark writes what his frame has; what is missing is NULL, as everywhere in Delta."""
    rows, paths = inbox(20, 80), [tmp_path / "all.parquet", tmp_path / "some.parquet"]
    pq.write_table(rows, paths[0])
    pq.write_table(rows.select(["payload", "deliver_after_ms", "topic"]), paths[1])
    found = gathered(paths, MB)
    assert found.rows.column("deliver_after_ms").to_pylist() == 2 * rows.column("deliver_after_ms").to_pylist()
    assert found.rows.column("publish_time").null_count == 40
    texts = found.texts.take(np.arange(40))
    assert texts.column("payload").to_pylist() == 2 * rows.column("payload").to_pylist()
    assert texts.column("message_key").to_pylist() == rows.column("message_key").to_pylist() + 20 * [None]


def test_some_rows_are_taken_of_a_file_whose_writer_reads_texts_as_views(tmp_path: Path) -> None:
    """delta-rs writes such files for a DELETE: each batch that met one was left to Spark."""
    rows, path = inbox(20, 80), tmp_path / "views.parquet"
    views = {"topic": pa.string_view(), "message_key": pa.string_view(), "payload": pa.binary_view()}
    pq.write_table(rows.cast(pa.schema([(each.name, views.get(each.name, each.type)) for each in rows.schema])), path)
    wanted = np.array([3, 7])
    found = Gathered.read(INBOX, ((group, wanted) for group in row_groups(INBOX, [str(path)])), MB)
    assert found.texts.take(np.arange(2)).combine_chunks() == rows.take(pa.array(wanted)).select(TEXTS).combine_chunks()


ITEM = st.tuples(st.sampled_from(["zone", "other", ""]), st.sampled_from([None, "x", "é", ""]))


@given(st.lists(st.none() | st.lists(ITEM, max_size=3), max_size=8), st.data())
def test_the_first_item_of_a_name_is_found_in_any_part_of_a_column(
    maps: list[list[tuple[str, str | None]] | None], data: st.DataObject
) -> None:
    """Of maps that are NULL or empty, that have the name twice, or NULL under it; NULL may hide items."""
    first = data.draw(st.integers(0, len(maps)))
    end = data.draw(st.integers(first, len(maps)))
    whole = pa.array([each or [] for each in maps], pa.map_(pa.string(), pa.string()))
    none = pa.array([each is None or data.draw(st.booleans()) for each in maps], pa.bool_())
    column = pa.MapArray.from_arrays(whole.offsets, whole.keys, whole.items, mask=none).slice(first, end - first)
    shown = [() if gone else each or () for gone, each in zip(none.to_pylist(), maps, strict=True)]
    named = [[item for name, item in each if name == "zone"] for each in shown[first:end]]
    found = [each[0].encode() if each and each[0] is not None else None for each in named]
    assert first_items(column, "zone").to_pylist() == found
