"""A release: the positions of one batch that became due, joined with their messages, in the stated order.

There are two ways to make one, with the same rows: by Spark (`release_spark`), however large it is, and by whole
arrays in the driver (`release_local`), when it is small and the tables lie on the driver's own machine: then the
planning and starting of jobs would be most of the time.
"""

from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
from pyspark.sql import DataFrame

from pipeline.config.settings import Settings
from pipeline.delta.appender import Appender
from pipeline.delta.messagelog import Bounds
from pipeline.dispatch.prepared import Part
from state import tick_bits

ORDER = ("due_time", "exact_due", "ledger_id", "entry_id", "topic", "subscription", "redelivery_count")
"""The order of deliveries; `exact_due` is the time that the producer asked for, or else when the message was due."""


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


class Release(Protocol):
    """The positions that somebody listens to, at least one, and their messages."""

    @property
    def window(self) -> Window:
        """What its runs span."""
        ...

    def write(self, appender: Appender, settings: Settings, batch_id: int, now: int) -> tuple[Part, ...]:
        """Write the files of the deliveries. What is due by now (ms) is one part; later ones are cut by time."""
        ...

    def missing(self, batch_id: int) -> DataFrame | pa.Table:
        """Rows of `rejected_dispatch`: positions that became due and have no message in the log."""
        ...
