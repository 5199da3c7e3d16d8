"""A release: the positions of one batch that became due, joined with their messages, in the stated order.

There are two ways to make one, with the same rows: by Spark (`release_spark`), however large it is, and by whole
arrays in the driver (`release_local`), when it is small: then the planning and starting of jobs would be most of the
time.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.config.routes import SIZE, NotInDriver
from pipeline.delta.reading.messages import Bounds
from pipeline.delta.writing.numbering import SortKey
from pipeline.dispatch.priority import RANK
from pipeline.storage.arrays import IntArray, longs, ranks, rounds
from state import tick_bits
from state.units import Ms, Us, ms

ENTRY_BITS = 31
"""An entry has so many (`Settings.entries_per_ledger`)."""
LOOKED_UP = (
    "run", "entry_id", "message_key", "properties", "publish_time", "deliver_at", "due_time", "payload",
)  # fmt: skip
"""The columns of messages that are looked up for runs: the number of the run, the entry, and those of `messages`."""
_RANGES = 16
"""In so many ranges of ledgers at most the messages of redeliveries are looked for."""


@dataclass(frozen=True)
class Matched:
    """Positions and their messages as arrays.

    Attributes:
        runs: rows of `redelivery`.
        run: the number of its run, for each position.
        rank: orders what is due in one bucket before all else (`pipeline.dispatch.priority`), for each position.
        key: tells ledger, entry and topic of each position, and sorts like them.
        held: messages.
        message: the number of its message, for each position.
    """

    runs: pa.Table
    run: IntArray
    rank: IntArray
    key: IntArray
    held: pa.Table
    message: IntArray

    @property
    def exact(self) -> IntArray:
        """The time that the producer asked for, or else when the message was due."""
        asked = pc.coalesce(self.held.column("deliver_at"), self.held.column("due_time"))
        exact: IntArray = asked.cast(pa.int64()).to_numpy()[self.message]
        return exact


EXACT = "exact_due"
"""The column of Spark's rows that holds the same."""
ORDER: tuple[SortKey[Matched], ...] = (
    SortKey(("due_time",), lambda each: longs(each.runs, "due_time")[each.run]),
    SortKey((RANK,), lambda each: each.rank),
    SortKey((EXACT,), lambda each: each.exact),
    SortKey(("ledger_id", "entry_id", "topic"), lambda each: each.key),
    SortKey(("subscription",), lambda each: ranks(each.runs, "subscription")[each.run]),
    SortKey(("redelivery_count",), lambda each: longs(each.runs, "redelivery_count")[each.run]),
)
"""The order of deliveries."""


@dataclass(frozen=True)
class Stamp:
    """What all rows of `deliveries` of a batch have in common.

    Attributes:
        batch_id: which batch it is.
        released_at: when it is released, ms UTC.
    """

    batch_id: int
    released_at: Ms


@dataclass(frozen=True)
class Window:
    """What a batch of `redelivery` spans.

    Attributes:
        runs: how many runs it has.
        positions: how many positions those have.
        ledgers: in about how many ledgers.
        last_bucket: the last due time, ms.
        released_at: the instant of the last release, ms.
        first: where in the log the messages of first deliveries are; none when it has none.
        again: where those of redeliveries are.
    """

    runs: int
    positions: int
    ledgers: int
    last_bucket: int
    released_at: Ms
    first: tuple[Bounds, ...]
    again: tuple[Bounds, ...] = ()

    @property
    def bounds(self) -> tuple[Bounds, ...]:
        """Where in the log all its messages are."""
        return self.first + self.again


def first_bounds(ledgers: tuple[int, int], due: tuple[int, int], tick_ms: int) -> Bounds:
    """Where in the log the messages of first deliveries are: those of a bucket are due up to its width before it.

    Args:
        ledgers: the first one and the last one.
        due: the first bucket and the last one, ms.
        tick_ms: the coarsest tick.
    """
    return Bounds(*ledgers, due[0] - (1 << tick_bits(tick_ms)) + 1, due[1])


def again_bounds(ledgers: IntArray) -> tuple[Bounds, ...]:
    """Where in the log the messages of redeliveries are.

    When they come again says nothing of when they were due. A few ranges of ledgers, parted by the widest gaps: what
    comes again after days lies far from what comes again after seconds.
    """
    found = np.unique(ledgers)
    gaps = np.diff(found)
    widest = np.argsort(gaps, kind="stable")[::-1][: _RANGES - 1]
    cuts = np.sort(widest[gaps[widest] > 1])
    ends = zip(found[[0, *(cuts + 1)]].tolist(), found[[*cuts, -1]].tolist(), strict=True) if len(found) else ()
    return tuple(Bounds(*each) for each in ends)


def window_of(runs: pa.Table) -> Window:
    """What some runs span, at least one."""
    again = rounds(runs) > 0
    first = runs.filter(pa.array(~again)) if again.any() else runs
    return Window(
        runs=runs.num_rows,
        positions=int((longs(runs, "last_entry") - longs(runs, "first_entry") + 1).sum()),
        ledgers=pc.count_distinct(runs.column("ledger_id")).as_py(),
        last_bucket=int(longs(runs, "due_time").max()) // 1_000,
        released_at=ms(Us(int(longs(runs, "released_at").max()))),
        first=(_first(first),) if first.num_rows else (),
        again=again_bounds(longs(runs, "ledger_id")[again]),
    )


def _first(runs: pa.Table) -> Bounds:
    """Where the messages of first deliveries are."""
    ledgers, due = longs(runs, "ledger_id"), longs(runs, "message_due") // 1_000
    ends = [(int(each.min()), int(each.max())) for each in (ledgers, due)]
    return first_bounds(ends[0], ends[1], int(longs(runs, "tick_ms").max()))


def taken_apart(runs: pa.Table, most: int) -> tuple[IntArray, IntArray]:
    """The number of its run, and the entry, for each position of runs; there are no more than `most` (one or more).

    Raises:
        NotInDriver: there are more, or they are no runs.
    """
    firsts, lasts = longs(runs, "first_entry"), longs(runs, "last_entry")
    lengths = lasts - firsts + 1
    if (lengths < 1).any() or (firsts < 0).any() or (lasts >> ENTRY_BITS).any():
        raise NotInDriver
    if int(lengths.sum()) > most:
        raise NotInDriver(SIZE)
    run = np.repeat(np.arange(runs.num_rows), lengths)
    return run, np.arange(len(run)) - np.repeat(np.cumsum(lengths) - lengths - firsts, lengths)
