"""Positions on their way into chunks: whatever comes in one go, every position leaves once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="the stages need requirements/all.lock")

from pipeline.ingest.segments import NEAR, pieces
from pipeline.worker import encode
from pipeline.worker.audience import Audience
from pipeline.worker.encode import Encoder
from state import TimeBucketIndex

TICK, SEGMENT, NOW = 1, 1_000, 1_700_000_000_000
COLUMNS = ("kind", "topic", "ledger_id", "entry_id", "due_ms")
Place = tuple[str, int, int]


def batch(*topics: str, first: int = 0) -> pa.RecordBatch:
    """Near positions, one for each topic told, with entries from `first` on, a second apart."""
    entries = np.arange(first, first + len(topics))
    columns = [pa.repeat(NEAR, len(topics)), pa.array(topics, pa.string()), np.zeros(len(topics), np.int64), entries]
    return pa.RecordBatch.from_arrays([*map(pa.array, columns), pa.array(NOW + entries * 1_000)], names=COLUMNS)


def encoded(topics: Sequence[str], *batches: pa.RecordBatch) -> list[pa.RecordBatch]:
    """What leaves the encoder."""
    audience = Audience((0,), (("s", 1, TICK),))
    return list(Encoder({(NEAR, topic): audience for topic in topics}, SEGMENT, NOW)(iter(batches)))


def places(rows: Iterator[pa.RecordBatch] | Sequence[pa.RecordBatch | pa.Table]) -> list[Place]:
    """Topic, ledger and entry of all positions in rows, sorted."""
    found: list[Place] = []
    for row in (row for each in rows for row in each.select(["topic", "chunk"]).to_pylist()):
        index = TimeBucketIndex(TICK)
        index.append_chunk(row["chunk"])
        due = index.pop_due(NOW * 2)
        found += [(row["topic"], *pair) for pair in zip(due.ledger_ids.tolist(), due.entry_ids.tolist(), strict=True)]
    return sorted(found)


def test_a_row_group_in_which_nothing_was_found_is_passed_over() -> None:
    """Its statistics promise what its rows do not keep: two due times, and what is asked for lies between them."""
    assert encoded("t", batch()) == []
    assert places(encoded("t", batch(), batch("t"), batch())) == [("t", 0, 0)]


@pytest.mark.parametrize("limit", ["_FLUSH_ROWS", "_FLUSH_BYTES"])
def test_what_is_too_much_at_once_leaves_in_several_goes(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By number, or by bytes: a topic may have any name."""
    batches = [batch("t", "u", "t", first=number * 3) for number in range(3)]
    wanted = sorted(("tut"[entry % 3], 0, entry) for entry in range(9))
    assert places(encoded("tu", *batches)) == wanted
    assert len(encoded("tu", *batches)) == 1
    monkeypatch.setattr(encode, limit, 4)
    assert places(encoded("tu", *batches)) == wanted
    assert len(encoded("tu", *batches)) == (2 if limit == "_FLUSH_ROWS" else 3)


def test_rows_leave_together() -> None:
    """A batch of one row takes kilobytes: with a position for each of very many topics that would be gigabytes."""
    topics = [f"t{number}" for number in range(2_500)]
    rows = encoded(topics, batch(*topics))
    assert [each.num_rows for each in rows] == [1_000, 1_000, 500]
    assert places(rows) == sorted((topic, 0, entry) for entry, topic in enumerate(topics))


def test_pieces_hold_every_row() -> None:
    """Cut anywhere: rows of one batch stay in one piece, and nothing at all is a piece as well."""
    topics = [f"t{number}" for number in range(2_500)]
    rows = encoded(topics, batch(*topics))
    cut = list(pieces(rows, 1))
    assert [each.num_rows for each in cut] == [1_000, 1_000, 500, 0]
    assert places(cut) == places(rows) == places(list(pieces(rows, 1 << 30)))
    assert [each.num_rows for each in pieces([], 1)] == [0]
