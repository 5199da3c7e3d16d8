"""What commands withdraw: dispatch leaves it out, and says so in `rejected_dispatch` (decision 0057).

Dispatch looks at `commands` once for each batch. A batch that is repeated after it said what it left out leaves out
exactly that.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap
from pyspark.sql import SparkSession

from pipeline.config.stages import DISPATCH
from pipeline.delta.logs.entries import commits, metadata, newest
from pipeline.delta.logs.logfiles import appended
from pipeline.delta.logs.notes import Commit
from pipeline.delta.offsets import Offset
from pipeline.delta.reading.livefiles import LiveFiles
from pipeline.delta.reading.messagelog import Bounds
from pipeline.delta.warehouse import Warehouse
from pipeline.dispatch.release import taken_apart
from pipeline.storage.arrays import arrow_schema, longs
from pipeline.storage.hadoop import session_files
from pipeline.storage.parquet import NotInDriver, row_groups
from pipeline.subscriptions.commands import READ, withdrawals
from pipeline.subscriptions.settled import SettledMark, read_mark
from schemas import CANCELLED, COMMANDS, REJECTED_DISPATCH, Table
from state.bitmaps import runs_of_bitmap
from state.positions import Positions
from state.positionset import PositionSet
from state.withdrawals import Parts, Round

ROUND = ("topic", "subscription", "life", "redelivery_count")


@dataclass(frozen=True)
class Withdrawn:
    """What one batch of dispatch leaves out.

    Attributes:
        version: of `commands`; -1 when the batch had said before what it leaves out.
        parts: the positions.
    """

    version: int = -1
    parts: Parts = field(default_factory=dict)

    def parted(self, runs: pa.Table) -> tuple[pa.Table, pa.Table]:
        """Rows of `redelivery` less what is withdrawn, and what is; runs are cut where that is needed.

        O(rows) when none is of a ledger with something withdrawn, and a bitmap for each row that is.
        """
        ledgers = sorted({ledger for positions in self.parts.values() for ledger, _ in positions.by_ledger()})
        near = np.isin(longs(runs, "ledger_id"), np.array(ledgers, np.int64))
        if not near.any():
            return runs, runs.slice(0, 0)
        left, gone = _Cut(), _Cut()
        some = runs.filter(pa.array(near))
        for number, (of, ledger, own) in enumerate(_runs(some)):
            entries = self.parts.get(of, _NOTHING).entries(ledger)
            gone.add(number, own & entries)
            left.add(number, own - entries)
        return pa.concat_tables([runs.filter(pa.array(~near)), left.of(some)]).combine_chunks(), gone.of(some)

    def rows(self) -> pa.Table:
        """A row for each run: `ROUND`, ledger, first and last entry."""
        pieces = [_rows(of, positions.positions()) for of, positions in self.parts.items()]
        return pa.concat_tables([arrow_schema(COMMANDS.columns).empty_table().select(_KEYS), *pieces])


class WithdrawnLog:
    """The files of `commands`, each read once and held until maintenance takes it out.

    Rows below the mark of what is settled are for nobody any more: dispatch has taken their positions for good.
    """

    def __init__(self, spark: SparkSession, warehouse: Warehouse) -> None:
        """Nothing is read yet."""
        self._spark, self._path, self._files = spark, warehouse.path(COMMANDS), session_files(spark)
        self._root = warehouse.root
        self._live = LiveFiles(spark, self._path, COMMANDS, lambda file: Bounds.of_statistics(file.get("stats")))
        self._rows: dict[str, pa.Table] = {}
        self._known = Withdrawn()

    def look(self) -> Withdrawn:
        """What is withdrawn as of the newest version. While nobody commanded anything, that is a look at the log."""
        if self._known.version <= 0 and newest(self._files, self._path, 0) == 0:
            self._known = Withdrawn(0)
            return self._known
        version, files = self._live.look()
        if version != self._known.version:
            self._known = Withdrawn(version, self._parts(files))
        return self._known

    def _parts(self, files: Mapping[str, Bounds]) -> Parts:
        mark = read_mark(self._files, self._root)
        fresh = {
            path: self._read(path) for path, held in files.items() if path not in self._rows and _above(held, mark)
        }
        self._rows = {path: _needed(rows, mark) for path, rows in (self._rows | fresh).items() if path in files}
        return withdrawals(pa.concat_tables(self._rows.values())).in_force() if self._rows else {}

    def _read(self, path: str) -> pa.Table:
        return read_files(self._spark, self._path, COMMANDS, [path]).select(READ)


def said(spark: SparkSession, warehouse: Warehouse, owner: str, batch: int, after: Offset) -> Withdrawn:
    """What dispatch left out of `redelivery` behind a place, by the files that its commits added, whatever came since.

    For a batch that is repeated that is its own commit, also when it took nothing of `redelivery` but what was held.
    When notes of batches are lost, one batch stands for several.
    """
    files, path = session_files(spark), warehouse.path(REJECTED_DISPATCH)
    added: list[str] = []
    for actions in commits(files, path, newest(files, path)):
        noted = Commit.loads(metadata(actions))
        if noted is None or noted.stage != DISPATCH:
            continue
        if tuple(noted.note["source"]) <= after and (noted.owner, noted.batch) != (owner, batch):
            break
        added += [each["path"] for each in appended(actions)]
    rows = arrow_schema(REJECTED_DISPATCH.columns).empty_table()
    rows = read_files(spark, path, REJECTED_DISPATCH, added) if added else rows
    return Withdrawn(-1, _parts_of(rows.filter(pc.equal(rows.column("reason"), CANCELLED))))


def cancelled_rows(gone: pa.Table, batch_id: int, most: int) -> pa.Table:
    """Rows of `rejected_dispatch` for runs that were withdrawn.

    Raises:
        NotInDriver: they are more than `most` positions.
    """
    run, entry = taken_apart(gone, most)
    told = {
        "reason": pa.repeat(CANCELLED, len(run)),
        "rejected_at": gone.column("released_at").take(pa.array(run)),
        "batch_id": pa.repeat(batch_id, len(run)),
        "entry_id": pa.array(entry),
    }
    names = REJECTED_DISPATCH.columns.names
    columns = [told[name] if name in told else gone.column(name).take(pa.array(run)) for name in names]
    return pa.Table.from_arrays(columns, names=names).cast(arrow_schema(REJECTED_DISPATCH.columns))


def read_files(spark: SparkSession, path: str, table: Table, names: list[str]) -> pa.Table:
    """The rows of files of a table, by paths relative to it."""
    wanted = arrow_schema(table.columns)
    with suppress(NotInDriver):
        folder = session_files(spark).readable(path)
        if folder is not None:
            groups = row_groups(table, [f"{folder}/{name}" for name in names])
            return pa.concat_tables([wanted.empty_table(), *(group.read(wanted.names) for group in groups)])
    found = spark.read.schema(table.schema).parquet(*(f"{path}/{name}" for name in names))
    return found.toArrow().cast(wanted)


def _above(held: Bounds, mark: SettledMark) -> bool:
    """Whether a file has rows that are not below a mark."""
    return held.last_due > mark.due_ms or held.last_ledger >= mark.ledger


def _needed(rows: pa.Table, mark: SettledMark) -> pa.Table:
    """The rows that are not below a mark."""
    due = pc.less_equal(rows.column("due_time").cast(pa.int64()), mark.due_ms * 1_000)
    below = pc.and_(due, pc.less(rows.column("ledger_id"), mark.ledger))
    return rows.filter(pc.invert(pc.fill_null(below, fill_value=False)))


_NOTHING = PositionSet()
_RUN = ("ledger_id", "first_entry", "last_entry")
_KEYS = [*ROUND, *_RUN]


class _Cut:
    """Runs of rows: which row each is of, its first and its last entry."""

    def __init__(self) -> None:
        self._numbers, self._firsts, self._lasts = ([np.empty(0, np.int64)] for _ in range(3))

    def add(self, number: int, entries: BitMap) -> None:
        if entries:
            firsts, lasts = runs_of_bitmap(entries)
            self._numbers.append(np.full(len(firsts), number))
            self._firsts.append(firsts)
            self._lasts.append(lasts)

    def of(self, rows: pa.Table) -> pa.Table:
        found = rows.take(pa.array(np.concatenate(self._numbers)))
        for name, ends in (("first_entry", self._firsts), ("last_entry", self._lasts)):
            found = found.set_column(found.column_names.index(name), name, pa.array(np.concatenate(ends)))
        return found


def _runs(rows: pa.Table) -> Iterator[tuple[Round, int, BitMap]]:
    columns = (rows.column(name).to_pylist() for name in _KEYS)
    for topic, subscription, life, count, ledger, first, last in zip(*columns, strict=True):
        own = BitMap()
        own.add_range(first, last + 1)
        yield Round(topic, subscription, life, count), ledger, own


def _rows(of: Round, positions: Positions) -> pa.Table:
    columns = [pa.repeat(value, len(positions)) for value in of]
    columns += [pa.array(each) for each in (positions.ledger_ids, positions.first_entries, positions.last_entries)]
    return pa.Table.from_arrays(columns, names=_KEYS)


def _parts_of(rows: pa.Table) -> Parts:
    """The positions of rows of `rejected_dispatch`."""
    found: dict[Round, dict[int, BitMap]] = {}
    columns = (rows.column(name).to_pylist() for name in (*ROUND, "ledger_id", "entry_id"))
    for *of, ledger, entry in zip(*columns, strict=True):
        found.setdefault(Round(*of), {}).setdefault(ledger, BitMap()).add(entry)
    return {of: PositionSet(ledgers) for of, ledgers in found.items()}
