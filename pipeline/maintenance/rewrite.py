"""Files of a table, written anew into others by whole arrays in this process: no job runs, so no stage waits for one.

Spark needs ten times the processor for the same rows, and all cores at once (decision 0016).

Files in which old rows lie beside positions that stay are looked at row by row. A file is written anew when at least as
many of its rows go as stay. So a row is copied a few times at most, however slowly what is open gets settled, and of
what could go no more is left than there is of what must stay.
"""

import json
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.config.errors import UnknownTableFeature
from pipeline.config.routes import NotInDriver
from pipeline.config.session import compiled
from pipeline.config.settings import FIRST_INSTANT_MS, LAST_INSTANT_MS
from pipeline.delta.logs.entries import is_plain
from pipeline.delta.logs.logstore import TableLog
from pipeline.delta.reading.messages import Bounds, due_times, message_rows
from pipeline.delta.warehouse import Warehouse
from pipeline.delta.writing.appender import Appender
from pipeline.delta.writing.datafiles import DataFile, rows
from pipeline.delta.writing.numbering import SortKey, columns_of, order_of
from pipeline.maintenance.exemptions import ExemptRows, Flags, OpenPositions
from pipeline.storage.arrays import arrow_schema, longs
from pipeline.storage.parquet import RowGroup, row_groups
from schemas import MESSAGES, Table
from schemas.columns import TIME

_LOG = logging.getLogger(__name__)
_MOST_BYTES = 256 << 20
"""What a file that is written may come to before it is compressed."""

_ORDER: tuple[SortKey[pa.Table], ...] = tuple(
    SortKey((name,), partial(longs, column=name)) for name in ("due_time", "ledger_id", "entry_id")
)
"""The order of rows of `messages`."""


@dataclass(frozen=True)
class Rewriting:
    """A table at a version, and what it takes to write some of its files anew.

    Attributes:
        warehouse: of which it is a table.
        path: where it lies.
        table: which one.
        folder: the same as arrays are read; None where only Spark reads it.
        appender: writes to it.
        seen: the version.
        files: path, size, statistics and tags of its files, or of some, as the log spells them.
    """

    warehouse: Warehouse
    path: str
    table: Table
    folder: str | None
    appender: Appender
    seen: int
    files: Sequence[Mapping[str, Any]]

    @classmethod
    def of(cls, warehouse: Warehouse, table: Table) -> "Rewriting":
        """The table as it is now.

        Raises:
            NotInDriver: it is not what its contract says.
        """
        return cls.at(warehouse, table, *TableLog(warehouse.session, warehouse.path(table)).files())

    @classmethod
    def at(cls, warehouse: Warehouse, table: Table, seen: int, files: Sequence[Mapping[str, Any]]) -> "Rewriting":
        """Some files of the table, or all, as of a version.

        Raises:
            NotInDriver: it is not what its contract says.
        """
        path = warehouse.path(table)
        if not _is_known(table, TableLog(warehouse.session, path)):
            raise NotInDriver
        try:
            appender = Appender(warehouse.session, path, table)
        except UnknownTableFeature as error:
            raise NotInDriver from error
        folder = warehouse.files.readable(path)
        if not all(map(is_plain, files)):
            raise NotInDriver
        return cls(warehouse, path, table, folder, appender, seen, files)

    def write(self, paths: Sequence[str], count: int = 1) -> list[DataFile]:
        """Write the rows of files into about so many others; those of `messages` in the order of their due times.

        Raises:
            NotInDriver: they are not what the table says, or their rows are too large.
        """
        if self.folder is None:
            return self.write_by_spark(paths, count)
        here = [f"{self.folder}/{unquote(path)}" for path in paths]
        pieces = _in_order(here, count) if self.table is MESSAGES else _as_they_are(self.table, here)
        fresh: list[DataFile] = []
        try:
            # One piece is held at a time.
            while (piece := next(pieces, None)) is not None:
                fresh += self.appender.put(piece)
                del piece
        except Exception as error:
            self.appender.discard(fresh)
            if isinstance(error, pa.ArrowException):
                raise NotInDriver from error
            raise
        return fresh

    def write_by_spark(self, paths: Sequence[str], count: int) -> list[DataFile]:
        """What `write` gives, of rows that only Spark reaches, or that do not fit into it."""
        spark = self.warehouse.spark
        rows = spark.read.schema(self.table.schema).parquet(*(f"{self.path}/{unquote(path)}" for path in paths))
        with compiled(spark):
            if self.table is not MESSAGES:
                return self.appender.write(rows.coalesce(count))
            ahead = rows.repartitionByRange(count, "due_time")
            return self.appender.write(ahead.sortWithinPartitions(*columns_of(_ORDER)))

    def put_in_place(
        self,
        old: Mapping[str, int],
        count: int,
        fresh: Sequence[DataFile],
        tags: Mapping[str, str],
        *,
        fewer: bool = False,
    ) -> bool:
        """Make files visible in the place of others, if nobody has touched those.

        Args:
            old: sizes of the others in bytes, by their paths.
            count: how many rows the files must have.
            fresh: what `write` gave.
            tags: what the log says of them.
            fewer: rows were left out.

        Returns:
            Whether they are there. If not, that is logged, and nothing has changed.

        Raises:
            NotInDriver: they have more rows, or fewer.
        """
        if rows(fresh) != count:
            _LOG.error("%s: written anew, files have %d rows instead of %d", self.table.name, rows(fresh), count)
            self.appender.discard(fresh)
            raise NotInDriver
        if not self.appender.replace(self.seen, old, fresh, tags, fewer=fewer):
            _LOG.warning("%s: files are left as they are: another commit was in the way", self.table.name)
            self.appender.discard(fresh)
            return False
        return True


