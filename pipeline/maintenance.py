"""Maintenance: tables stay small and quick to read however long the stages run.

One round merges small files, clusters `messages` by due time, deletes what is settled and old, cuts the logs and
removes the files that only they named. It runs beside the stages: it conflicts with no append (decision 0016), and what
it finds in conflict with others is left to the next one. Nothing passes a stage that stands still (decision 0010).
"""

import logging
from collections.abc import Collection, Generator
from dataclasses import dataclass

from delta import exceptions
from pyspark.sql import SparkSession

from pipeline.layout import OPTIMIZE, Merged, cluster, compact, is_new
from pipeline.locks import StageLock
from pipeline.retention import InTheWay, delete, empty_inbox, going, raise_mark, released
from pipeline.session import PARTITIONS
from pipeline.settings import Upkeep
from pipeline.settled import Settled
from pipeline.tables import Warehouse
from pipeline.trim import VACUUM, cut_log, vacuum
from schemas import (
    DELIVERIES,
    INBOX,
    MESSAGES,
    PUBLICATIONS,
    REJECTED_DISPATCH,
    REJECTED_INGEST,
    REJECTED_SCHEDULE,
    SUBSCRIPTIONS,
    TABLES,
    Table,
)

LOCK = "maintenance"
"""The lock file of a round, beside those of the stages."""
_LOG = logging.getLogger(__name__)
_CONFLICTS = (
    exceptions.ConcurrentAppendException,
    exceptions.ConcurrentDeleteDeleteException,
    exceptions.ConcurrentDeleteReadException,
    exceptions.ConcurrentTransactionException,
    exceptions.ConcurrentWriteException,
    exceptions.DeltaConcurrentModificationException,
    exceptions.MetadataChangedException,
    exceptions.ProtocolChangedException,
)
"""What Delta says of another commit in the way, where it deletes or merges. They have no parent of their own."""
_FOLLOWED = (DELIVERIES, PUBLICATIONS, REJECTED_INGEST, REJECTED_SCHEDULE, REJECTED_DISPATCH)
"""Tables that are written for others, who may follow their logs."""


@dataclass(frozen=True)
class Done:
    """What a round did to a table.

    Attributes:
        table: its name.
        merged: how many files were merged into others.
        into: into how many.
        rows: how many rows were deleted.
        entries: how many files of the log.
    """

    table: str
    merged: int
    into: int
    rows: int
    entries: int

    def __str__(self) -> str:
        """For people."""
        files = f"{self.merged} files became {self.into}"
        return f"{self.table}: {files}, {self.rows} rows and {self.entries} files of the log were deleted"


def cut_logs(spark: SparkSession, warehouse: Warehouse, upkeep: Upkeep, now_ms: int) -> Generator[str]:
    """Cut the logs of the tables that the stages write and follow, between two rounds; gives the name of each.

    Args:
        spark: a session with Delta.
        warehouse: whose tables.
        upkeep: what is kept.
        now_ms: the wall clock, ms UTC.

    Raises:
        StageRunning: a round is on its way.
    """
    with _lock(warehouse).held():
        for table in TABLES:
            if table not in (SUBSCRIPTIONS, *_FOLLOWED) and _cut(spark, warehouse, table, upkeep, now_ms):
                yield table.name


def maintain(
    spark: SparkSession, warehouse: Warehouse, upkeep: Upkeep, now_ms: int, cut: Collection[str] = ()
) -> Generator[Done]:
    """One round over all tables but the registry, which is small and read at old versions; gives what was done.

    Args:
        spark: a session with Delta; its settings stay as they are.
        warehouse: whose tables.
        upkeep: what is kept.
        now_ms: the wall clock, ms UTC.
        cut: the tables whose logs were cut since the last round, for all that the caller knows (`cut_logs`): files that
            only those named are there yet. A table whose log the round itself cuts need not be told.

    Raises:
        StageRunning: another round is on its way.
    """
    own = own_session(spark)
    with _lock(warehouse).held():
        deleted = _forget(own, warehouse, upkeep)
        for table in TABLES:
            if table is not SUBSCRIPTIONS:
                merged, into = _laid_out(own, warehouse, table, upkeep)
                entries = _cut(own, warehouse, table, upkeep, now_ms)
                if entries or table.name in cut:
                    vacuum(own, warehouse, table, upkeep.files_ms)
                yield Done(table.name, merged, into, deleted.get(table.name, 0), entries)


def own_session(spark: SparkSession) -> SparkSession:
    """A session for maintenance beside another one, of which it has the shuffle partitions: they are chosen late."""
    own = spark.newSession()
    for key, value in (OPTIMIZE | VACUUM | {PARTITIONS: str(spark.conf.get(PARTITIONS))}).items():
        own.conf.set(key, value)
    return own


def _forget(spark: SparkSession, warehouse: Warehouse, upkeep: Upkeep) -> dict[str, int]:
    """Raise the mark and delete what is below it; give how many rows of which tables.

    Ends at the first conflict: a release must not go before its message.
    """
    mark = raise_mark(spark, warehouse, upkeep.retain_ms)
    deleted: dict[str, int] = {}
    if mark == Settled():
        return deleted
    keep = upkeep.retain_deliveries_ms
    shown = None if keep is None else mark.due_ms + upkeep.retain_ms - keep
    try:
        for rows in going(mark, shown):
            deleted[rows.table.name] = delete(spark, warehouse, rows)
        deleted[INBOX.name] = empty_inbox(spark, warehouse, mark)
    except (InTheWay, *_CONFLICTS):
        _LOG.warning("rows are deleted with the next round: another commit was in the way", exc_info=True)
    return deleted


def _cut(spark: SparkSession, warehouse: Warehouse, table: Table, upkeep: Upkeep, now_ms: int) -> int:
    """Cut the log of a table; give how many files of it went."""
    keep = min(upkeep.retain_log_ms, upkeep.log_ms)
    if table in _FOLLOWED:
        keep = upkeep.retain_log_ms
    elif table is INBOX:
        # Who appends by Spark asks when he is done whether the version behind the one that he began with is there. Was
        # it cut, his commit lies before the beginning of the log, and nobody ever reads it.
        keep = max(upkeep.log_ms, upkeep.files_ms)
    return cut_log(spark, warehouse, table, now_ms - keep)


def _lock(warehouse: Warehouse) -> StageLock:
    return StageLock(LOCK, f"{warehouse.root}/_checkpoints")


def _laid_out(spark: SparkSession, warehouse: Warehouse, table: Table, upkeep: Upkeep) -> Merged:
    """Merge files, and sort messages into one another. A failure is logged: reads are slower without, logs still go."""
    merged, into = 0, 0
    try:
        # Files of `messages` are merged between rounds too, and what was left then is merged now.
        if table is MESSAGES or is_new(spark, warehouse, table):
            merged, into = compact(spark, warehouse, table)
        if table is MESSAGES:
            # What is released until the next round is not worth the while.
            after = released(spark, warehouse) + upkeep.every_ms
            again, anew = cluster(spark, warehouse, after, upkeep.cluster_bytes)
            merged, into = merged + again, into + anew
    except _CONFLICTS:
        _LOG.warning("%s is merged with the next round: another commit was in the way", table.name, exc_info=True)
    except Exception:  # noqa: BLE001 - whatever it is, a full disk first of all
        _LOG.exception("%s was not laid out; the next attempt is with the next round", table.name)
    return merged, into
