"""Maintenance: tables stay small and quick to read however long the stages run.

One round merges small files, clusters `messages` by due time, deletes what is settled and old, cuts the logs and
removes the files that only they named. It runs beside the stages: it conflicts with no append (decision 0016), and what
it finds in conflict with others is left to the next one. Nothing passes a stage that stands still (decision 0010).

Each step of each table stands for itself. One that fails is logged and named in what the round tells; the others are
done, and the next round tries it again (decision 0026).
"""

import logging
from collections.abc import Callable, Collection, Generator
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from pyspark.sql import SparkSession

import schemas
from pipeline.config.deltaspark import exceptions
from pipeline.config.options import OnStep
from pipeline.config.session import PARTITIONS
from pipeline.config.settings import MINUTE_MS, Upkeep
from pipeline.config.threads import panics_raised
from pipeline.delta.logs.entries import newest
from pipeline.delta.warehouse import Warehouse
from pipeline.maintenance.cutlogs import VACUUM, cut_log, vacuum
from pipeline.maintenance.exemptions import (
    Forgotten,
    RetentionLimits,
    SettleBehind,
    forget_lines,
    forgotten,
    retention_limits,
)
from pipeline.maintenance.layout import OPTIMIZE, Merged, cluster, compact, is_new
from pipeline.maintenance.retention import (
    InTheWay,
    delete,
    delete_replaced,
    empty_inbox,
    forget_events,
    going,
    raise_mark,
    visible,
)
from pipeline.storage.locks import StageLock
from pipeline.subscriptions.settled import SettledMark

