"""Which runs of positions are taken now, and which are held back for their subscription: by whole arrays.

Nothing here knows why: how much of a subscription may be taken is given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.storage.arrays import IntArray, longs
from pipeline.subscriptions.incarnations import Name

Who = tuple[str, str, int]
"""Topic, subscription and life."""
EVERYTHING = 1 << 62
"""More positions, and later, than there are."""
AGAIN = "again_at"
"""The column of `held` that says when a message is tried again whose guard could not be evaluated."""
LONG_AGO = -(EVERYTHING // 1_000) * 1_000
"""Before all times, us UTC."""


@dataclass(frozen=True)
class Allowance:
    """How much of a subscription may be taken.

    Attributes:
        positions: so many, the first ones in the order of delivery.
        due_until: only what is due until then, ms UTC.
        expired: so many more, of those that are due until `expired_until`: nobody gets them any more.
        expired_until: what is due until then has expired, ms UTC.
        handed: so many are handed over of those that are taken and not left out; the rest is held again.
    """

    positions: int
    due_until: int = EVERYTHING
    expired: int = 0
    expired_until: int = -EVERYTHING
    handed: int = EVERYTHING

    @property
    def only_expired(self) -> Allowance:
        """The allowance when only what has expired may be taken."""
        return replace(self, positions=0, due_until=self.expired_until)

    @property
    def is_nothing(self) -> bool:
        """Whether nothing may be taken."""
        return self.positions <= 0 and self.expired <= 0


def rows_of_subscriptions(rows: pa.Table, names: Mapping[Name, object]) -> IntArray:
    """The numbers of the rows that are of some subscriptions."""
    if not names or not rows.num_rows:
        return np.empty(0, np.int64)
    code, known = coded(rows)
    wanted = np.array([name in names for name in known], np.bool_)
    return np.flatnonzero(wanted[code])


def rows_except(rows: pa.Table, numbers: IntArray) -> pa.Table:
    """Rows less some of them."""
    kept = np.ones(rows.num_rows, np.bool_)
    kept[numbers] = False
    return rows.filter(pa.array(kept))


def cut(rows: pa.Table, numbers: IntArray, firsts: IntArray, lasts: IntArray) -> pa.Table:
    """Parts of runs: the number of the row that each is of, its first entry and its last one."""
    found = rows.take(pa.array(numbers))
    for name, ends in (("first_entry", firsts), ("last_entry", lasts)):
        found = found.set_column(found.column_names.index(name), name, pa.array(ends))
    return found


def comes(rows: pa.Table) -> IntArray:
    """From when on runs may be taken, us UTC: from when they are due, or later when they are to be tried again then."""
    due = longs(rows, "due_time")
    if AGAIN not in rows.column_names:
        return due
    again: IntArray = pc.fill_null(rows.column(AGAIN).cast(pa.int64()), LONG_AGO).to_numpy()
    return np.maximum(due, again)


def split_by_allowance(rows: pa.Table, allowed: Mapping[Name, Allowance]) -> tuple[pa.Table, pa.Table]:
    """Runs that are taken, and runs that stay, both in the order of due time; a run is cut where that is needed.

    The first positions of each subscription are taken: by the time from which on they may be, then by position.
    O(rows log rows).

    Args:
        rows: runs, with the columns of `redelivery` or of `held`.
        allowed: how much of each of their subscriptions.
    """
    if not rows.num_rows:
        return rows, rows
    code, names = coded(rows)
    ledger, first, last = (longs(rows, name) for name in ("ledger_id", "first_entry", "last_entry"))
    due = comes(rows)
    order = np.lexsort((longs(rows, "redelivery_count"), first, ledger, due, code))
    length, own = (last - first + 1)[order], code[order]
    ends = np.cumsum(length)
    heads = np.flatnonzero(np.diff(own, prepend=-1))
    before = np.repeat((ends - length)[heads], np.diff(np.append(heads, len(own))))
    limits = [allowed[name] for name in names]
    late = np.where(due[order] <= micros([each.expired_until for each in limits])[own], length, 0)
    more = np.minimum(np.add.reduceat(late, heads), np.array([each.expired for each in limits], np.int64))
    most = (np.array([each.positions for each in limits], np.int64) + more)[own]
    count = np.clip(most - (ends - length - before), 0, length)
    count[due[order] > micros([each.due_until for each in limits])[own]] = 0
    some, rest = np.flatnonzero(count > 0), np.flatnonzero(count < length)
    taken = cut(rows, order[some], first[order[some]], first[order[some]] + count[some] - 1)
    stays = cut(rows, order[rest], first[order[rest]] + count[rest], last[order[rest]])
    return in_order(taken), in_order(stays)


def due_until(rows: pa.Table, until: Mapping[Name, int]) -> IntArray:
    """A time for each row (us UTC), by the times of some subscriptions (ms UTC); of the others before all times."""
    if not until or not rows.num_rows:
        return np.full(rows.num_rows, LONG_AGO)
    code, names = coded(rows)
    return micros([until.get(name, -EVERYTHING) for name in names])[code]


def in_order(rows: pa.Table) -> pa.Table:
    """Runs by due time and position."""
    keys = [longs(rows, name) for name in ("first_entry", "ledger_id", "due_time")]
    return rows.take(pa.array(np.lexsort(keys))).combine_chunks()


class Share(NamedTuple):
    """What some runs have of an incarnation: so many positions, which may be taken from two times on, ms UTC."""

    positions: int
    first_due: int
    last_due: int

    def __or__(self, other: Share) -> Share:
        """Both together."""
        ends = min(self.first_due, other.first_due), max(self.last_due, other.last_due)
        return Share(self.positions + other.positions, *ends)


def counted(rows: pa.Table) -> dict[Who, Share]:
    """What runs have of each incarnation of a subscription."""
    if not rows.num_rows:
        return {}
    code, names = coded(rows)
    life, due = longs(rows, "life"), comes(rows) // 1_000
    length = longs(rows, "last_entry") - longs(rows, "first_entry") + 1
    found: dict[Who, Share] = {}
    each, place = np.unique(np.stack([code, life]), axis=1, return_inverse=True)
    place = place.reshape(-1)
    total = np.bincount(place, weights=length).astype(np.int64)
    firsts, lasts = np.full(each.shape[1], EVERYTHING), np.full(each.shape[1], -EVERYTHING)
    np.minimum.at(firsts, place, due)
    np.maximum.at(lasts, place, due)
    for number, (name, number_of_life) in enumerate(each.T.tolist()):
        found[*names[name], number_of_life] = Share(int(total[number]), int(firsts[number]), int(lasts[number]))
    return found


def coded(rows: pa.Table) -> tuple[IntArray, list[Name]]:
    """A number for the subscription of each row, and the subscriptions by number."""
    topics, subscriptions = (
        rows.column(name).combine_chunks().dictionary_encode() for name in ("topic", "subscription")
    )
    pairs = topics.indices.to_numpy().astype(np.int64) * len(subscriptions.dictionary)
    pairs += subscriptions.indices.to_numpy()
    found, code = np.unique(pairs, return_inverse=True)
    texts = topics.dictionary.to_pylist(), subscriptions.dictionary.to_pylist()
    names = [(texts[0][pair // len(texts[1])], texts[1][pair % len(texts[1])]) for pair in found.tolist()]
    return code.reshape(-1), names


def micros(times: Sequence[int]) -> IntArray:
    """Times in ms as microseconds, as far as there are such."""
    return np.clip(np.array(times, np.int64), LONG_AGO // 1_000, -LONG_AGO // 1_000) * 1_000
