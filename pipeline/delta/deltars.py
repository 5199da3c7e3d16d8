"""Tables of a warehouse through delta-rs: open, create, append with retries."""

import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar
from uuid import uuid4

import pyarrow as pa
from deltalake import (
    CommitProperties,
    DeltaTable,
    PostCommitHookProperties,
    QueryBuilder,
    Schema,
    Transaction,
    write_deltalake,
)
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from pipeline.config.errors import ColumnGone, NoFileSystem, NoWarehouse, StillConflicting
from pipeline.config.paths import usable
from pipeline.delta.logs.checksums import put_first_checksum
from pipeline.delta.logs.entries import entry, exists, log_files
from pipeline.delta.logs.features import check_unmanaged
from pipeline.delta.logs.opening import table_at
from pipeline.delta.logs.snapshot import described
from pipeline.delta.mended import answered
from pipeline.storage.arrays import python_rows
from pipeline.storage.files import Files
from pipeline.storage.room import check_room
from schemas import IDENTITY, INBOX, TABLES, Table
from schemas.columns import Columns

ATTEMPTS = 8
LOG_STAYS = PostCommitHookProperties(create_checkpoint=True, cleanup_expired_logs=False)
"""For each commit: delta-rs would look at all of the log, to delete by age what a stage may have to read."""
_FIRST_PAUSE_S = 0.05
_OURS = "append"
"""Names what tells an append from others in the log."""
T = TypeVar("T")


@dataclass(frozen=True)
class _Kept:
    """A table at its newest version, and when the entry of that was written, ms UTC."""

    table: DeltaTable
    written: int


_KEPT: ContextVar[dict[str, _Kept] | None] = ContextVar("kept", default=None)
KeptTables = dict[str, _Kept]
"""Tables by their folders."""


@contextmanager
def kept_open(tables: KeptTables) -> Iterator[None]:
    """Meanwhile `open_table` opens a table again only when it has another version, or is another table.

    To read a log anew takes ten times as long as to see that it has no further entry. Whoever looks again and again
    gives the same tables each time.
    """
    token = _KEPT.set(tables)
    try:
        yield
    finally:
        _KEPT.reset(token)


def _kept(folder: str) -> DeltaTable | None:
    """A table that is kept, if it is still what lies in a folder."""
    known = (_KEPT.get() or {}).get(folder)
    if known is None or exists(Files(), folder, known.table.version() + 1):
        return None
    return known.table if _written(folder, known.table) == known.written else None


def _written(folder: str, table: DeltaTable) -> int | None:
    """When the entry of the version of a table was written, ms UTC; None: it is not there."""
    with suppress(FileNotFoundError, TypeError):  # a store has no time of what is not there
        return Files().modified_ms(f"{folder}/_delta_log/{table.version():020d}.json")
    return None


def path_of(root: str, table: Table) -> str:
    """The folder of a table.

    Raises:
        BadValue: the path has a name that delta-rs takes for another one.
    """
    return f"{usable(root).rstrip('/')}/{table.name}"


def _reached(root: str, table: Table) -> str:
    """The same, when this process reaches it. delta-rs would ask for HDFS, and say nothing that helps.

    Raises:
        NoFileSystem: it does not.
    """
    folder = path_of(root, table)
    if not Files().reaches(folder):
        raise NoFileSystem(root)
    return folder


def check_warehouse(root: str) -> None:
    """Refuse a folder that has no table of a warehouse; one that only Spark reaches is not looked at.

    Raises:
        NoWarehouse: it has none, or is not there, or is a file.
        BadValue: the path has a name that delta-rs takes for another one.
        PermissionError: it may not be entered.
    """
    files, folders = Files(), [f"{path_of(root, table)}/_delta_log" for table in (INBOX, *TABLES)]
    with suppress(NotADirectoryError):
        if not files.reaches(root) or any(map(files.names, folders)):
            return
    if files.local(root) is None:
        # A store says what it lacks: a bucket, or the table.
        open_table(root, INBOX)
    raise _no_warehouse(root, INBOX)


def _no_warehouse(root: str, table: Table) -> NoWarehouse:
    here = Files().local(root)
    return NoWarehouse(root, None if here is not None and here.is_file() else table.name)


def arrow_schema(table: Table) -> pa.Schema:
    """The Arrow schema of a table, from its contract: Spark's JSON of a struct is also Delta's."""
    return _arrow_of(table.columns)


@cache
def _arrow_of(columns: Columns) -> pa.Schema:
    return pa.schema(Schema.from_json(columns.json()).to_arrow())


