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
from pipeline.maintenance.exemptions import ExemptRows, Flags, OpenPositions
from pipeline.maintenance.rewrite import Rewriting, pieces
from pipeline.storage.arrays import longs
from pipeline.storage.parquet import RowGroup, row_groups
from schemas import Table
from schemas.columns import TIME

_MS_US = 1_000
_LEDGER, _BATCH = "ledger_id", "batch_id"
_ENTRY = "entry_id"
_RUN = ("first_entry", "last_entry")
_NOTHING_EXEMPT = ExemptRows()


@dataclass(frozen=True)
class Look:
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
    look: Look | None = None
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
        """The same for who cannot tell positions apart: from the first ledger with a kept one on, all stays."""
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
        ends = _RUN if _ENTRY not in self.table.schema.names else (_ENTRY, _ENTRY)
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
        yield from group.take(table.table.schema.names, np.flatnonzero(~old | stays))


def _groups(table: Rewriting, paths: Sequence[str]) -> Iterator[RowGroup]:
    return row_groups(table.table, (f"{table.folder}/{path}" for path in paths))