LOCK = "maintenance"
"""The lock file of a round, beside those of the stages."""
_LOG = logging.getLogger(__name__)
VACUUMING = "removing files"
"""The step of a round that removes the files that only deleted entries of a log named."""
_DELETING = "deleting rows"
_CONFLICTS = (
    InTheWay,
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
T = TypeVar("T")
_FOLLOWED = (schemas.DELIVERIES, schemas.PUBLICATIONS, *schemas.REJECTED)
"""Tables that are written for others, who may follow their logs."""
_REPLAYED = (schemas.CONSUMER_EVENTS, schemas.CURSORS, schemas.CLOSED, schemas.COMMANDS, schemas.SUBSCRIPTIONS)
_REPLAYED_MS = 2 * MINUTE_MS
"""Tables whose logs clients follow or add to, and how long those stay at least. A client that was away for longer
begins with what `cursors` and `closed` say."""


@dataclass(frozen=True)
class TableMetrics:
    """What a round did to a table.

    Attributes:
        table: its name.
        merged: how many files were merged into others.
        into: into how many.
        rows: how many rows were deleted.
        entries: how many files of the log.
        failed: the steps that failed, and why; the next round tries them again.
    """

    table: str
    merged: int
    into: int
    rows: int
    entries: int
    failed: tuple[str, ...] = ()

    def __str__(self) -> str:
        """For people."""
        files = f"{self.merged} files became {self.into}"
        text = f"{self.table}: {files}, {self.rows} rows and {self.entries} files of the log were deleted"
        return "; ".join([text, *(f"failed: {step}" for step in self.failed)])


@dataclass
class _Steps:
    """The steps of a round, each guarded: what one meets is not the matter of the others."""

    failed: dict[str, list[str]] = field(default_factory=dict)

    def take(self, table: schemas.Table, name: str, step: Callable[[], T], otherwise: T) -> T:
        """Take a step for a table; when it fails, log that and give what there is otherwise."""
        try:
            with panics_raised():
                return step()
        except _CONFLICTS:
            _LOG.warning("%s: %s waits for the next round: another commit was in the way", table.name, name)
        except SettleBehind as error:
            _LOG.warning("%s: %s waits for the next round: %s", table.name, name, error)
        except Exception as error:  # noqa: BLE001 - whatever it is, a full disk first of all
            _LOG.exception("%s: %s failed; the next round tries it again", table.name, name)
            reason = next(iter(str(error).splitlines()), "")
            self.failed.setdefault(table.name, []).append(f"{name} ({type(error).__name__}: {reason})")
        return otherwise


def cut_logs(warehouse: Warehouse, upkeep: Upkeep, now_ms: int) -> Generator[str]:
    """Cut the logs of the tables that the stages write and follow, between two rounds; gives the name of each.

    One that fails is logged, and the others are cut.

    Args:
        warehouse: whose tables.
        upkeep: what is kept.
        now_ms: the wall clock, ms UTC.

    Raises:
        StageRunning: a round is on its way.
    """
    steps = _Steps()
    with _lock(warehouse).held():
        for table in schemas.TABLES:
            if table not in _FOLLOWED:
                cut = partial(_cut, warehouse, table, upkeep, now_ms)
                if steps.take(table, "cutting the log", cut, 0):
                    yield table.name


def maintain(
    warehouse: Warehouse,
    upkeep: Upkeep,
    now_ms: int,
    cut: Collection[str] = (),
    on_step: OnStep = lambda *_: None,
) -> Generator[TableMetrics]:
    """One round over all tables; gives what was done.

    Args:
        warehouse: whose tables.
        upkeep: what is kept.
        now_ms: the wall clock, ms UTC.
        cut: the tables whose logs were cut since the last round, for all that the caller knows (`cut_logs`): files that
            only those named are there yet. A table whose log the round itself cuts need not be told.
        on_step: is told how far it is, by tables.

    Raises:
        StageRunning: another round is on its way.
    """
    steps = _Steps()
    if warehouse.session is not None:
        warehouse = warehouse.within(own_session(warehouse.session))
    with _lock(warehouse).held():
        on_step("delete what is settled and old", 0, len(schemas.TABLES))
        deleted = _forget(warehouse, upkeep, now_ms, steps)
        for number, table in enumerate(schemas.TABLES):
            on_step(f"maintain {table.name}", number, len(schemas.TABLES))
            laying = partial(_laid_out, warehouse, table, upkeep)
            merged, into = steps.take(table, "merging files", laying, (0, 0))
            cutting = partial(_cut, warehouse, table, upkeep, now_ms)
            entries = steps.take(table, "cutting the log", cutting, 0)
            if entries or table.name in cut:
                clearing = partial(vacuum, warehouse, table, upkeep.files_ms)
                steps.take(table, VACUUMING, clearing, None)
            failed = tuple(steps.failed.get(table.name, ()))
            yield TableMetrics(table.name, merged, into, deleted.get(table.name, 0), entries, failed)


def own_session(spark: SparkSession) -> SparkSession:
    """A session for maintenance beside another one, of which it has the shuffle partitions: they are chosen late."""
    own = spark.newSession()
    for key, value in (OPTIMIZE | VACUUM | {PARTITIONS: str(spark.conf.get(PARTITIONS))}).items():
        own.conf.set(key, value)
    return own


def _forget(warehouse: Warehouse, upkeep: Upkeep, now_ms: int, steps: _Steps) -> dict[str, int]:
    """Raise the mark and delete what is below it; give how many rows of which tables.

    What goes of the inbox depends on nothing else. The other tables end at the first one that fails: a release must
    not go before its message.
    """
    deleted: dict[str, int] = {}
    if newest(warehouse.files, warehouse.path(schemas.CONSUMER_EVENTS)):
        events = partial(forget_events, warehouse, now_ms)
        deleted[schemas.CONSUMER_EVENTS.name] = steps.take(schemas.CONSUMER_EVENTS, _DELETING, events, 0)
    raising = partial(raise_mark, warehouse, upkeep.retain_ms)
    mark = steps.take(schemas.MESSAGES, "finding what is settled", raising, SettledMark())
    if mark == SettledMark():
        return deleted
    deleted |= _forget_settled(warehouse, upkeep, mark, steps)
    deleted[schemas.INBOX.name] = steps.take(schemas.INBOX, _DELETING, partial(empty_inbox, warehouse, mark), 0)
    return deleted


def _forget_settled(warehouse: Warehouse, upkeep: Upkeep, mark: SettledMark, steps: _Steps) -> dict[str, int]:
    """Delete what is below the mark, but for what subscriptions that acknowledge have not settled."""
    deleted: dict[str, int] = {}

    def reading() -> RetentionLimits:
        return retention_limits(warehouse, visible(warehouse)[1] - 1, mark)

    kept = steps.take(schemas.CURSORS, "reading what is open", reading, None)
    if kept is None:
        return deleted
    keep = upkeep.retain_deliveries_ms
    shown = None if keep is None else mark.due_ms + upkeep.retain_ms - keep
    letters = mark.due_ms - max(0, upkeep.retain_dead_letters_ms - upkeep.retain_ms)
    gone = steps.take(schemas.SEGMENTS, "finding who left", partial(forgotten, warehouse, mark), Forgotten())
    # Before the rows of `segments`, by which the next round knows of them if this one ends here.
    lines = partial(forget_lines, warehouse, gone.lines)
    deleted[schemas.SUBSCRIPTIONS.name] = steps.take(schemas.SUBSCRIPTIONS, _DELETING, lines, 0)
    for rows in going(mark, shown, kept, letters, gone):
        count = steps.take(rows.table, _DELETING, partial(delete, warehouse, rows), None)
        if count is None:
            return deleted
        deleted[rows.table.name] = count
    deleting = partial(delete_replaced, warehouse, mark)
    deleted[schemas.REPLACED.name] = steps.take(schemas.REPLACED, _DELETING, deleting, 0)
    return deleted


def _cut(warehouse: Warehouse, table: schemas.Table, upkeep: Upkeep, now_ms: int) -> int:
    """Cut the log of a table; give how many files of it went."""
    keep = min(upkeep.retain_log_ms, upkeep.log_ms)
    if table in _FOLLOWED:
        return cut_log(warehouse, table, now_ms - upkeep.retain_log_ms, now_ms - upkeep.quiet_ms)
    if table in _REPLAYED:
        keep = max(keep, _REPLAYED_MS)
    if table is schemas.INBOX:
        # A producer on Spark looks, when its files are written, for the version after the one that it began with. If
        # that entry has been cut, it takes its number, which is before the start of the log, and nobody reads it.
        keep = max(upkeep.log_ms, upkeep.files_ms)
    return cut_log(warehouse, table, now_ms - keep)


def _lock(warehouse: Warehouse) -> StageLock:
    return StageLock(LOCK, f"{warehouse.root}/_checkpoints")


def _laid_out(warehouse: Warehouse, table: schemas.Table, upkeep: Upkeep) -> Merged:
    """Merge files, and sort messages into one another."""
    merged, into = 0, 0
    # Files of `messages` are merged between rounds too, and what was left then is merged now. Those of `cursors` settle
    # replaces itself, by what they come to, dispatch those of `held`, and who registers those of the registry.
    if table in (schemas.CURSORS, schemas.HELD, schemas.SUBSCRIPTIONS):
        return 0, 0
    if table is schemas.MESSAGES or is_new(warehouse, table):
        merged, into = compact(warehouse, table)
    if table is schemas.MESSAGES:
        # What is released until the next round is not worth the while.
        after = visible(warehouse)[0] + upkeep.every_ms
        again, anew = cluster(warehouse, after, upkeep.cluster_bytes)
        merged, into = merged + again, into + anew
    return merged, into
