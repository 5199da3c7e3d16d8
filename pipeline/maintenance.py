"""Compaction of `messages`: many small files become a few, so that a load or a release opens few of them.

Rows, their order within a file and their positions stay as they are, and no row is news to a reader: a compaction
commits no data change. It conflicts with no append, so it runs beside the stages; whoever reads an older version goes
on reading its files, which stay.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event, Thread

from delta.tables import DeltaTable
from pyspark.sql import SparkSession

from pipeline.settings import SECOND_MS
from pipeline.tables import Warehouse
from schemas import MESSAGES

_LOG = logging.getLogger(__name__)
_MIB = 1 << 20
# Larger files are left alone: their rows were sorted by due time when they were written, and stay together.
_SIZES = {
    "spark.databricks.delta.optimize.minFileSize": str(16 * _MIB),
    "spark.databricks.delta.optimize.maxFileSize": str(64 * _MIB),
}


@dataclass(frozen=True)
class Compaction:
    """How many files of `messages` became how many; both 0 when there was nothing to do."""

    removed: int
    added: int


def compact(spark: SparkSession, warehouse: Warehouse) -> Compaction:
    """Merge the small files of `messages` (under 16 MiB) into files of up to 64 MiB."""
    own = spark.newSession()
    for key, value in _SIZES.items():
        own.conf.set(key, value)
    told = DeltaTable.forPath(own, warehouse.path(MESSAGES)).optimize().executeCompaction().first()
    metrics = None if told is None else told["metrics"]
    return Compaction(0, 0) if metrics is None else Compaction(metrics["numFilesRemoved"], metrics["numFilesAdded"])


@contextmanager
def compacting(spark: SparkSession, warehouse: Warehouse, every_ms: int) -> Iterator[None]:
    """Compact from time to time, in a thread, until the block ends. A failure is logged: the stages do not need it.

    Args:
        spark: the session of the stages.
        warehouse: where they run.
        every_ms: pause between two compactions, ms.
    """
    ended = Event()
    worker = Thread(target=_keep_compacting, args=(spark, warehouse, every_ms / SECOND_MS, ended), daemon=True)
    worker.start()
    try:
        yield
    finally:
        ended.set()
        worker.join()


def _keep_compacting(spark: SparkSession, warehouse: Warehouse, every_s: float, ended: Event) -> None:
    while not ended.wait(every_s):
        try:
            compact(spark, warehouse)
        except Exception:  # noqa: BLE001 - whatever it is, messages are delivered without it
            _LOG.exception("messages were not compacted; the next attempt is in %s s", every_s)
