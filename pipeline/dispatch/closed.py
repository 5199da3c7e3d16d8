"""Redeliveries that are not to be made: `closed` names those that wait though their positions are settled.

It is read for batches that have redeliveries, and for no others.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.config.lazyspark import F, raised
from pipeline.config.routes import SIZE, NotInDriver
from pipeline.config.settings import Settings
from pipeline.delta.logs.filestats import span
from pipeline.delta.reading.files import LiveFiles
from pipeline.delta.reading.messages import Bounds
from pipeline.delta.warehouse import Warehouse
from pipeline.dispatch.core.holding import cut
from pipeline.dispatch.release import taken_apart
from pipeline.storage.arrays import arrow_schema
from pipeline.storage.parquet import whole
from schemas import CLOSED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KEYS = ("topic", "subscription", "life", "ledger_id", "redelivery_count")
"""With an entry they name a redelivery."""


class ClosedLog:
    """The files of `closed`, followed from the first question on."""

    def __init__(self, warehouse: Warehouse) -> None:
        self._warehouse = warehouse
        self._live = LiveFiles(warehouse, CLOSED, lambda file: _ledgers(file.get("stats")))

    def version(self) -> int:
        """The newest version."""
        return self._live.newest()

    def look(self) -> tuple[int, dict[str, Bounds]]:
        """The newest version, and the files that it has, with the ledgers of each."""
        version, held = self._live.look()
        return version, dict(held)

    def rows(self, version: int) -> DataFrame:
        """The rows at a version; the newest ones when it cannot be read any more.

        Those have all that concerns a redelivery which dispatch has not made.
        """
        try:
            return self._warehouse.read(CLOSED, version)
        except raised("PySparkException"):
            return self._warehouse.read(CLOSED)

    def readable(self, path: str) -> str | None:
        """A file as arrays are read; None where only Spark does."""
        folder = self._warehouse.files.readable(self._warehouse.path(CLOSED))
        return None if folder is None else f"{folder}/{path}"


class Closed:
    """What `closed` says to one batch: the newest version at the first question, or the one that the batch noted."""

    def __init__(self, log: ClosedLog, version: int = -1) -> None:
        """Nothing is asked yet; a version below 0 is none."""
        self._log, self.version = log, version

    def frame(self, ledgers: Sequence[Bounds]) -> DataFrame:
        """The rows of some ledgers."""
        if self.version < 0:
            self.version = self._log.version()
        inside = (F.col("ledger_id").between(each.first_ledger, each.last_ledger) for each in ledgers)
        return self._log.rows(self.version).where(reduce(or_, inside))

    def rows(self, ledgers: Sequence[Bounds], settings: Settings) -> pa.Table:
        """What is closed of some ledgers, as arrays, and perhaps some of other ledgers.

        Raises:
            NotInDriver: only Spark reaches them, or they are too many.
        """
        newest, held = self._log.look()
        if self.version < 0:
            self.version = newest
        if self.version != newest:
            # A batch that is repeated, which is rare.
            few = self.frame(ledgers).limit(settings.driver_rows + 1).toArrow()
            if few.num_rows > settings.driver_rows:
                raise NotInDriver(SIZE)
            return few.cast(arrow_schema(CLOSED.columns))
        paths = [self._log.readable(path) for path, has in held.items() if any(map(has.meets, ledgers))]
        here = [path for path in paths if path is not None]
        if len(here) < len(paths):
            raise NotInDriver
        return whole(CLOSED, here, settings.driver_bytes)


def still_open(runs: pa.Table, closed: pa.Table, settings: Settings) -> pa.Table:
    """Runs less the redeliveries that are closed, which are looked for position by position.

    Raises:
        NotInDriver: they are too many.
    """
    of_first = pc.equal(runs.column("redelivery_count"), 0)
    again, keys = runs.filter(pc.invert(of_first)), [*KEYS, "first_entry"]
    concerned = closed.join(again.select(KEYS), list(KEYS), join_type="left semi")
    if not concerned.num_rows:
        return runs
    gone = _single(concerned, settings.driver_rows).select(keys)
    left = _single(again, settings.driver_rows).join(gone, keys, join_type="left anti")
    return pa.concat_tables([runs.filter(of_first), left.select(runs.column_names)]).combine_chunks()


def _single(runs: pa.Table, most: int) -> pa.Table:
    """A row for each position."""
    run, entry = taken_apart(runs, most)
    return cut(runs, run, entry, entry)


def _ledgers(stats: str | None) -> Bounds:
    """The ledgers of a file, by its statistics; any when there are none."""
    try:
        return Bounds(*span(stats, "ledger_id"))
    except KeyError:
        return Bounds()
