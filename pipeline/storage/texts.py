"""Texts of strangers: whether they are UTF-8, what stands for those that are not, and how long they may be.

Any writer of Delta may put any bytes into a column of texts: Spark does with `CAST(X'FF' AS STRING)`, and Arrow does
not look. Who then makes a text of Python of them fails, and DataFusion refuses to read the file. So arrays are looked
at once, where they enter (`pipeline.storage.parquet.typed`); behind that they are texts.
"""

from __future__ import annotations

from typing import Any, TypeAlias, TypeVar

import pyarrow as pa

from pipeline.config import arrowcompute as pc
from pipeline.storage.arrays import first_reason, map_bytes

Rows = TypeVar("Rows", pa.Table, pa.RecordBatch)
Column: TypeAlias = Any
"""An array, or a chunked one."""
REPLACED = "\ufffd"
"""Stands for each part of a text that is no UTF-8, as everywhere (the longest parts that begin a character)."""
MAX_NAME_BYTES = 16 << 10
"""Of a topic, and of the name of a producer."""
MAX_NAMES_BYTES = MAX_NAME_BYTES - len("--DLQ")
"""Of a topic and a subscription: the name of their dead-letter topic is made of both."""
MAX_KEY_BYTES = 64 << 10
MAX_PROPERTIES_BYTES = 1 << 20
"""Names and values together, and `ENTRY_BYTES` for each property."""
ENTRY_BYTES = 8
ADDED_BYTES = 32 << 10
"""Room that ingest leaves for what settle adds to a dead letter, and who puts it back."""
PAYLOAD_BYTES = "payload_bytes"
"""The length of the payload, a small column beside those of a table; NULL without a payload."""
WRONG_TEXT = "wrong_text"
"""What is wrong with the texts of a row of `inbox` (`wrong_texts`), beside its small columns."""


def are_texts(column: Column) -> bool:
    """Whether all texts of a column are UTF-8; also inside of lists, maps and structs. One pass over its bytes."""
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def not_utf8(column: Column) -> pa.ChunkedArray:
    """Which values hold a text that is no UTF-8; NULL holds none."""
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    return pa.chunked_array([_not_utf8(each) for each in chunks], pa.bool_())


def _not_utf8(column: pa.Array) -> pa.Array:
    if are_texts(column):
        return pa.repeat(pa.scalar(False), len(column))  # noqa: FBT003 - Arrow has no name
    return pa.array([not _is_sound(each, column.type) for each in _bytes(column).to_pylist()], pa.bool_())


def with_texts(rows: Rows) -> Rows:
    """The same rows; in texts that are no UTF-8, `REPLACED` stands for what is none."""
    for number, field in enumerate(rows.schema):
        column = rows.column(number)
        if has_texts(field.type) and not are_texts(column):
            rows = rows.set_column(number, field, mended(column))
    return rows


def has_texts(kind: pa.DataType) -> bool:
    """Whether values of a type hold texts."""
    inside = (kind.field(number).type for number in range(kind.num_fields))
    return _is_text(kind) or any(map(has_texts, inside))


def mended(column: Column) -> Column:
    """A column, with `REPLACED` for what is no UTF-8."""
    values = [_mended(each, column.type) for each in _bytes(column).to_pylist()]
    return pa.array(values, column.type) if isinstance(column, pa.Array) else pa.chunked_array([values], column.type)


def cut(column: pa.ChunkedArray, most: int) -> pa.ChunkedArray:
    """Texts that are no longer than so many bytes, whatever they were."""
    if (pc.max(pc.binary_length(column)).as_py() or 0) <= most:
        return column
    parts = pc.binary_slice(column.cast(pa.binary()), 0, most)
    return pa.chunked_array([each.view(pa.string()) for each in parts.chunks], pa.string())


