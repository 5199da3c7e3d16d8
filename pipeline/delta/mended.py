"""Tables for DataFusion that have texts which are no UTF-8, NULL where none may be, or files that cannot be read.

It refuses to read such files. Any writer of Delta may leave them in the tables that others append to, and earlier
versions of this project took such texts over into `messages` and `deliveries`. Who asks gets the answer of a copy, in
which something stands for each of the texts (`pipeline.storage.texts`), and from which the files are left out
(`pipeline.delta.reading.strangers`). It has the columns that the question names, and lies in a folder for temporary
files.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from tempfile import TemporaryDirectory
from typing import TypeVar
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

from pipeline.delta.logs.snapshot import live_files
from pipeline.delta.reading.strangers import LeftOut, broken, left_out, places
from pipeline.storage.files import Files
from pipeline.storage.texts import with_texts
from schemas import COMMANDS, CONSUMER_EVENTS, INBOX, Table

T = TypeVar("T")
_LOG = logging.getLogger(__name__)
_OPEN = {table.name: table for table in (INBOX, CONSUMER_EVENTS, COMMANDS)}
"""Tables to which everybody may append, by name."""
_ROWS = 8_192
"""So many are read at a time."""
_UNREADABLE = ("non UTF-8", "declared as non-nullable")
"""What the errors say that a file gives with such a text, or with NULL where the table has none."""
_ALL = re.compile(r"(select|,)\s*(\w+\.)?\*", re.IGNORECASE)


def answered(sql: str, tables: Mapping[str, DeltaTable], ask: Callable[[Mapping[str, DeltaTable]], T]) -> T:
    """What is asked of tables; of copies of them when one of them cannot be read as it is.

    Args:
        sql: what is asked; it names the columns.
        tables: by name.
        ask: asks, once or twice.
    """
    try:
        return ask(tables)
    except (pa.ArrowException, OSError, DeltaError) as error:
        without = {name: _unread(table) for name, table in tables.items()}
        # Of delta-rs itself: statistics that are no statistics.
        is_of_log = isinstance(error, DeltaError) and any(_kind(each) for each in tables.values())
        if not (is_of_log or any(each in str(error) for each in _UNREADABLE) or any(without.values())):
            raise
    uris = ", ".join(each.table_uri for each in tables.values())
    _LOG.warning(
        "%s: texts that are no UTF-8, NULL where none may be, or files that cannot be read; a copy is read", uris
    )
    with TemporaryDirectory() as folder:
        return ask({name: _copy(table, sql, f"{folder}/{name}", without[name]) for name, table in tables.items()})


def _unread(table: DeltaTable) -> list[LeftOut]:
    """The files of a table to which everybody may append that cannot be read, or must not be."""
    kind = _kind(table)
    if kind is None:
        return []
    files, folder = Files(), table.table_uri.rstrip("/")
    added = [{"path": path, "version": table.version()} for path in _paths(table)]
    left = left_out(files, folder, added)
    known = places(left)
    return left + broken(files, folder, kind, [each for each in added if (each["version"], each["path"]) not in known])


def _kind(table: DeltaTable) -> Table | None:
    """The contract of a table to which everybody may append; None: it is another one."""
    return _OPEN.get(table.table_uri.rstrip("/").rpartition("/")[2])


def _paths(table: DeltaTable) -> list[str]:
    found = live_files(Files(), table.table_uri.rstrip("/"), table.version())
    if found is not None:
        return [unquote(each["path"]) for each in found[1]]
    actions = pa.RecordBatchReader.from_stream(table.get_add_actions()).read_all()
    return [unquote(path) for path in actions.column("path").to_pylist()]


def _copy(table: DeltaTable, sql: str, folder: str, without: Sequence[LeftOut]) -> DeltaTable:
    whole = pa.schema(table.schema().to_arrow())
    words = set(re.findall(r"\w+", sql))
    named = [field for field in whole if _ALL.search(sql) or field.name in words] or [whole.field(0)]
    # Who wrote the file may have left out a value that the table says is there.
    schema = pa.schema([pa.field(each.name, each.type) for each in named])
    rows = pa.RecordBatchReader.from_batches(schema, _batches(table, schema, without))
    write_deltalake(folder, rows)
    return DeltaTable(folder)


def _batches(table: DeltaTable, schema: pa.Schema, without: Sequence[LeftOut]) -> Iterator[pa.RecordBatch]:
    """The rows of a table, some at a time; a column that a file lacks is NULL."""
    files, gone = Files(), {each.path for each in without}
    good = (f"{table.table_uri.rstrip('/')}/{path}" for path in _paths(table) if path not in gone)
    for path in table.file_uris() if _kind(table) is None else good:
        with files.open(path) as source, pq.ParquetFile(source) as file:
            there = [name for name in schema.names if name in file.schema_arrow.names]
            for batch in file.iter_batches(_ROWS, columns=there):
                columns = [
                    batch.column(field.name) if field.name in there else pa.nulls(batch.num_rows, field.type)
                    for field in schema
                ]
                yield with_texts(pa.RecordBatch.from_arrays(columns, names=schema.names)).cast(schema)
