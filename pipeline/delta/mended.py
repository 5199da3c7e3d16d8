"""Tables with texts that are no UTF-8, or with NULL where none may be, for DataFusion, which refuses to read them.

Any writer of Delta may leave such texts in the tables that others append to, and earlier versions of this project took
them over into `messages` and `deliveries`. Who asks gets the answer of a copy, in which something stands for each of
them (`pipeline.storage.texts`). It has the columns that the question names, and lies in a folder for temporary files.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping
from tempfile import TemporaryDirectory
from typing import TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake

from pipeline.storage.files import Files
from pipeline.storage.texts import with_texts

T = TypeVar("T")
_LOG = logging.getLogger(__name__)
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
    except pa.ArrowInvalid as error:
        if not any(each in str(error) for each in _UNREADABLE):
            raise
    named = ", ".join(each.table_uri for each in tables.values())
    _LOG.warning("%s: texts that are no UTF-8, or NULL where none may be; a copy is read", named)
    with TemporaryDirectory() as folder:
        return ask({name: _copy(table, sql, f"{folder}/{name}") for name, table in tables.items()})


def _copy(table: DeltaTable, sql: str, folder: str) -> DeltaTable:
    whole = pa.schema(table.schema().to_arrow())
    words = set(re.findall(r"\w+", sql))
    named = [field for field in whole if _ALL.search(sql) or field.name in words] or [whole.field(0)]
    # Who wrote the file may have left out a value that the table says is there.
    schema = pa.schema([pa.field(each.name, each.type) for each in named])
    rows = pa.RecordBatchReader.from_batches(schema, _batches(table, schema))
    write_deltalake(folder, rows)
    return DeltaTable(folder)


def _batches(table: DeltaTable, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of a table, some at a time; a column that a file lacks is NULL."""
    files = Files()
    for path in table.file_uris():
        with files.open(path) as source, pq.ParquetFile(source) as file:
            there = [name for name in schema.names if name in file.schema_arrow.names]
            for batch in file.iter_batches(_ROWS, columns=there):
                columns = [
                    batch.column(field.name) if field.name in there else pa.nulls(batch.num_rows, field.type)
                    for field in schema
                ]
                yield with_texts(pa.RecordBatch.from_arrays(columns, names=schema.names)).cast(schema)