def open_table(root: str, table: Table) -> DeltaTable:
    """A table as it is now.

    Raises:
        NoWarehouse: there is no such table.
        NoFileSystem: only Spark reaches its folder.
        PermissionError: its folder may not be entered.
        BrokenVersion: its newest version is empty or cut short; delta-rs takes an empty one for one that did nothing.
        CatalogManaged: a catalog says which versions it has.
    """
    folder = _reached(root, table)
    if (found := _kept(folder)) is not None:
        return found
    try:
        opened = table_at(folder)
    except (TableNotFoundError, FileNotFoundError) as error:
        # To delta-rs a folder that may not be entered is none.
        with suppress(FileNotFoundError):
            Files().names(f"{folder}/_delta_log")
        raise _no_warehouse(root, table) from error
    except DeltaError:
        entries = (file.version for file in log_files(Files().names(f"{folder}/_delta_log")) if file.is_entry)
        entry(Files(), folder, max(entries, default=0))
        check_protocol(Files(), folder, table)
        raise
    entry(Files(), folder, opened.version())
    if (tables := _KEPT.get()) is not None and (written := _written(folder, opened)) is not None:
        tables[folder] = _Kept(opened, written)
    return opened


def check_protocol(files: Files, path: str, table: Table) -> None:
    """Refuse a table whose commits a catalog manages: delta-rs says of it that a version is missing.

    Args:
        files: what reaches the table.
        path: its folder.
        table: the table.

    Raises:
        CatalogManaged: one does.
        BrokenVersion: an entry of its log is empty, or it was cut short.
    """
    found = described(files, path)
    if found is not None:
        check_unmanaged(table.name, found[1])


def create(root: str, table: Table, properties: Mapping[str, str]) -> None:
    """Create a table with the schema of its contract; one that exists is left as it is.

    Raises:
        BrokenVersion: it exists, and its newest version is cut short.
        NoFileSystem: only Spark reaches its folder.
        OSError: the folder cannot be made, or nothing can be written there.
    """
    folder = _reached(root, table)
    schema = Schema.from_json(table.columns.json())
    if (here := Files().local(folder)) is not None:
        # delta-rs would not say why it cannot.
        here.mkdir(parents=True, exist_ok=True)
        check_room(here)
    try:
        DeltaTable.create(
            folder,
            schema,
            mode="ignore",
            configuration=dict(properties),
            commit_properties=CommitProperties(max_commit_retries=0),
            raise_if_key_not_exists=False,
        )
    except CommitFailedError:
        # Somebody else created it meanwhile. With retries the same table would be created in the next version again.
        open_table(root, table)
    except DeltaError:
        with suppress(NoWarehouse):
            open_table(root, table)
        raise
    put_first_checksum(Files(), folder)


class NumberTaken(Exception):
    """Another number is the last one that was noted under a name: another process counts under it, too."""


def append(
    root: str,
    table: Table,
    rows: pa.Table,
    pause: Callable[[float], None] = time.sleep,
    once: tuple[str, int] | None = None,
    *,
    within: tuple[str, int] | None = None,
    drawn: bool = False,
    behind: int | None = None,
) -> int:
    """Append rows in one commit; give the table's version afterwards.

    Appends do not contradict each other, so a lost race for a version is repeated: by delta-rs at once, then here with
    growing pauses (`pause` takes seconds).

    Args:
        root: where the tables lie.
        table: the table.
        rows: columns of it.
        pause: waits so many seconds.
        once: a name and a number. Delta keeps the last number of a name beside the rows (`txn`); rows of a number
            that is not higher were appended before, and are not again.
        within: another name and number, which are noted, too, and tell apart what has the same number by `once`.
        drawn: the number cannot be guessed: only rows of this very number were appended before. Whoever appends to the
            table may note any number under any name.
        behind: the number that has to be the last one under the name, -1 for none. So of two processes that count
            under one name one appends.

    Raises:
        NumberTaken: another number is the last one.
        NoWarehouse: there is no such table.
        ColumnGone: the table lacks a column of the rows.
        StillConflicting: the race was lost every time.
    """
    ours, seen = {_OURS: uuid4().hex}, list[int]()

    def write(opened: DeltaTable) -> int:
        seen.append(opened.version())
        if once is not None and behind is not None:
            last = opened.transaction_version(once[0])
            if last == once[1] and _has(opened, seen[0], ours[_OURS]):
                return opened.version()
            if (-1 if last is None else last) != behind:
                raise NumberTaken(once[0])
        if once is None or not _was_done(opened, *once, within, drawn=drawn):
            noted = [Transaction(*each) for each in (once, within) if each is not None]
            # delta-rs does not repeat a commit when another one has noted something under the name: that is done here.
            named = ours if behind is not None else None
            how = CommitProperties(custom_metadata=named, max_commit_retries=15, app_transactions=noted or None)
            write_deltalake(
                opened,
                fitted(opened, table, rows),
                mode="append",
                commit_properties=how,
                post_commithook_properties=LOG_STAYS,
            )
        return opened.version()

    return retried(root, table, write, pause)


