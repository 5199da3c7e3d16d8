"""The due times of a campaign, from a file: CSV, JSON lines or Parquet."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json
import pyarrow.parquet as pq

from jobs.commands.durations import BadText
from jobs.commands.values import since
from pipeline.config.errors import BadValue

FILES = "a file whose name ends with .csv, .json, .jsonl, .ndjson or .parquet"
_US = 1_000


def campaign(path: Path, topic: str | None) -> dict[str, dict[int, int]]:
    """How many messages a file has, by topic and by due time (ms UTC).

    Args:
        path: rows with the columns `due_time`, and `count` (else 1) and `topic`, if they have them.
        topic: of rows that name none.

    Raises:
        BadValue: it is no such file; a row has no due time or no topic; a count is not a whole number from 1 on.
    """
    rows = _rows(path)
    if "due_time" not in rows.column_names:
        raise BadValue("add", str(path), "a file with a column due_time")
    due = _times(rows.column("due_time"))
    topics = _texts(rows, "topic", topic)
    counts = _counts(rows)
    found = defaultdict[str, Counter[int]](Counter)
    for name, time, count in zip(topics, due, counts, strict=True):
        found[name][time] += count
    return {name: dict(each) for name, each in found.items()}


def _rows(path: Path) -> pa.Table:
    try:
        match path.suffix.lower():
            case ".csv":
                # Times and topics are texts, whatever they look like.
                texts = {"due_time": pa.string(), "topic": pa.string()}
                return pa_csv.read_csv(path, convert_options=pa_csv.ConvertOptions(column_types=texts))
            case ".json" | ".jsonl" | ".ndjson":
                return pa_json.read_json(path)
            case ".parquet":
                return pq.read_table(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise BadValue("add", str(path), f"a file that can be read: {error}") from error
    raise BadValue("add", str(path), FILES)


def _times(column: pa.ChunkedArray) -> list[int]:
    """Due times in ms, rounded up."""
    if column.null_count:
        raise BadValue("due_time", None, "a time in each row")
    if pa.types.is_timestamp(column.type):
        return [
            -(-each // _US) for each in column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64()).to_pylist()
        ]
    texts = column.cast(pa.string())
    known: Mapping[str, int] = {text: _time(text) for text in pc.unique(texts).to_pylist()}
    return [known[text] for text in texts.to_pylist()]


def _time(text: str) -> int:
    try:
        return since(text)
    except BadText as error:
        raise BadValue("due_time", text, error.allowed) from error


def _texts(rows: pa.Table, name: str, default: str | None) -> list[str]:
    found: list[str | None] = rows.column(name).cast(pa.string()).to_pylist() if name in rows.column_names else []
    given = [each or default for each in found] if found else [default] * rows.num_rows
    if None in given:
        raise BadValue(name, None, f"a {name} in each row, or with --{name}")
    return [each for each in given if each is not None]


def _counts(rows: pa.Table) -> list[int]:
    found: list[Any] = rows.column("count").to_pylist() if "count" in rows.column_names else [1] * rows.num_rows
    for each in found:
        if not isinstance(each, int) or each < 1:
            raise BadValue("count", each, "a whole number from 1 on")
    return found
