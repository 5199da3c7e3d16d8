"""A release: the positions of one batch that became due, joined with their messages, in the stated order.

There are two ways to make one, with the same rows: by Spark (`release_spark`), however large it is, and by whole
arrays in the driver (`release_local`), when it is small: then the planning and starting of jobs would be most of the
time.
"""

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.delta.messagelog import Bounds
from pipeline.delta.numbering import SortKey
from pipeline.storage.arrays import IntArray, longs, ranks
from state import tick_bits


@dataclass(frozen=True)
class Matched:
    """Positions and their messages as arrays.

    Attributes:
        runs: rows of `redelivery`.
        run: the number of its run, for each position.
        key: tells ledger, entry and topic of each position, and sorts like them.
        held: messages.
        message: the number of its message, for each position.
    """

    runs: pa.Table
    run: IntArray
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
    SortKey((EXACT,), lambda each: each.exact),
    SortKey(("ledger_id", "entry_id", "topic"), lambda each: each.key),
    SortKey(("subscription",), lambda each: ranks(each.runs, "subscription")[each.run]),
    SortKey(("redelivery_count",), lambda each: longs(each.runs, "redelivery_count")[each.run]),
)
"""The order of deliveries."""


@dataclass(frozen=True)
class Window:
    """What a batch of `redelivery` spans; times in ms, `tick_ms` the coarsest tick."""

    runs: int
    positions: int
    ledgers: int
    first_ledger: int
    last_ledger: int
    first_due: int
    last_due: int
    tick_ms: int
    last_bucket: int
    released_at: int

    @property
    def bounds(self) -> Bounds:
        """Where in the log its messages are: those of a bucket are due up to its width before it."""
        first = self.first_due - (1 << tick_bits(self.tick_ms)) + 1
        return Bounds(self.first_ledger, self.last_ledger, first, self.last_due)