def retried(
    root: str, table: Table, write: Callable[[DeltaTable], T], pause: Callable[[float], None] = time.sleep
) -> T:
    """Write to a table as it is; again, with growing pauses (s), when another writer was faster. Gives what that gives.

    Raises:
        NoWarehouse: there is no such table.
        StillConflicting: another writer was faster every time; nothing was written.
        OSError: nothing can be written to the disk.
    """
    here = Files().local(path_of(root, table))
    for attempt in range(ATTEMPTS):
        opened = open_table(root, table)
        if here is not None:
            check_room(here)
        try:
            return write(opened)
        except CommitFailedError:
            pause(_FIRST_PAUSE_S * 2**attempt * random.uniform(0.5, 1.5))  # noqa: S311 - jitter, not a secret
    raise StillConflicting(table.name, ATTEMPTS)


def _was_done(
    opened: DeltaTable, name: str, number: int, within: tuple[str, int] | None = None, *, drawn: bool = False
) -> bool:
    last = opened.transaction_version(name)
    if within is not None and last == number:
        return _was_done(opened, *within)
    return last is not None and (last == number if drawn else last >= number)


def _has(opened: DeltaTable, after: int, token: str) -> bool:
    """Whether a version after another one is that of an append.

    A store may say that a version is there because it has just put it there, at the first of two attempts.
    """
    later = opened.version() - after
    return later > 0 and any(each.get(_OURS) == token for each in opened.history(later))


def fitted(opened: DeltaTable, table: Table, rows: pa.Table) -> pa.Table:
    """Rows with all columns of a table as it is now: those that somebody added are NULL.

    Raises:
        ColumnGone: the table lacks a column of the rows.
    """
    found = pa.schema(opened.schema().to_arrow())
    for name in rows.column_names:
        # A warehouse of an earlier version gets these columns when its job starts the next time.
        if name not in found.names and name not in IDENTITY:
            raise ColumnGone(table.name, name, found.names)
    columns = [rows.column(each.name) if each.name in rows.column_names else each.type for each in found]
    filled = [pa.nulls(rows.num_rows, each) if isinstance(each, pa.DataType) else each for each in columns]
    # delta-rs does not keep the order of the pieces of a table.
    return pa.Table.from_arrays(filled, names=found.names).combine_chunks()


def replace_rows(opened: DeltaTable, table: Table, rows: list[dict[str, Any]], where: str) -> None:
    """Put rows, or none, in the place of those that meet a condition in SQL, by a commit; to be `retried`.

    Raises:
        ColumnGone: the table lacks a column of the rows.
        CommitFailedError: another writer was faster.
    """
    new = fitted(opened, table, rows_of(table, rows))
    if rows:
        write_deltalake(opened, new, mode="overwrite", predicate=where, post_commithook_properties=LOG_STAYS)
    else:
        opened.delete(where, post_commithook_properties=LOG_STAYS)


def rows_of(table: Table, rows: list[dict[str, Any]]) -> pa.Table:
    """Rows as Arrow, in the table's schema."""
    return pa.Table.from_pylist(rows, schema=arrow_schema(table))


def query(sql: str, **tables: DeltaTable) -> list[dict[str, Any]]:
    """The rows of a query (DataFusion's SQL) over tables, registered under the names they are given."""
    return python_rows(arrow_of(sql, **tables))


def arrow_of(sql: str, **tables: DeltaTable) -> pa.Table:
    """Answers of a query as Arrow; texts that are no UTF-8 stop nobody (`pipeline.delta.mended`)."""
    return answered(sql, tables, lambda opened: _whole(sql, opened))


def _whole(sql: str, tables: Mapping[str, DeltaTable]) -> pa.Table:
    # Not `pa.table`: it loads pandas to ask whether it was given one of its frames, which takes longer than the query.
    return batches_of(sql, **tables).read_all()


def batches_of(sql: str, **tables: DeltaTable) -> pa.RecordBatchReader:
    """Answers of a query piece by piece: whoever has seen enough reads no further."""
    builder = QueryBuilder()
    for name, table in tables.items():
        builder = builder.register(name, table)
    return pa.RecordBatchReader.from_stream(builder.execute(sql))


def instant(ms: int) -> str:
    """An instant, ms UTC, as a literal of SQL; compared with a column as it is, it lets files be left out."""
    return f"arrow_cast({ms * 1_000}, 'Timestamp(Microsecond, Some(\"UTC\"))')"


def quoted(text: str) -> str:
    """A text as a literal in the SQL of `query` and `arrow_of`."""
    return "'" + text.replace("'", "''") + "'"
