"""What dispatch leaves out, and says so in `rejected_dispatch`: what commands withdraw (decision 0057).

Dispatch looks at `commands` once for each batch. A batch that is repeated after it said what it left out leaves out
exactly that, for whatever reason it did: also what had expired (`pipeline.dispatch.expiry`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from pipeline.config.stages import DISPATCH
from pipeline.delta.logs.entries import commits, newest
from pipeline.delta.logs.logfiles import appended
from pipeline.delta.logs.notes import note_of
from pipeline.delta.offsets import Offset
from pipeline.delta.reading.files import read_files
from pipeline.delta.warehouse import Warehouse
from pipeline.dispatch.holding import cut
from pipeline.dispatch.release import taken_apart
from pipeline.storage.arrays import IntArray, arrow_schema, completed, longs, rounds
from pipeline.subscriptions.commandlog import CommandLog
from pipeline.subscriptions.commands import withdrawals
from schemas import CANCELLED, COMMANDS, LEFT_OUT, REJECTED_DISPATCH, RESCHEDULED
from state.bitmaps import runs_of_bitmap
from state.positions import Positions
from state.positionset import PositionSet
from state.withdrawals import Round, Span, Withdrawals

UNDECIDED = "undecided"
"""The reason of what a batch held again, since its guard said nothing of it. No row of `rejected_dispatch` has it."""
NAMED = ("topic", "subscription", "life", "redelivery_count")
_REASONS = {True: RESCHEDULED, False: CANCELLED}
"""Of commands. A position that comes in a later round is not cancelled: that round may be."""
Parts = Mapping[Span, PositionSet]


@dataclass(frozen=True)
class Withdrawn:
    """What one batch of dispatch leaves out.

    Attributes:
        version: of `commands`; -1 when the batch had said before what it leaves out.
        parts: the positions that commands withdraw, by the rounds of them that are left out.
        others: positions that the batch had left out before for other reasons, by those.
    """

    version: int = -1
    parts: Parts = field(default_factory=dict)
    others: Mapping[str, Parts] = field(default_factory=dict)

    def split_withdrawn(self, runs: pa.Table) -> tuple[pa.Table, pa.Table]:
        """Rows of `redelivery` less what is withdrawn, and what is; runs are cut where that is needed.

        What is withdrawn has a column more, the reason. O(rows) when none is of a ledger with something withdrawn, and
        a few bitmaps for each row that is.
        """
        every = (positions for parts in self._by_reason.values() for positions in parts.values())
        ledgers = sorted({ledger for positions in every for ledger, _ in positions.by_ledger()})
        near = np.isin(longs(runs, "ledger_id"), np.array(ledgers, np.int64))
        if not near.any():
            return runs, with_reason(runs.slice(0, 0), "")
        some = runs.filter(pa.array(near))
        left, gone = Cut(), {reason: Cut() for reason in self._by_reason}
        for number, (of, place, ledger, own) in enumerate(_runs(some)):
            for reason, out in gone.items():
                hit = own & self._entries(reason, of, place, ledger)
                out.add(number, hit)
                own.difference_update(hit)
            left.add(number, own)
        pieces = [with_reason(out.of(some), reason) for reason, out in gone.items()]
        kept = pa.concat_tables([runs.filter(pa.array(~near)), left.of(some)])
        return kept.combine_chunks(), pa.concat_tables(pieces).combine_chunks()

    def and_undecided(self, runs: Sequence[Sequence[Any]]) -> Withdrawn:
        """The same with runs that the batch held again, by what `named` says of them."""
        if not runs:
            return self
        found: dict[Span, dict[int, BitMap]] = {}
        for *of, number, ledger, first, last in runs:
            span = Span(Round(*of), number, number + 1, moved=False)
            found.setdefault(span, {}).setdefault(ledger, BitMap()).add_range(first, last + 1)
        parts = {span: PositionSet(ledgers) for span, ledgers in found.items()}
        return replace(self, others={**self.others, UNDECIDED: parts})

    def _entries(self, reason: str, of: Round, number: int, ledger: int) -> BitMap:
        """The entries of a ledger of which a round is left out for a reason."""
        spans = self._by_name.get((reason, of), ())
        held = (positions.entries(ledger) for span, positions in spans if span.first <= number < span.end)
        return BitMap.union(BitMap(), *held)

    def __bool__(self) -> bool:
        """Whether anything is left out."""
        return bool(self.parts or self.others)

    @cached_property
    def _by_reason(self) -> dict[str, Parts]:
        """What comes in a later round is first."""
        of_commands = {
            reason: {span: each for span, each in self.parts.items() if span.moved == moved}
            for moved, reason in _REASONS.items()
        }
        return of_commands | dict(self.others)

    @cached_property
    def _by_name(self) -> dict[tuple[str, Round], list[tuple[Span, PositionSet]]]:
        found: dict[tuple[str, Round], list[tuple[Span, PositionSet]]] = {}
        for reason, parts in self._by_reason.items():
            for span, positions in parts.items():
                found.setdefault((reason, span.of), []).append((span, positions))
        return found

    def rows(self) -> pa.Table:
        """A row for each run: `NAMED`, ledger, first and last entry, the rounds from one to another, and the reason."""
        pieces = [
            _rows(span, positions.positions(), reason)
            for reason, parts in self._by_reason.items()
            for span, positions in parts.items()
        ]
        return pa.concat_tables([_LEFT_OUT.empty_table(), *pieces])


class WithdrawnLog:
    """What `commands` withdraw, followed from the first question on."""

    def __init__(self, warehouse: Warehouse) -> None:
        """Nothing is read yet."""
        self._log, self._said, self._known = CommandLog(warehouse), Withdrawals(), Withdrawn()

    def look(self) -> Withdrawn:
        """What is withdrawn as of the newest version. While nobody commanded anything, that is a look at the log.

        Of rows that came since the last time the cost is that of these rows: there may be millions of older ones.
        """
        seen = self._log.look()
        if seen.version != self._known.version:
            if seen.anew:
                self._said = Withdrawals()
            if seen.rows.num_rows:
                self._said.follow(withdrawals(seen.rows))
            self._known = Withdrawn(seen.version, self._said.left_out())
        return self._known


def said(warehouse: Warehouse, owner: str, batch: int, after: Offset) -> Withdrawn:
    """What dispatch left out of `redelivery` behind a place, by the files that its commits added, whatever came since.

    For a batch that is repeated that is its own commit, also when it took nothing of `redelivery` but what was held.
    When notes of batches are lost, one batch stands for several.
    """
    files, path = warehouse.files, warehouse.path(REJECTED_DISPATCH)
    added: list[str] = []
    for actions in commits(files, path, newest(files, path)):
        noted = note_of(actions)
        if noted is None or noted.stage != DISPATCH:
            continue
        if tuple(noted.note["source"]) <= after and (noted.owner, noted.batch) != (owner, batch):
            break
        added += [each["path"] for each in appended(actions)]
    rows = arrow_schema(REJECTED_DISPATCH.columns).empty_table()
    rows = read_files(warehouse, REJECTED_DISPATCH, added) if added else rows
    parts = {
        reason: _parts_of(rows.filter(pc.equal(rows.column("reason"), reason)), moved=reason == RESCHEDULED)
        for reason in LEFT_OUT
    }
    of_commands = {span: each for reason in _REASONS.values() for span, each in parts.pop(reason).items()}
    return Withdrawn(-1, of_commands, {reason: each for reason, each in parts.items() if each})


def named(runs: pa.Table | None) -> list[list[Any]]:
    """What names positions, for a note: `NAMED`, the round, ledger, first and last entry of each run of them.

    Messages that follow each other are one run, whenever they are due.
    """
    found: dict[tuple[Any, ...], BitMap] = {}
    for of, number, ledger, own in _runs(runs) if runs is not None else ():
        found.setdefault((*of, number, ledger), BitMap()).update(own)
    ends = ((of, *(each.tolist() for each in runs_of_bitmap(entries))) for of, entries in found.items())
    return [[*of, *run] for of, firsts, lasts in ends for run in zip(firsts, lasts, strict=True)]


def with_reason(runs: pa.Table, reason: str) -> pa.Table:
    """Runs with a column more, the reason for which they are left out."""
    return runs.append_column("reason", pa.repeat(reason, runs.num_rows))


def withdrawn_rows(gone: pa.Table, batch_id: int, most: int) -> pa.Table:
    """Rows of `rejected_dispatch` for runs that were withdrawn.

    Raises:
        NotInDriver: they are more than `most` positions.
    """
    run, entry = taken_apart(gone, most)
    schema, rows = arrow_schema(REJECTED_DISPATCH.columns), gone.drop_columns("batch_id").take(pa.array(run))
    columns = {name: rows.column(name) for name in schema.names if name in rows.column_names}
    columns |= {"rejected_at": rows.column("released_at"), "entry_id": pa.array(entry)}
    return completed(schema, columns, {"batch_id": batch_id}, len(run))


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


def at_time(runs: pa.Table, now: int) -> pa.Table:
    """Runs that were left out at a time (ms UTC), and not when they were released."""
    times = pa.repeat(pa.scalar(now * 1_000, runs.schema.field("released_at").type), runs.num_rows)
    return runs.set_column(runs.column_names.index("released_at"), "released_at", times)


class Cut:
    """Runs of rows: which row each is of, its first and its last entry."""

    def __init__(self) -> None:
        """None yet."""
        self._numbers, self._firsts, self._lasts = ([np.empty(0, np.int64)] for _ in range(3))

    def add(self, number: int, entries: BitMap) -> None:
        """Entries of the row of a number."""
        if entries:
            firsts, lasts = runs_of_bitmap(entries)
            self._numbers.append(np.full(len(firsts), number))
            self._firsts.append(firsts)
            self._lasts.append(lasts)

    def of(self, rows: pa.Table) -> pa.Table:
        """The rows, cut."""
        return cut(rows, *(np.concatenate(each) for each in (self._numbers, self._firsts, self._lasts)))


def without(runs: pa.Table, run: IntArray, entry: IntArray) -> tuple[pa.Table, pa.Table]:
    """Runs less some positions, and those; each position is named by the number of its run and the entry.

    Runs that go as a whole are not looked at one by one: mostly each message is a run.
    """
    if not len(run):
        return runs, runs.slice(0, 0)
    firsts, lasts = (longs(runs, name) for name in ("first_entry", "last_entry"))
    hits = np.bincount(run, minlength=runs.num_rows)
    is_whole = hits == lasts - firsts + 1
    left, gone = Cut(), Cut()
    some = np.flatnonzero(~is_whole[run])
    some = some[np.lexsort((entry[some], run[some]))]
    hit, starts = np.unique(run[some], return_index=True)
    for number, own in zip(hit.tolist(), np.split(entry[some], starts[1:]) if len(hit) else (), strict=True):
        out = BitMap(own.astype(np.uint32))
        gone.add(number, out)
        left.add(number, BitMap(range(firsts[number], lasts[number] + 1)) - out)
    pieces = [[runs.filter(pa.array(kept)), each.of(runs)] for kept, each in ((hits == 0, left), (is_whole, gone))]
    stays, goes = (pa.concat_tables(each).combine_chunks() for each in pieces)
    return stays, goes


def _runs(rows: pa.Table) -> Iterator[tuple[Round, int, int, BitMap]]:
    """What commands name it by, round, ledger and entries of each row."""
    columns = (rows.column(name).to_pylist() for name in _KEYS)
    for number, (*of, ledger, first, last) in zip(rounds(rows).tolist(), zip(*columns, strict=True), strict=True):
        own = BitMap()
        own.add_range(first, last + 1)
        yield Round(*of), number, ledger, own


def _rows(span: Span, positions: Positions, why: str) -> pa.Table:
    same = (*span.of, span.first, span.end, why)
    *of, first, end, reason = (pa.repeat(value, len(positions)) for value in same)
    runs = (pa.array(each) for each in (positions.ledger_ids, positions.first_entries, positions.last_entries))
    return pa.Table.from_arrays([*of, *runs, first, end, reason], schema=_LEFT_OUT)


def _parts_of(rows: pa.Table, *, moved: bool) -> Parts:
    """The positions of rows of `rejected_dispatch`."""
    found: dict[Span, dict[int, BitMap]] = {}
    columns = (rows.column(name).to_pylist() for name in (*NAMED, "ledger_id", "entry_id"))
    for number, (*of, ledger, entry) in zip(rounds(rows).tolist(), zip(*columns, strict=True), strict=True):
        span = Span(Round(*of), number, number + 1, moved)
        found.setdefault(span, {}).setdefault(ledger, BitMap()).add(entry)
    return {span: PositionSet(ledgers) for span, ledgers in found.items()}
