"""Statistics of Parquet files from their footers, as Delta's readers expect them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.config.errors import ContractBroken
from pipeline.delta.logs.filestats import span_ms
from pipeline.delta.writing.footers import missing, statistics
from schemas.columns import BYTES, FLAG, LONG, TEXT, TIME, Columns

COLUMNS = Columns.of(("id", LONG)).and_optional(("name", TEXT), ("at", TIME), ("flag", FLAG), ("payload", BYTES))
ARROW = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
        ("flag", pa.bool_()),
        ("payload", pa.binary()),
    ]
)


def written(rows: list[dict[str, Any]], group: int = 1_000) -> bytes:
    """A Parquet file, with so many rows in a row group."""
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows, schema=ARROW), sink, row_group_size=group)
    return bytes(sink.getvalue().to_pybytes())


def statistics_of(rows: list[dict[str, Any]], group: int = 1_000) -> dict[str, Any]:
    """What the statistics say."""
    found: dict[str, Any] = json.loads(statistics(written(rows, group), "table", COLUMNS)[1])
    return found


def test_bounds_span_all_row_groups_and_nulls_are_counted() -> None:
    """A reader skips files by them: too narrow would lose rows."""
    late = datetime(2013, 11, 3, 5, 59, 59, 999_999, tzinfo=UTC)
    found = statistics_of([{"id": 5, "name": "b", "at": late}, {"id": 1}, {"id": 9, "name": "a"}], group=1)
    assert found["numRecords"] == 3
    assert found["minValues"] == {"id": 1, "name": "a", "at": "2013-11-03T05:59:59.999Z"}
    assert found["maxValues"] == {"id": 9, "name": "b", "at": "2013-11-03T05:59:59.999Z"}
    assert found["nullCount"] == {"id": 0, "name": 1, "at": 2, "flag": 3, "payload": 3}


def test_flags_bytes_and_long_texts_have_no_bounds() -> None:
    """Delta keeps none of flags and bytes, and a text that is cut is no bound."""
    found = statistics_of([{"id": 1, "name": "x" * 33, "flag": True, "payload": b"p"}])
    assert (found["minValues"], found["maxValues"]) == ({"id": 1}, {"id": 1})


def test_years_at_the_ends_of_the_calendar_keep_four_digits() -> None:
    """The year 1 is written 0001."""
    ends = [datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)]
    found = statistics_of([{"id": number, "at": each} for number, each in enumerate(ends)])
    assert (found["minValues"]["at"], found["maxValues"]["at"]) == (
        "0001-01-01T00:00:00.000Z",
        "9999-12-31T00:00:00.000Z",
    )


def test_a_time_outside_the_calendar_has_no_bound() -> None:
    """A producer may write one; a rejected row keeps it as it came."""
    sink = pa.BufferOutputStream()
    far = pa.array([(1 << 63) - 1], pa.int64()).cast(pa.timestamp("us", "UTC"))
    pq.write_table(pa.table({"id": [1], "at": far}), sink)
    found = json.loads(statistics(sink.getvalue().to_pybytes(), "table", COLUMNS)[1])
    assert (found["minValues"], found["maxValues"]) == ({"id": 1}, {"id": 1})


def test_a_text_that_is_not_utf8_has_no_bound() -> None:
    """Spark casts bytes to text as they are; the message is no worse for it."""
    sink = pa.BufferOutputStream()
    odd = pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff\xfe"]).buffers())
    pq.write_table(pa.table({"id": [1], "name": odd}), sink)
    found = json.loads(statistics(sink.getvalue().to_pybytes(), "table", COLUMNS)[1])
    assert (found["minValues"], found["maxValues"]) == ({"id": 1}, {"id": 1})


def test_a_null_in_a_required_column_is_refused() -> None:
    """Delta's own append would refuse it."""
    with pytest.raises(ContractBroken, match=r"table\.id: NULL in 1 rows"):
        statistics_of([{"id": None}])


def test_a_footer_that_is_longer_than_what_was_read_is_read_again() -> None:
    """A file of many row groups has a long footer."""
    whole = written([{"id": number} for number in range(50)], group=1)
    more = missing(whole[-100:])
    assert 100 < more < len(whole)
    assert missing(whole[-more:]) == 0
    assert statistics(whole[-more:], "table", COLUMNS)[0] == 50


def test_a_span_of_times_is_in_milliseconds() -> None:
    """Delivery goes by it."""
    rows = [{"id": 1, "at": datetime(1970, 1, 1, 0, 0, second, tzinfo=UTC)} for second in (7, 3)]
    assert span_ms(json.dumps(statistics_of(rows)), "at") == (3_000, 7_000)
    with pytest.raises(KeyError):
        span_ms("{}", "at")
