"""Statistics of Parquet files, as Delta notes them in a log, from the files' own footers.

Delta's writer counts while it writes; the footer has the same figures when the file is closed, by its last few
kilobytes.
"""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.config.errors import ContractBroken
from pipeline.config.spelling import iso_text
from schemas.columns import LONG, TEXT, TIME, Column, Columns

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_END = 8
"""A file ends with the length of its footer, in 4 bytes, and a magic word."""
_LONGEST_TEXT = 32
"""Delta keeps so many characters of a text; a longer one would have to be cut, up or down."""


def missing(tail: bytes) -> int:
    """How many bytes before the end the footer begins of which `tail` has the last ones; 0 when it has them all."""
    length = int.from_bytes(tail[-_END : -_END + 4], "little") + _END
    return length if length > len(tail) else 0


def statistics(tail: bytes, table: str, columns: Columns) -> tuple[int, str]:
    """Rows of a file, and its statistics in Delta's JSON.

    Args:
        tail: the file's last bytes, the whole footer among them.
        table: whose file it is.
        columns: the columns of the table.

    Raises:
        ContractBroken: a column that is required holds NULL.
    """
    footer = pq.read_metadata(pa.BufferReader(tail))
    content: dict[str, Any] = {"numRecords": footer.num_rows, "minValues": {}, "maxValues": {}, "nullCount": {}}
    chunks = _chunks(footer)
    for field in columns.fields:
        found = chunks.get(field.name)
        # A writer leaves out the statistics of a column with very long values.
        if not found or not all(each is not None and each.has_null_count for each in found):
            continue
        nulls = sum(each.null_count for each in found)
        if nulls and not field.nullable:
            raise ContractBroken(table, field.name, nulls)
        content["nullCount"][field.name] = nulls
        held = [each for each in found if each.has_min_max]
        if held and all(each.has_min_max or not each.num_values for each in found):
            content["minValues"] |= _bound(field, min(each.min_raw for each in held))
            content["maxValues"] |= _bound(field, max(each.max_raw for each in held))
    return footer.num_rows, json.dumps(content, separators=(",", ":"))


def _chunks(footer: pq.FileMetaData) -> dict[str, list[Any]]:
    """The statistics of each plain column, one for each row group; None where the writer kept none."""
    found: dict[str, list[Any]] = {}
    for group in (footer.row_group(number) for number in range(footer.num_row_groups)):
        for column in (group.column(number) for number in range(footer.num_columns)):
            found.setdefault(column.path_in_schema, []).append(column.statistics)
    return found


def _bound(field: Column, raw: int | bytes) -> dict[str, Any]:
    """A bound, given as Parquet stores it, as Delta writes it: times (microseconds) cut to ms, no flags and no bytes.

    A text that is long has none, for it would have to be cut; nor has one that is not UTF-8, which Spark lets pass.
    """
    shown: int | str | None = None
    if field.kind == TIME and isinstance(raw, int):
        shown = _time(raw)
    elif field.kind == LONG and isinstance(raw, int):
        shown = raw
    elif field.kind == TEXT and isinstance(raw, bytes):
        shown = _text(raw)
    return {} if shown is None else {field.name: shown}


def _text(raw: bytes) -> str | None:
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return None
    return text if len(text) <= _LONGEST_TEXT else None


def _time(micros: int) -> str | None:
    """The time as text; None for one that is outside the calendar, which a producer may write all the same."""
    try:
        moment = _EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        return None
    return iso_text(moment)
