"""Files in which old rows lie beside positions that stay, row by row, as arrays in this process; no job runs.

A file is written anew when at least as many of its rows go as stay. So a row is copied a few times at most, however
slowly what is open gets settled, and of what could go no more is left than there is of what must stay.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.config.routes import NotInDriver
from pipeline.maintenance.kept import Flags, Kept, Spared
from pipeline.maintenance.rewrite import Rewriting, pieces
from pipeline.storage.arrays import longs
from pipeline.storage.parquet import RowGroup, row_groups
from schemas import Table

_MS_US = 1_000
_LEDGER, _BATCH = "ledger_id", "batch_id"
_ENTRY = "entry_id"
_RUN = ("first_entry", "last_entry")


@dataclass(frozen=True)
class Look:
    """What tells that rows are old where limits do not.

    Attributes:
        columns: what is looked at, small columns.
        old: which rows are, by these; NULL: it is not.
    """

    columns: tuple[str, ...]
    old: Callable[[pa.Table], pa.ChunkedArray]


@dataclass(frozen=True)
class Rule:
    """Which rows of a table are old: those above none of the limits, and of none of the batches; and which stay.

    Attributes:
        limits: the greatest values of columns; of times in ms UTC.
        batches: of the writer; their rows stay.
        kept: positions that stay.
        spared: rows that are not old yet, though they are above none of the limits.
        look: in the place of limits; then nothing is kept or spared.
    """

    limits: Mapping[str, int]
    batches: Collection[int]
    kept: Kept
    spared: Spared = field(default_factory=Spared)
    look: Look | None = None

    def of(self, table: Table, group: RowGroup) -> tuple[Flags, Flags]:
        """Of each row of a row group whether it is old, and whether it is that and stays all the same."""
        if self.look is not None:
            rows = group.read([*self.look.columns, _BATCH])
            told = pc.fill_null(self.look.old(rows), False).to_numpy()  # noqa: FBT003 - NULL is no
            return told & ~np.isin(longs(rows, _BATCH), list(self.batches)), np.zeros(len(told), np.bool_)
        ends = _RUN if _ENTRY not in table.schema.names else (_ENTRY, _ENTRY)
        more = ("topic", "due_time") if self.spared.topics else ()
        rows = group.read(sorted({*self.limits, *ends, _LEDGER, _BATCH, *more}))
        old = ~np.isin(longs(rows, _BATCH), list(self.batches))
        for name, top in self.limits.items():
            old &= longs(rows, name) <= (top * _MS_US if pa.types.is_timestamp(rows.schema.field(name).type) else top)
        if self.spared.topics:
            old &= ~self.spared.among(rows)
        stays = np.zeros(len(old), np.bool_)
        some = rows.filter(pa.array(old))
        stays[old] = self.kept.meets(*(longs(some, name) for name in (_LEDGER, *ends)))
        return old, stays


@dataclass(frozen=True)
class Sifted:
    """What becomes of some files.

    Attributes:
        table: whose files they are.
        rule: which of their rows go.
        going: how many rows of each go, by its path; 0: it is left as it is.
        partly: the paths of those of which some rows go and others stay.
    """

    table: Rewriting
    rule: Rule
    going: Mapping[str, int]
    partly: Sequence[str]

    def rest(self) -> Iterator[pa.Table]:
        """The rows that stay of those files of which some go, a piece at a time."""
        try:
            yield from pieces(self.table.table, self._rest())
        except pa.ArrowException as error:
            raise NotInDriver from error

    def _rest(self) -> Iterator[pa.Table]:
        for group in _groups(self.table, self.partly):
            old, stays = self.rule.of(self.table.table, group)
            yield from group.take(self.table.table.schema.names, np.flatnonzero(~old | stays))


def sift(table: Rewriting, rule: Rule, paths: Sequence[str]) -> Sifted:
    """Look at the rows of files; nothing is written.

    Raises:
        NotInDriver: they are not what the table says.
    """
    going, partly = dict[str, int](), list[str]()
    for path in paths:
        rows = gone = kept = 0
        try:
            for group in _groups(table, [path]):
                old, stays = rule.of(table.table, group)
                rows, gone, kept = rows + len(old), gone + int((old & ~stays).sum()), kept + int(stays.sum())
        except pa.ArrowException as error:
            raise NotInDriver from error
        going[path] = gone if not kept or 2 * gone >= rows else 0
        if 0 < going[path] < rows:
            partly.append(path)
    return Sifted(table, rule, going, partly)


def _groups(table: Rewriting, paths: Sequence[str]) -> Iterator[RowGroup]:
    return row_groups(table.table, (f"{table.folder}/{path}" for path in paths))
