"""Which batch a stage is at: for the error that says what memory was not enough for, and when it is started again."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from pipeline.config.errors import StageRunning
from pipeline.config.lazyspark import raised
from pipeline.config.threads import panics_raised
from pipeline.delta.checkpoints import SOURCES, Checkpoint
from pipeline.delta.logs.entries import between
from pipeline.delta.warehouse import Warehouse
from pipeline.storage.inprocesswatch import notify

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Body: TypeAlias = "Callable[[DataFrame, int], None]"
"""What a query calls with each batch."""
_MOST_NAMES = 3
"""So many files are named, the largest ones."""
_SIGNS = ("OutOfMemoryError", "Python worker exited unexpectedly", "SparkOutOfMemoryError", "MemoryError")
"""What the errors of a stage say when memory ended in the JVM, in a Python worker or in this process."""


class AtWork:
    """The body of a stage, which remembers the batch that it is at.

    When the JVM is gone, what it was at can only be told from here, without asking it.

    Attributes:
        memory: the heap of the driver, as Spark writes it.
    """

    def __init__(self, warehouse: Warehouse, stage: str, body: Body, checkpoint: Checkpoint) -> None:
        self._body, self._log, self._files, self._stage = body, checkpoint, warehouse.files, stage
        self._remote, self._last = self._files.local(checkpoint.path) is None, max(checkpoint.batches(), default=-1)
        self._table = SOURCES[stage]
        self._path = warehouse.path(self._table)
        self.memory = str(warehouse.spark.conf.get("spark.driver.memory", "1g"))
        self._batch: int | None = None

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        """Take a batch."""
        self._batch = self._last = batch_id
        with panics_raised():
            self._body(rows, batch_id)
        self._batch = None
        if self._remote:
            # It may have left something for the next one.
            notify(f"{self._log.path}/offsets")

    def check_alone(self) -> None:
        """Look whether another process has gone on with the checkpoint while this one could not.

        Raises:
            StageRunning: one has: the checkpoint has more than the batch after the last one that was taken here.
        """
        newest = max(self._log.batches(), default=-1)
        if newest > self._last + 1:
            raise StageRunning(self._stage, f"its checkpoint is at batch {newest}, and was left at {self._last}")

    @property
    def files(self) -> str | None:
        """The largest files of the batch that is being taken, for people; None between two batches."""
        if self._batch is None:
            return None
        try:
            begin, end = self._log.start(self._batch), self._log.position(self._batch)
            found = between(self._files, self._path, (begin.version, begin.index), (end.version, end.index)) or []
        except raised("PySparkException", OSError, ValueError):
            return f"batch {self._batch} of {self._table.name}"
        largest = sorted(found, key=lambda file: -int(file["size"]))
        named = [f"{file['path']} ({_size(file)})" for file in largest[:_MOST_NAMES]]
        more = [f"{len(found) - _MOST_NAMES} more"] if len(found) > _MOST_NAMES else []
        return f"{self._table.name}: {', '.join([*named, *more]) or 'no file'}"


def memory_ended(text: str) -> bool:
    """Whether an error says that memory ended."""
    return any(sign in text for sign in _SIGNS)


def _size(file: dict[str, Any]) -> str:
    return f"{int(file['size']) / 1e6:,.0f} MB"