def _is_known(table: Table, log: TableLog) -> bool:
    """Whether a table has the columns of its contract and no others."""
    found = json.loads(log.head().metadata["schemaString"])["fields"]
    wanted = json.loads(table.columns.json())["fields"]
    return [(each["name"], each["type"]) for each in found] == [(each["name"], each["type"]) for each in wanted]


def _as_they_are(table: Table, paths: Sequence[str]) -> Iterator[pa.Table]:
    """The rows of files, a piece at a time."""
    return pieces(table, (few for group in row_groups(table, paths) for few in group.all()))


def pieces(table: Table, rows: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Rows in pieces of which each becomes a file: they may unfold to far more than the files have they come from."""
    held, size = [arrow_schema(table.columns).empty_table()], 0
    for few in rows:
        held.append(few)
        size += few.nbytes
        if size > _MOST_BYTES:
            yield pa.concat_tables(held)
            held, size = held[:1], 0
    yield pa.concat_tables(held).combine_chunks()


def _in_order(paths: Sequence[str], count: int) -> Iterator[pa.Table]:
    """The rows of files of `messages`: in slices of due time, each in order."""
    due = np.sort(due_times(paths))
    cuts = np.unique(due[[len(due) * number // count for number in range(1, count)]]) if len(due) else due
    for first, end in pairwise([FIRST_INSTANT_MS, *cuts.tolist(), LAST_INSTANT_MS + 1]):
        held = message_rows(paths, Bounds(first_due=first, last_due=end - 1), _MOST_BYTES)
        held = held.take(pa.array(order_of(held, _ORDER)))
        yield held
        del held


_MS_US = 1_000
_LEDGER, _BATCH = "ledger_id", "batch_id"
_ENTRY = "entry_id"
_RUN = ("first_entry", "last_entry")
_NOTHING_EXEMPT = ExemptRows()


@dataclass(frozen=True)
class RowPredicate:
    """What tells that rows are old where limits do not.

    Attributes:
        columns: what is looked at, small columns.
        old: which rows are, by these; NULL: it is not.
        always: which rows go together or not at all, whatever the batches that wrote them; None: none do.
    """

    columns: tuple[str, ...]
    old: Callable[[pa.Table], pa.ChunkedArray]
    always: Callable[[pa.Table], pa.BooleanArray] | None = None


@dataclass(frozen=True)
class Expired:
    """Rows of a table that may go.

    Attributes:
        table: the table.
        condition: an SQL condition on its columns.
        limits: the same for rows that are read as arrays: none of these columns is above its number (times in ms UTC).
            Without any, nothing can be kept.
        look: the same where there are no limits; without either only Spark can tell.
        kept: what stays all the same.
        exempt: what is not old yet; `condition` leaves it out.
        batches: of the writer; their rows stay, whatever the condition says.
    """

    table: Table
    condition: str
    limits: Mapping[str, int] = field(default_factory=dict)
    kept: OpenPositions = field(default_factory=OpenPositions)
    exempt: ExemptRows = field(default_factory=ExemptRows)
    look: RowPredicate | None = None
    batches: Collection[int] = ()

    @classmethod
    def within(
        cls, table: Table, kept: OpenPositions, limits: Mapping[str, int], exempt: ExemptRows = _NOTHING_EXEMPT
    ) -> "Expired":
        """The rows of which no column is above its limit, less what is exempt."""
        kinds = {each.name: each.kind for each in table.columns.fields}
        texts = {name: f"timestamp_millis({top})" if kinds[name] == TIME else str(top) for name, top in limits.items()}
        condition = " AND ".join(f"{name} <= {text}" for name, text in texts.items())
        return cls(table, exempt.less(condition), limits, kept, exempt)

    @property
    def going(self) -> str:
        """The condition less the rows of the batches; what is kept is among them."""
        named = ", ".join(map(str, sorted(self.batches)))
        return f"{self.condition} AND batch_id NOT IN ({named})" if self.batches else self.condition

    @property
    def coarse(self) -> str:
        """What goes for who cannot tell positions apart: from the first ledger with a kept one on, all stays."""
        oldest = self.kept.oldest
        return self.going if oldest is None else f"{self.going} AND ledger_id < {oldest}"

    def of(self, group: RowGroup) -> tuple[Flags, Flags]:
        """Of each row of a row group whether it is old, and whether it is that and stays all the same."""
        if self.look is not None:
            rows = group.read([*self.look.columns, _BATCH])
            flags = pc.fill_null(self.look.old(rows), False).to_numpy(zero_copy_only=False)  # noqa: FBT003 - NULL is no
            flags &= ~np.isin(longs(rows, _BATCH), list(self.batches))
            if self.look.always is not None:
                flags |= self.look.always(rows).to_numpy(zero_copy_only=False)
            return flags, np.zeros(len(flags), np.bool_)
        ends = _RUN if _ENTRY not in self.table.columns.names else (_ENTRY, _ENTRY)
        more = ("topic", "due_time") if self.exempt.topics else ()
        rows = group.read(sorted({*self.limits, *ends, _LEDGER, _BATCH, *more}))
        old = ~np.isin(longs(rows, _BATCH), list(self.batches))
        for name, top in self.limits.items():
            old &= longs(rows, name) <= (top * _MS_US if pa.types.is_timestamp(rows.schema.field(name).type) else top)
        if self.exempt.topics:
            old &= ~self.exempt.among(rows)
        stays = np.zeros(len(old), np.bool_)
        some = rows.filter(pa.array(old))
        stays[old] = self.kept.meets(*(longs(some, name) for name in (_LEDGER, *ends)))
        return old, stays


def sift(table: Rewriting, expired: Expired, paths: Sequence[str]) -> tuple[dict[str, int], list[str]]:
    """Look at the rows of files; nothing is written.

    Returns:
        How many rows of each go, by its path; 0: it is left as it is. And those of which some rows go and others stay.

    Raises:
        NotInDriver: they are not what the table says.
    """
    going, partly = dict[str, int](), list[str]()
    for path in paths:
        rows = gone = kept = 0
        try:
            for group in _groups(table, [path]):
                old, stays = expired.of(group)
                rows, gone, kept = rows + len(old), gone + int((old & ~stays).sum()), kept + int(stays.sum())
        except pa.ArrowException as error:
            raise NotInDriver from error
        going[path] = gone if not kept or 2 * gone >= rows else 0
        if 0 < going[path] < rows:
            partly.append(path)
    return going, partly


def rest(table: Rewriting, expired: Expired, partly: Sequence[str]) -> Iterator[pa.Table]:
    """The rows that stay of those files of which some go, a piece at a time.

    Raises:
        NotInDriver: as for `sift`.
    """
    try:
        yield from pieces(table.table, _staying(table, expired, partly))
    except pa.ArrowException as error:
        raise NotInDriver from error


def _staying(table: Rewriting, expired: Expired, partly: Sequence[str]) -> Iterator[pa.Table]:
    for group in _groups(table, partly):
        old, stays = expired.of(group)
        yield from group.take(table.table.columns.names, np.flatnonzero(~old | stays))


def _groups(table: Rewriting, paths: Sequence[str]) -> Iterator[RowGroup]:
    return row_groups(table.table, (f"{table.folder}/{path}" for path in paths))