TOPIC_TOO_LONG, TOPIC_NOT_UTF8 = "topic_too_long", "topic_not_utf8"
KEY_TOO_LONG, KEY_NOT_UTF8 = "key_too_long", "key_not_utf8"
PROPERTIES_TOO_LONG, PROPERTIES_NOT_UTF8 = "properties_too_long", "properties_not_utf8"
PRODUCER_TOO_LONG, PRODUCER_NOT_UTF8 = "producer_name_too_long", "producer_name_not_utf8"


def wrong_texts(rows: pa.Table) -> pa.Array:
    """What is wrong with the texts of each row of `inbox`, the first of these reasons; NULL: nothing."""
    names = ("topic", "message_key", "properties", "producer_name")
    topic, key, properties, producer = (rows.column(name) for name in names)
    flags = (
        (TOPIC_TOO_LONG, pc.greater(pc.binary_length(topic), MAX_NAME_BYTES)),
        (TOPIC_NOT_UTF8, not_utf8(topic)),
        (KEY_TOO_LONG, pc.greater(pc.binary_length(key), MAX_KEY_BYTES)),
        (KEY_NOT_UTF8, not_utf8(key)),
        (PROPERTIES_TOO_LONG, _too_many(properties)),
        (PROPERTIES_NOT_UTF8, not_utf8(properties)),
        (PRODUCER_TOO_LONG, pc.greater(pc.binary_length(producer), MAX_NAME_BYTES)),
        (PRODUCER_NOT_UTF8, not_utf8(producer)),
    )
    found = [(reason, broken) for reason, broken in flags if pc.any(broken).as_py()]
    return first_reason(found) if found else pa.nulls(rows.num_rows, pa.string())


def refused_texts(rows: pa.Table) -> pa.Table:
    """Rows of `inbox` that are refused, as `rejected_ingest` has them: texts are cut, and properties may be gone."""
    properties = rows.column("properties")
    gone = pc.or_(not_utf8(properties), _too_many(properties))
    kept = pc.if_else(gone, pa.scalar(None, properties.type), properties)
    texts = {
        "topic": cut(rows.column("topic"), MAX_NAME_BYTES + 1),
        "message_key": cut(rows.column("message_key"), MAX_KEY_BYTES + 1),
        "properties": kept,
        "producer_name": cut(rows.column("producer_name"), MAX_NAME_BYTES + 1),
    }
    for name, column in texts.items():
        rows = rows.set_column(rows.column_names.index(name), rows.schema.field(name), column)
    return with_texts(rows)


def _too_many(properties: pa.ChunkedArray) -> pa.Array:
    return pa.array(map_bytes(properties, ENTRY_BYTES) > MAX_PROPERTIES_BYTES + ADDED_BYTES)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _bytes(column: Column) -> Column:
    """Bytes in the place of texts."""
    return column.cast(_of_bytes(column.type))


def _of_bytes(kind: pa.DataType) -> pa.DataType:
    if _is_text(kind):
        return pa.binary()
    if pa.types.is_map(kind):
        return pa.map_(_of_bytes(kind.key_type), _of_bytes(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_of_bytes(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([each.with_type(_of_bytes(each.type)) for each in kind])
    return kind


def _is_sound(value: Any, kind: pa.DataType) -> bool:  # noqa: ANN401 - what Arrow gives
    if value is None or not has_texts(kind):
        return True
    if _is_text(kind):
        return _decodes(value)
    if pa.types.is_map(kind):
        return all(_is_sound(name, kind.key_type) and _is_sound(each, kind.item_type) for name, each in value)
    if pa.types.is_struct(kind):
        return all(_is_sound(value[each.name], each.type) for each in kind)
    return all(_is_sound(each, kind.value_type) for each in value)


def _decodes(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _mended(value: Any, kind: pa.DataType) -> Any:  # noqa: ANN401 - as above
    if value is None or not has_texts(kind):
        return value
    if _is_text(kind):
        return value.decode(errors="replace")
    if pa.types.is_map(kind):
        return [(_mended(name, kind.key_type), _mended(each, kind.item_type)) for name, each in value]
    if pa.types.is_struct(kind):
        return {each.name: _mended(value[each.name], each.type) for each in kind}
    return [_mended(each, kind.value_type) for each in value]
