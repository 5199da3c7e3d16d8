"""Texts of strangers: looked at where arrays enter, and bounded before they unfold."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

from pipeline.config.routes import FileTooLarge
from pipeline.storage import parquet
from pipeline.storage.arrays import arrow_schema, python_rows
from pipeline.storage.parquet import bounded, typed
from pipeline.storage.texts import MAX_NAME_BYTES, cut, not_utf8, with_texts
from schemas import CONSUMER_EVENTS, DELIVERIES, INBOX
from tests.support.strangers import BROKEN, as_texts, table_of

_MAPS = pa.map_(pa.binary(), pa.binary())
texts = st.none() | st.binary(max_size=4) | st.sampled_from(BROKEN)


def is_broken(text: bytes | None) -> bool:
    """Whether Python refuses it."""
    return text is not None and "\ufffd" in text.decode(errors="replace") and "\ufffd".encode() not in text


Map = list[tuple[bytes | None, ...]]
maps_of_texts: st.SearchStrategy[Map | None] = st.none() | st.lists(st.tuples(st.binary(max_size=2), texts), max_size=3)


@given(st.lists(texts, max_size=6), st.lists(maps_of_texts, max_size=4))
def test_what_is_no_text_is_found_and_replaced(plain: list[bytes | None], maps: list[Map | None]) -> None:
    """As Python replaces it, and so does Spark; slices, NULL and maps included."""
    column = as_texts(pa.array(plain, pa.binary()), pa.string())
    held = as_texts(pa.array(maps, _MAPS), pa.map_(pa.string(), pa.string()))
    assert not_utf8(column).to_pylist() == [is_broken(each) for each in plain]
    assert not_utf8(held).to_pylist() == [any(is_broken(t) for pair in each or () for t in pair) for each in maps]
    for start in (0, 1):
        found = with_texts(pa.table({"text": column})).slice(start).column("text").to_pylist()
        assert found == [None if each is None else each.decode(errors="replace") for each in plain][start:]
    assert with_texts(pa.table({"m": held})).column("m").to_pylist() == [
        None if each is None else [tuple(None if t is None else t.decode(errors="replace") for t in p) for p in each]
        for each in maps
    ]


def test_tables_but_the_inbox_are_read_as_texts() -> None:
    """A key that an earlier version took over from `inbox` stops no consumer, no sink and no release."""
    rows = table_of(DELIVERIES, [{"message_key": b"k\xff", "properties": {b"\xff": b"a"}, "ledger_id": 1}])
    (found,) = typed(DELIVERIES, rows, DELIVERIES.columns.names).to_pylist()
    assert (found["message_key"], found["properties"]) == ("k\ufffd", [("\ufffd", "a")])
    sent = table_of(INBOX, [{"topic": b"\xff"}])
    assert not_utf8(typed(INBOX, sent, ["topic"]).column("topic")).to_pylist() == [True]


def test_a_text_is_cut_by_bytes() -> None:
    """A text of 100 MB, written once in a file, is not held once for each row."""
    column = pa.chunked_array([pa.array(["abc", None, "é"])])
    assert cut(column, 3) is column
    assert [each.as_buffer().to_pybytes() for each in cut(column, 1).cast(pa.binary()) if each.is_valid] == [
        b"a",
        b"\xc3",
    ]


def test_times_that_python_has_no_number_for_are_null() -> None:
    """One row of `commands` in the year 300000 stopped the list of all commands."""
    times = pa.array([-(2**63), 0, 2**63 - 1], pa.timestamp("us", "UTC"))
    found = [row["at"] for row in python_rows(pa.table({"at": times}))]
    assert [each is None for each in found] == [True, False, True]


def events(**columns: pa.Array) -> pa.Table:
    """Rows of `consumer_events`."""
    rows = max(len(each) for each in columns.values())
    schema = arrow_schema(CONSUMER_EVENTS.columns)
    return pa.table({f.name: columns.get(f.name, pa.nulls(rows, f.type)) for f in schema}, schema=schema)


@pytest.mark.parametrize("dictionary", [True, False])
def test_a_file_that_unfolds_to_too_much_is_refused_before_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, dictionary: bool
) -> None:
    """Files of some kB came to 30 GB: a long text a million times, or rows of nothing but the same numbers."""
    path = str(tmp_path / "a.parquet")
    long = pa.array(["x" * (MAX_NAME_BYTES + 1)]).take(pa.array(np.zeros(1_000, np.int64)))
    pq.write_table(events(kind=long), path, use_dictionary=dictionary, compression="zstd")
    with pytest.raises(FileTooLarge):
        bounded(CONSUMER_EVENTS, path)
    pq.write_table(events(kind=long.slice(0, 3).cast(pa.binary()).view(pa.string()), slot=pa.array([1, 2, 3])), path)
    with pytest.raises(FileTooLarge):
        bounded(CONSUMER_EVENTS, path)

    monkeypatch.setattr(parquet, "MOST_UNFOLDED", 1 << 20)
    monkeypatch.setattr(parquet, "MOST_ROWS", 1 << 10)
    pq.write_table(events(life=pa.repeat(pa.scalar(1, pa.int64()), 10_000)), path, use_dictionary=dictionary)
    with pytest.raises(FileTooLarge):
        bounded(CONSUMER_EVENTS, path)
    pq.write_table(events(life=pa.repeat(pa.scalar(1, pa.int64()), 1_000)), path, use_dictionary=dictionary)
    assert bounded(CONSUMER_EVENTS, path).num_rows == 1_000
