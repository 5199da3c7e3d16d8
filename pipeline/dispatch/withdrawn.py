"""What commands withdraw: dispatch leaves it out, and says so in `rejected_dispatch` (decision 0057).

Dispatch looks at `commands` once for each batch. A batch that is repeated after it said what it left out leaves out
exactly that.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

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
from pipeline.delta.warehouse import Warehouse
from pipeline.dispatch.release import taken_apart
from pipeline.storage.arrays import arrow_schema, longs, rounds
from pipeline.storage.hadoop import session_files
from pipeline.subscriptions.commandlog import CommandLog, read_files
from pipeline.subscriptions.commands import withdrawals
from schemas import CANCELLED, COMMANDS, REJECTED_DISPATCH, RESCHEDULED
from state.bitmaps import runs_of_bitmap
from state.positions import Positions
from state.positionset import PositionSet
from state.withdrawals import Round, Span

NAMED = ("topic", "subscription", "life", "redelivery_count")
_REASONS = {True: RESCHEDULED, False: CANCELLED}
"""A position that comes in a later round is not cancelled: that round may be."""
Parts = Mapping[Span, PositionSet]


@dataclass(frozen=True)
class Withdrawn:
    """What one batch of dispatch leaves out.

    Attributes:
        version: of `commands`; -1 when the batch had said before what it leaves out.
        parts: the positions, by the rounds of them that are left out.
    """

    version: int = -1
    parts: Parts = field(default_factory=dict)

    def parted(self, runs: pa.Table) -> tuple[pa.Table, pa.Table]:
        """Rows of `redelivery` less what is withdrawn, and what is; runs are cut where that is needed.

        What is withdrawn has a column more, the reason. O(rows) when none is of a ledger with something withdrawn, and
        a few bitmaps for each row that is.
        """
        ledgers = sorted({ledger for positions in self.parts.values() for ledger, _ in positions.by_ledger()})
        near = np.isin(longs(runs, "ledger_id"), np.array(ledgers, np.int64))
        if not near.any():
            return runs, runs.slice(0, 0).append_column("reason", pa.array([], pa.string()))
        some = runs.filter(pa.array(near))
        left, gone = _Cut(), {moved: _Cut() for moved in _REASONS}
        for number, (of, place, ledger, own) in enumerate(_runs(some)):
            for moved, cut in gone.items():
                hit = own & self._entries(of, place, ledger, moved=moved)
                cut.add(number, hit)
                own.difference_update(hit)
            left.add(number, own)
        pieces = [(cut.of(some), _REASONS[moved]) for moved, cut in gone.items()]
        told = [piece.append_column("reason", pa.repeat(reason, piece.num_rows)) for piece, reason in pieces]
        kept = pa.concat_tables([runs.filter(pa.array(~near)), left.of(some)])
        return kept.combine_chunks(), pa.concat_tables(told).combine_chunks()

    def _entries(self, of: Round, number: int, ledger: int, *, moved: bool) -> BitMap:
        """The entries of a ledger of which a round is left out for a reason."""
        spans = self._by_name.get(of, ())
        return BitMap.union(
            BitMap(),
            *(held.entries(ledger) for span, held in spans if span.first <= number < span.end and span.moved == moved),
        )

    @cached_property
    def _by_name(self) -> dict[Round, list[tuple[Span, PositionSet]]]:
        found: dict[Round, list[tuple[Span, PositionSet]]] = {}
        for span, positions in self.parts.items():
            found.setdefault(span.of, []).append((span, positions))
        return found

    def rows(self) -> pa.Table:
        """A row for each run: `NAMED`, ledger, first and last entry, the rounds from one to another, and the reason."""
        pieces = [_rows(span, positions.positions()) for span, positions in self.parts.items()]
        return pa.concat_tables([_LEFT_OUT.empty_table(), *pieces])


class WithdrawnLog:
    """What `commands` withdraw, followed from the first question on."""

    def __init__(self, spark: SparkSession, warehouse: Warehouse) -> None:
        """Nothing is read yet."""
        self._log, self._known = CommandLog(spark, warehouse), Withdrawn()

    def look(self) -> Withdrawn:
        """What is withdrawn as of the newest version. While nobody commanded anything, that is a look at the log."""
        version, rows = self._log.look()
        if version != self._known.version:
            self._known = Withdrawn(version, withdrawals(rows).left_out() if rows.num_rows else {})
        return self._known


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
    return Withdrawn(-1, _parts_of(rows.filter(pc.is_in(rows.column("reason"), pa.array(list(_REASONS.values()))))))


def withdrawn_rows(gone: pa.Table, batch_id: int, most: int) -> pa.Table:
    """Rows of `rejected_dispatch` for runs that were withdrawn.

    Raises:
        NotInDriver: they are more than `most` positions.
    """
    run, entry = taken_apart(gone, most)
    told = {
        "rejected_at": gone.column("released_at").take(pa.array(run)),
        "batch_id": pa.repeat(batch_id, len(run)),
        "entry_id": pa.array(entry),
    }
    names = REJECTED_DISPATCH.columns.names
    columns = [told[name] if name in told else gone.column(name).take(pa.array(run)) for name in names]
    return pa.Table.from_arrays(columns, names=names).cast(arrow_schema(REJECTED_DISPATCH.columns))


_RUN = ("ledger_id", "first_entry", "last_entry")
_KEYS = [*NAMED, *_RUN]
_LEFT_OUT = pa.schema(
    [
        *(arrow_schema(COMMANDS.columns).field(name) for name in _KEYS),
        ("first_round", pa.int64()),
        ("end_round", pa.int64()),
        ("reason", pa.string()),
    ]
)


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


def _runs(rows: pa.Table) -> Iterator[tuple[Round, int, int, BitMap]]:
    """What commands name it by, round, ledger and entries of each row."""
    columns = (rows.column(name).to_pylist() for name in _KEYS)
    for number, (*of, ledger, first, last) in zip(rounds(rows).tolist(), zip(*columns, strict=True), strict=True):
        own = BitMap()
        own.add_range(first, last + 1)
        yield Round(*of), number, ledger, own


def _rows(span: Span, positions: Positions) -> pa.Table:
    same = (*span.of, span.first, span.end, _REASONS[span.moved])
    *of, first, end, reason = (pa.repeat(value, len(positions)) for value in same)
    runs = (pa.array(each) for each in (positions.ledger_ids, positions.first_entries, positions.last_entries))
    return pa.Table.from_arrays([*of, *runs, first, end, reason], schema=_LEFT_OUT)


def _parts_of(rows: pa.Table) -> Parts:
    """The positions of rows of `rejected_dispatch`."""
    found: dict[Span, dict[int, BitMap]] = {}
    columns = (rows.column(name).to_pylist() for name in (*NAMED, "reason", "ledger_id", "entry_id"))
    for number, (*of, reason, ledger, entry) in zip(rounds(rows).tolist(), zip(*columns, strict=True), strict=True):
        span = Span(Round(*of), number, number + 1, reason == RESCHEDULED)
        found.setdefault(span, {}).setdefault(ledger, BitMap()).add(entry)
    return {span: PositionSet(ledgers) for span, ledgers in found.items()}
