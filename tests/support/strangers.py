"""Rows as a stranger appends them: texts of any bytes, any numbers, NULL where there may be none; no writer looks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

from pipeline.delta.deltars import path_of
from pipeline.storage.arrays import arrow_schema
from pipeline.subscriptions.policies import Policies
from pipeline.subscriptions.topicpolicies import TopicPolicies
from schemas import COMMANDS, CONSUMER_EVENTS, INBOX, SUBSCRIPTIONS, Table
from state.buckets import MAX_TIME

BROKEN = (b"\xff", b"\xed\xa0\x80", b"\xc0\x80", b"t\xe2\x82", b"\xf4\x90\x80\x80")
"""Texts that are no UTF-8, as `CAST(X'FF' AS STRING)` gives them."""
Row = dict[str, Any]


def raw(kind: pa.DataType) -> pa.DataType:
    """A type with bytes for texts."""
    if pa.types.is_string(kind):
        return pa.binary()
    return pa.map_(pa.binary(), pa.binary()) if pa.types.is_map(kind) else kind


def as_texts(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Bytes as texts that nobody looked at."""
    if pa.types.is_string(kind):
        return column.view(kind)
    if not pa.types.is_map(kind):
        return column
    names = [kind.key_field, kind.item_field]
    entries = pa.StructArray.from_arrays([column.keys.view(pa.string()), column.items.view(pa.string())], fields=names)
    return pa.Array.from_buffers(kind, len(column), column.buffers()[:2], children=[entries])


def table_of(table: Table, rows: Sequence[Row]) -> pa.Table:
    """Rows whose texts are bytes, in the columns of a table; a column that a row leaves out is NULL."""
    schema = arrow_schema(table.columns)
    columns = [as_texts(pa.array([_bytes(row.get(f.name)) for row in rows], raw(f.type)), f.type) for f in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def put(root: str, table: Table, *rows: Row) -> None:
    """Append rows by one version; of what is in the file the log says the number of rows alone."""
    write(root, table, table_of(table, rows))


def write(root: str, table: Table, rows: pa.Table, **how: Any) -> int:  # noqa: ANN401 - of the file
    """Append a file by one version, with options of its writer; how large it is."""
    folder, name = Path(path_of(root, table)), f"{uuid4()}.parquet"
    pq.write_table(rows, folder / name, **how)
    size = (folder / name).stat().st_size
    added = {"path": name, "size": size, "modificationTime": 0, "dataChange": True, "partitionValues": {}}
    added["stats"] = json.dumps({"numRecords": rows.num_rows})
    log = folder / "_delta_log"
    version = max(int(each.stem) for each in log.glob("*.json")) + 1
    actions = ({"commitInfo": {"timestamp": 0, "operation": "WRITE"}}, {"add": added})
    (log / f"{version:020d}.json").write_text("".join(f"{json.dumps(each)}\n" for each in actions))
    return size


def _bytes(value: object) -> object:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict):
        return [(_bytes(name), _bytes(text)) for name, text in value.items()]
    return value


_EDGES = (-(2**63), -(2**62), -1, 0, 1, 2, 2**20, 2**31 - 1, 2**31, 2**32, MAX_TIME, 2**53, 2**62, 2**63 - 1)
numbers = st.sampled_from(_EDGES) | st.none() | st.integers(0, 3)
times = st.none() | st.sampled_from((-(2**63), -1, 0, 1_700_000_000_000_000, 2_000_000_000_000_000, 2**63 - 1))
"""Microseconds."""


def texts(*usual: str) -> st.SearchStrategy[bytes | None]:
    """One of the usual texts, or none, or anything."""
    known = st.sampled_from([*(each.encode() for each in usual), b"", b" ", b"a\x00b", b"\x1b]0;x\x07", b"9" * 5_000])
    return st.one_of(known, known, st.sampled_from(BROKEN), st.none(), st.binary(max_size=6))


def maps(*usual: str) -> st.SearchStrategy[dict[bytes, bytes | None] | None]:
    """A map of such texts; its keys are not NULL."""
    return st.none() | st.dictionaries(texts(*usual).map(lambda key: key or b"k"), texts(*usual), max_size=3)


_TEXTS = {
    "topic": ("t", "u", "t-partition-0", "x-partition-" + "9" * 5_000),
    "subscription": ("s", "plain", "evil"),
    "kind": ("ack", "nack", "renew", "claim", "release", "leave", "cancel", "undo", "reschedule", "shift", "history"),
    "cause": ("nack", "ack_timeout", "owner_lost", "whatever"),
    "type": ("shared", "exclusive", "topic", "history", "partitions", "topic"),
    "start": ("latest", "earliest", "2@0:0", "9999999999999999999@0:0", "1@9999999999999999999:9999999999"),
    "command_id": ("c", "d"),
    "undoes": ("c", "d"),
}
_MAPS = {
    "properties": (
        "delayline.event_time", "delayline.ordering_key", "delayline.headers", "delayline.topic", "[" * 2_000,
    ),
    "policies": (*Policies.rows, *TopicPolicies.rows, "true", "7", "no such column", "kafka://x/y", "partitions"),
}  # fmt: skip


def _values(name: str, kind: pa.DataType) -> st.SearchStrategy[Any]:
    if pa.types.is_string(kind):
        return texts(*_TEXTS.get(name, ("x",)))
    if pa.types.is_map(kind):
        return maps(*_MAPS[name])
    if pa.types.is_timestamp(kind):
        return times
    if pa.types.is_boolean(kind):
        return st.none() | st.booleans()
    return st.none() | st.binary(max_size=8) if pa.types.is_binary(kind) else numbers


def rows_of(table: Table) -> st.SearchStrategy[Row]:
    """Any row of a table."""
    return st.fixed_dictionaries({f.name: _values(f.name, f.type) for f in arrow_schema(table.columns)})


OPEN_TABLES = (INBOX, CONSUMER_EVENTS, COMMANDS, SUBSCRIPTIONS)
"""The tables to which strangers may append."""
