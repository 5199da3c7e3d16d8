"""What a batch of dispatch does to the table `held`, before anything is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from pipeline.dispatch.core.holding import (
    AGAIN,
    EVERYTHING,
    Allowance,
    Who,
    counted,
    in_order,
    rows_except,
    rows_of_subscriptions,
    split_by_allowance,
)
from pipeline.dispatch.turns import Served, of_incarnation
from pipeline.storage.arrays import arrow_schema, longs
from pipeline.subscriptions.incarnations import Name
from schemas import HELD

HELD_KINDS = arrow_schema(HELD.columns)
"""The columns of the table."""
SOON_MS, LATEST_MS = 5_000, 60_000
"""A message whose guard could not be evaluated is tried again after so long, at the earliest and at the latest."""


@dataclass(frozen=True)
class BacklogChange:
    """What a batch does to the backlog; nothing is written yet.

    Attributes:
        gone: paths of files that go.
        held: runs that come in their place, or are new.
        allowed: how much of each subscription might be taken, of those that the batch concerns.
        served: what is taken in turn of incarnations.
        fresh: runs that are held, and were not before.
        back: runs that are taken and held again.
    """

    gone: tuple[str, ...] = ()
    held: pa.Table = field(default_factory=HELD_KINDS.empty_table)
    allowed: Mapping[Name, Allowance] = field(default_factory=dict)
    served: Mapping[Who, Served] = field(default_factory=dict)
    fresh: pa.Table = field(default_factory=HELD_KINDS.empty_table)
    back: pa.Table = field(default_factory=HELD_KINDS.empty_table)

    def __bool__(self) -> bool:
        """Whether the backlog changes."""
        return bool(self.gone or self.held.num_rows)

    def within(self, runs: pa.Table) -> tuple[pa.Table, BacklogChange, dict[Name, int]]:
        """Runs that were taken and not left out, less those that are more than may be handed over, which stay.

        Returns:
            The runs; the change, by which the others are held; how many positions are handed over of each subscription
            that has such a bound.
        """
        bounds = {name: Allowance(each.handed) for name, each in self.allowed.items() if each.handed < EVERYTHING}
        own = rows_of_subscriptions(runs, bounds)
        if not len(own):
            return runs, self, {}
        handed, stays, served = self._split(runs.take(pa.array(own)), bounds)
        counts: dict[Name, int] = {}
        for (topic, name, _), share in counted(handed).items():
            counts[topic, name] = counts.get((topic, name), 0) + share.positions
        left = pa.concat_tables([rows_except(runs, own), handed]).combine_chunks()
        return left, replace(self._with(as_held(stays)), served=served), counts

    def _split(self, runs: pa.Table, most: Mapping[Name, Allowance]) -> tuple[pa.Table, pa.Table, Mapping[Who, Served]]:
        """Runs that are handed over, those that are not, and whose turn it is then."""
        if not self.served:
            return *split_by_allowance(runs, most), self.served
        served, taken, stays = dict(self.served), list[pa.Table](), list[pa.Table]()
        for who, each in self.served.items():
            if who[:2] in most:
                handed, rest, served[who] = each.within(of_incarnation(runs, who), most[who[:2]].positions)
                taken.append(handed)
                stays.append(rest)
        others = rows_except(runs, rows_of_subscriptions(runs, {who[:2]: None for who in served}))
        handed, rest = split_by_allowance(others, most)
        return pa.concat_tables([*taken, handed]), pa.concat_tables([*stays, rest]), served

    def with_again(self, undecided: pa.Table, postponed: pa.Table, now: int) -> BacklogChange:
        """The change when some runs that were taken stay, because their guard cannot be evaluated on them.

        Args:
            undecided: rows of `redelivery` on which it failed. They are tried again the later the longer they are due:
                after the same time once more, within bounds.
            postponed: those about which it could not be asked. They are tried again as soon as it can.
            now: the time, ms UTC.
        """
        if not undecided.num_rows + postponed.num_rows:
            return self
        again = now + np.clip(now - longs(undecided, "due_time") // 1_000, SOON_MS, LATEST_MS)
        times = pa.array(again * 1_000).cast(HELD_KINDS.field(AGAIN).type)
        held = as_held(undecided.append_column(AGAIN, times))
        return self._with(pa.concat_tables([held, as_held(postponed)]))

    def _with(self, runs: pa.Table) -> BacklogChange:
        held, back = (in_order(pa.concat_tables([each, runs])) for each in (self.held, self.back))
        return replace(self, held=held, back=back)


def as_held(rows: pa.Table) -> pa.Table:
    """Runs in the columns of `held`; those that lack `again_at` are not to be tried again at a time."""
    if AGAIN not in rows.column_names:
        rows = rows.append_column(AGAIN, pa.nulls(rows.num_rows, HELD_KINDS.field(AGAIN).type))
    return rows.select(HELD_KINDS.names).cast(HELD_KINDS)
