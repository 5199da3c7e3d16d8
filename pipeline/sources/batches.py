"""The batches of one source: rows to `inbox`, and how far it was read, in one commit.

That commit is all that counts. A batch whose commit is there was taken, one whose commit is not was not: a start goes
on behind the last commit of the source, with a new checkpoint, which Spark needs only while the query runs. So there
is no batch that is repeated, and no checkpoint that can be lost.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from pipeline.config.options import Observer
from pipeline.config.session import compiled
from pipeline.config.sources import Source
from pipeline.config.watching import Watch
from pipeline.delta.warehouse import Warehouse
from pipeline.delta.writing.datafiles import rows as rows_of
from pipeline.delta.writing.datafiles import size_of
from pipeline.delta.writing.oncewriter import Sink
from pipeline.sources.door import Door, Place
from pipeline.sources.mapping import InboxRows
from pipeline.storage.parquet import DRIVER, SIZE
from schemas import INBOX

_LOG = logging.getLogger(__name__)
NOTE = "read"
"""The name under which a commit says how far the source is read."""
_DRIVER_ROWS, _DRIVER_BYTES = 10_000, 64 << 20
"""Batches up to this are appended by this process, larger ones by Spark."""
_PACKED = 8
"""A file is that much smaller than its rows, or less."""


def place_of(log: str) -> Place:
    """The place that an entry of the offset log of a query with one source names."""
    place: Place = json.loads(log.splitlines()[2])
    return place


class Batches:
    """The body of the query of a source."""

    def __init__(
        self,
        spark: SparkSession,
        warehouse: Warehouse,
        source: Source,
        door: Door,
        mapping: InboxRows,
        observe: Observer,
        watch: Watch,
    ) -> None:
        """Look up how far the source was read. The only look-up of the query's life."""
        self._source, self._door, self._mapping = source, door, mapping
        self._observe, self._watch = observe, watch
        self._sink = Sink(spark, warehouse, INBOX, source.stage)
        last = self._sink.last
        self.place: Place | None = None if last is None else last.note[NOTE]
        self.taken = 0
        self._row_bytes: float | None = None
        self._owner, self._checkpoint = "", Path()

    def begin(self, owner: str, checkpoint: Path) -> None:
        """Take part in a query: its name in the notes, and the folder of its checkpoint."""
        self._owner, self._checkpoint = owner, checkpoint

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        """Append a batch."""
        end = place_of((self._checkpoint / "offsets" / str(batch_id)).read_text(encoding="utf-8"))
        count = None if self.place is None else self._door.count(self.place, end)
        mapped = self._mapping.of(rows)
        if count is not None and self._is_small(count):
            self._watch.routed(self._source.stage, DRIVER)
            table = mapped.toArrow()
            self._row_bytes = table.nbytes / max(1, table.num_rows)
            files = self._sink.appender.put(table)
        else:
            self._watch.routed(self._source.stage, SIZE)
            with compiled(rows.sparkSession):
                files = self._sink.appender.write(mapped)
            self._row_bytes = _PACKED * size_of(files) / max(1, rows_of(files))
        self._observe(f"{self._source.stage}.files", batch_id)
        self._sink.commit(files, self._owner, batch_id, {NOTE: end})
        self._observe(f"{self._source.stage}.inbox", batch_id)
        self.place, self.taken = end, self.taken + rows_of(files)
        self._sink.appender.checkpoint()

    def _is_small(self, count: int) -> bool:
        """By the size of the rows before; nobody knows that of the first ones."""
        known = self._row_bytes
        return known is not None and count <= _DRIVER_ROWS and count * known <= _DRIVER_BYTES
