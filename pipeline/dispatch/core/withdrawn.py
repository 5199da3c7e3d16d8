"""What dispatch leaves out, and says so in `rejected_dispatch`: what commands withdraw, and newer messages replace.

A batch that is repeated after it said what it left out leaves out exactly that, for whatever reason it did: also what
had expired (`pipeline.dispatch.core.expiry`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from pipeline.dispatch.core.runs import Cut, with_reason
from pipeline.storage.arrays import arrow_schema, longs, rounds
from schemas import CANCELLED, COMMANDS, LEFT_OUT, RESCHEDULED
from state.bitmaps import runs_of_bitmap
from state.positions import Positions
from state.positionset import PositionSet
from state.withdrawals import Round, Span

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
        others: positions that are left out for other reasons, by those: newer messages replaced them, or the batch had
            left them out before.
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

    @classmethod
    def of_rows(cls, rows: pa.Table) -> Withdrawn:
        """What rows of `rejected_dispatch` say that a batch has left out."""
        parts = {
            reason: _parts_of(rows.filter(pc.equal(rows.column("reason"), reason)), moved=reason == RESCHEDULED)
            for reason in LEFT_OUT
        }
        of_commands = {span: each for reason in _REASONS.values() for span, each in parts.pop(reason).items()}
        return cls(-1, of_commands, {reason: each for reason, each in parts.items() if each})

    def and_undecided(self, runs: Sequence[Sequence[Any]]) -> Withdrawn:
        """What is withdrawn, with runs that the batch held again, by what `named` says of them."""
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
        """What comes in a later round is first; of two reasons the later one in the alphabet counts, as on Spark."""
        of_commands = {
            reason: {span: each for span, each in self.parts.items() if span.moved == moved}
            for moved, reason in _REASONS.items()
        }
        return dict(sorted((of_commands | dict(self.others)).items(), reverse=True))

    @cached_property
    def _by_name(self) -> dict[tuple[str, Round], list[tuple[Span, PositionSet]]]:
        found: dict[tuple[str, Round], list[tuple[Span, PositionSet]]] = {}
        for reason, parts in self._by_reason.items():
            for span, positions in parts.items():
                found.setdefault((reason, span.of), []).append((span, positions))
        return found

    def rows(self, ledgers: Collection[int] | None = None) -> pa.Table:
        """A row for each run: `NAMED`, ledger, first and last entry, the rounds from one to another, and the reason.

        Args:
            ledgers: those of which rows are wanted; None: all.
        """
        pieces = [
            _rows(span, _of_ledgers(positions, ledgers).positions(), reason)
            for reason, parts in self._by_reason.items()
            for span, positions in parts.items()
        ]
        return pa.concat_tables([_LEFT_OUT.empty_table(), *pieces])


def named(runs: pa.Table | None) -> list[list[Any]]:
    """What names positions, for a note: `NAMED`, the round, ledger, first and last entry of each run of them.

    Messages that follow each other are one run, whenever they are due.
    """
    found: dict[tuple[Any, ...], BitMap] = {}
    for of, number, ledger, own in _runs(runs) if runs is not None else ():
        found.setdefault((*of, number, ledger), BitMap()).update(own)
    ends = ((of, *(each.tolist() for each in runs_of_bitmap(entries))) for of, entries in found.items())
    return [[*of, *run] for of, firsts, lasts in ends for run in zip(firsts, lasts, strict=True)]


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


def _runs(rows: pa.Table) -> Iterator[tuple[Round, int, int, BitMap]]:
    """What commands name it by, round, ledger and entries of each row."""
    columns = (rows.column(name).to_pylist() for name in _KEYS)
    for number, (*of, ledger, first, last) in zip(rounds(rows).tolist(), zip(*columns, strict=True), strict=True):
        own = BitMap()
        own.add_range(first, last + 1)
        yield Round(*of), number, ledger, own


def _of_ledgers(positions: PositionSet, ledgers: Collection[int] | None) -> PositionSet:
    return positions if ledgers is None else PositionSet({each: positions.entries(each) for each in ledgers})


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
