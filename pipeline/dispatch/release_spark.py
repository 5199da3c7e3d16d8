"""A release by Spark: the window of due times and ledgers goes into the join as literals.

Files outside are not opened: a release costs the same however much the log holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from pipeline.config.arrowframe import arrow_frame
from pipeline.config.lazyspark import F
from pipeline.config.options import Delivered
from pipeline.config.session import compiled, kept
from pipeline.config.settings import Settings
from pipeline.delta.reading.messages import Bounds, MessageLog, about, any_of
from pipeline.delta.writing.appender import Appender
from pipeline.delta.writing.numbering import NUMBER, columns_of, in_order
from pipeline.dispatch.closed import KEYS as CLOSED_KEYS
from pipeline.dispatch.closed import Closed
from pipeline.dispatch.prepared import Part
from pipeline.dispatch.priority import NO_PRIORITIES, RANK, Priorities, rank_column
from pipeline.dispatch.release import (
    EXACT,
    LOOKED_UP,
    ORDER,
    Stamp,
    Window,
    again_bounds,
    first_bounds,
    window_of,
)
from pipeline.storage.arrays import arrow_schema, longs
from pipeline.subscriptions.incarnations import Name
from schemas import DELIVERIES, GUARDED, MESSAGE_MISSING, REDELIVERY, REJECTED_DISPATCH, ROUND
from state.units import Ms

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_AGAIN = f"{ROUND} > 0"
"""Which rows of `redelivery` were put into the index again: redeliveries, and what got another due time."""
PART = "part"
"""The column by which rows of a batch are cut into parts that become visible one after the other."""
_BROADCAST, _MOST_BROADCAST, _SPARSE = 100_000, 2_000_000, 4
"""Up to so many positions, about 10 MB as a hash table, are sent to every task; beyond them both sides are sorted.

The driver makes that table, and each executor takes it in, so more executors do not make it faster. But sorting takes
every message of the window. Where there are more than so many times as many as are wanted, up to two million positions
are sent. Spark would go by the size of files, in which five million runs take less than its limit.
"""
_RUNS_PER_LEDGER = 20
"""Up to so many runs in a ledger a message is compared with each; with more, runs are taken apart to positions."""


class SparkRelease:
    """What a batch hands over, made by Spark; `release_local.LocalRelease` is made in this process."""

    def __init__(
        self, wanted: DataFrame, window: Window, log: MessageLog, priorities: Priorities = NO_PRIORITIES
    ) -> None:
        """The runs of a batch that somebody listens to, and what they span."""
        self.window, self._wanted = window, wanted
        files = log.files(window.bounds)
        rows = sum(about(files, each) for each in window.bounds)
        self._joined = join(wanted, log.rows_of(files, wanted.sparkSession), window, priorities, rows)

    @classmethod
    def of(
        cls,
        redelivery: DataFrame,
        lives: Mapping[Name, int],
        log: MessageLog,
        closed: Closed,
        priorities: Priorities = NO_PRIORITIES,
    ) -> SparkRelease | None:
        """The release of a batch; None when nobody listens to any of it. One job, a few more for redeliveries."""
        wanted = listening(redelivery, lives)
        window = look(wanted)
        if window is not None and window.again:
            wanted = still_open(wanted, closed.frame(window.again))
            window = look(wanted)
        return None if window is None else cls(wanted, window, log, priorities)

    def write(self, appender: Appender, settings: Settings, stamp: Stamp, now: int) -> tuple[Part, ...]:
        """Write the files of the deliveries; those that are not due yet are cut into parts by a column."""
        cut = () if self.window.last_bucket <= now else (PART,)
        ahead = F.ceil((F.unix_millis("due_time") - now) / F.lit(settings.publish_ms))
        joined = self._joined.withColumn(PART, F.greatest(ahead, F.lit(0)).cast("bigint")) if cut else self._joined
        count, session = self.window.positions, joined.sparkSession
        tasks, sorted_by = settings.tasks(count), joined.select(*cut, *columns_of(ORDER))
        with compiled(session, when=count > settings.rows_per_task), kept(sorted_by, when=tasks > 1) as small:
            rows = delivery_rows(joined, count, tasks, stamp, *cut, small=small)
            if cut:
                return tuple(Part.of(files) for files in appender.write_by(rows, PART).values())
            files = appender.write(rows)
            return (Part.of(files),) if files else ()

    def shares(self, _parts: Sequence[Part]) -> list[list[Delivered]]:
        """As `LocalRelease.shares`; nothing: to know it would cost a job."""
        return []

    def missing(self, batch_id: int) -> DataFrame:
        """Rows of `rejected_dispatch`."""
        return missing(self._wanted, self._joined, self.window.released_at, batch_id)


def look(wanted: DataFrame) -> Window | None:
    """A job over the runs of a batch, another one if there are redeliveries: their window; None when there are none."""
    of_first = {name: F.expr(f"if({_AGAIN}, NULL, {name})") for name in ("ledger_id", "message_due", "tick_ms")}
    spans = {
        "runs": F.count("*"),
        "positions": F.sum(F.col("last_entry") - F.col("first_entry") + 1),
        "ledgers": F.approx_count_distinct("ledger_id"),
        "first_ledger": F.min(of_first["ledger_id"]),
        "last_ledger": F.max(of_first["ledger_id"]),
        "first_due": F.unix_millis(F.min(of_first["message_due"])),
        "last_due": F.unix_millis(F.max(of_first["message_due"])),
        "tick_ms": F.max(of_first["tick_ms"]),
        "last_bucket": F.unix_millis(F.max("due_time")),
        "released_at": F.unix_millis(F.max("released_at")),
        "again": F.count_if(F.expr(_AGAIN)),
    }
    row = wanted.agg(*(column.alias(name) for name, column in spans.items())).collect()[0]
    if not row["runs"]:
        return None
    first, again = tuple[Bounds, ...](), tuple[Bounds, ...]()
    if row["runs"] > row["again"]:
        ends = (row["first_ledger"], row["last_ledger"]), (row["first_due"], row["last_due"])
        first = (first_bounds(*ends, row["tick_ms"]),)
    if row["again"]:
        ledgers = wanted.where(_AGAIN).select("ledger_id").distinct().toArrow()
        again = again_bounds(longs(ledgers, "ledger_id"))
    sums = {name: row[name] for name in ("runs", "positions", "ledgers", "last_bucket", "released_at")}
    return Window(**sums, first=first, again=again)


def listening(redelivery: DataFrame, lives: Mapping[Name, int]) -> DataFrame:
    """The runs of subscriptions that are still there, in their present life: the others are dropped here, at last."""
    topics, names = zip(*lives, strict=True) if lives else ((), ())
    known = {"topic": pa.array(topics, pa.string()), "subscription": pa.array(names, pa.string())}
    table = pa.table({**known, "life": pa.array(lives.values(), pa.int64())})
    present = F.broadcast(arrow_frame(redelivery.sparkSession, table))
    return redelivery.join(present, ["topic", "subscription", "life"], "left_semi")


def still_open(wanted: DataFrame, closed: DataFrame) -> DataFrame:
    """Runs less the redeliveries that are closed, which are looked for position by position."""
    again, keys = positions(wanted.where("redelivery_count > 0")), [*CLOSED_KEYS, "first_entry"]
    left = again.join(positions(closed).select(keys), keys, "left_anti")
    return wanted.where("redelivery_count = 0").unionByName(left)


def of_names(redelivery: DataFrame, names: Iterable[Name]) -> tuple[pa.Table, DataFrame]:
    """The runs of some subscriptions, and the others."""
    columns, keys = REDELIVERY.columns.names, ["topic", "subscription"]
    named = F.broadcast(redelivery.sparkSession.createDataFrame(list(names), "topic string, subscription string"))
    own = redelivery.join(named, keys, "left_semi").select(*columns).toArrow()
    return own.cast(arrow_schema(REDELIVERY.columns)), redelivery.join(named, keys, "left_anti").select(*columns)


def released_last(redelivery: DataFrame) -> Ms:
    """When the last of some runs was released, ms UTC; 0: there are none. A job."""
    (row,) = redelivery.agg(F.unix_millis(F.max("released_at")).alias("last")).collect()
    return Ms(row["last"] or 0)


def at_time(runs: DataFrame, now: Ms) -> DataFrame:
    """As `core.runs.at_time`."""
    return runs.withColumn("released_at", F.timestamp_millis(F.lit(now)))


def ledgers(redelivery: DataFrame) -> list[int]:
    """The ledgers of which runs are. A job."""
    return [row["ledger_id"] for row in redelivery.select("ledger_id").distinct().collect()]


def split_withdrawn(redelivery: DataFrame, withdrawn: pa.Table) -> tuple[DataFrame, DataFrame]:
    """Runs less what is withdrawn, and what is, position by position; runs of other ledgers stay as they are.

    What is withdrawn has a column more, the reason: what comes in a later round is not cancelled in this one.
    """
    gone = arrow_frame(redelivery.sparkSession, withdrawn)
    keys = list(CLOSED_KEYS)
    near = F.broadcast(gone.select(keys).distinct())
    some = positions(redelivery.join(near, keys, "left_semi")).withColumn("number", F.expr(ROUND))
    single = [*keys, "first_entry", "number"]
    spans = positions(gone).select(*keys, "first_entry", "first_round", "end_round", "reason")
    met = some.select(single).distinct().join(spans, single[:-1]).where("first_round <= number AND number < end_round")
    # Of two reasons `rescheduled` is the greater one; a batch that is repeated has one for each position.
    wanted = met.groupBy(*single).agg(F.max("reason").alias("reason"))
    left = some.join(wanted, single, "left_anti").drop("number")
    return redelivery.join(near, keys, "left_anti").unionByName(left), some.join(wanted, single).drop("number")


def withdrawn_rows(gone: DataFrame, batch_id: int) -> DataFrame:
    """Rows of `rejected_dispatch` for positions that were withdrawn."""
    columns = {"rejected_at": F.col("released_at"), "batch_id": F.lit(batch_id), "entry_id": F.col("first_entry")}
    # Only what does not meet a guard has these columns.
    lacking = [REJECTED_DISPATCH.schema[name] for name in GUARDED if name not in gone.columns]
    columns |= {field.name: F.lit(None).cast(field.dataType) for field in lacking}
    return gone.withColumns(columns).select(*REJECTED_DISPATCH.columns.names)


def join(
    runs: DataFrame, messages: DataFrame, window: Window, priorities: Priorities = NO_PRIORITIES, rows: int = 0
) -> DataFrame:
    """Runs with the messages of their positions; about so many `rows` of `messages` are in the window.

    Few runs a ledger: a message is compared with its ledger's runs. Many: that would be quadratic, so runs are taken
    apart and matched by position.
    """
    few = window.runs <= _RUNS_PER_LEDGER * max(1, window.ledgers)
    wanted = runs if few else positions(runs)
    wanted = wanted.drop("batch_id").withColumnsRenamed({"topic": "run_topic", "ledger_id": "run_ledger"})
    same = (F.col("run_topic") == F.col("topic")) & (F.col("run_ledger") == F.col("ledger_id"))
    within = F.col("entry_id").between(F.col("first_entry"), F.col("last_entry"))
    matched = within if few else F.col("entry_id") == F.col("first_entry")
    held = (
        messages.where(any_of(window.bounds)).drop("batch_id", "parked").withColumnRenamed("due_time", "message_time")
    )
    small = window.positions <= (_MOST_BROADCAST if rows > _SPARSE * window.positions else _BROADCAST)
    joined = held.join(F.broadcast(wanted) if few or small else wanted.hint("merge"), same & matched)
    order = {EXACT: F.coalesce("deliver_at", "message_time"), RANK: rank_column(priorities)}
    return joined.withColumns(order).drop("run_topic", "run_ledger", "first_entry", "last_entry")


def looked_up(spark: SparkSession, runs: pa.Table, log: MessageLog, columns: Sequence[str] = LOOKED_UP) -> pa.Table:
    """The messages of some runs, at least one, in columns of `LOOKED_UP`; as `release_local.Found.pieces`."""
    window = window_of(runs)
    numbered = arrow_frame(spark, runs.append_column("run", pa.array(range(runs.num_rows))))
    found = join(numbered, log.read(window.bounds, spark), window).drop("due_time")
    return found.withColumnRenamed("message_time", "due_time").select(*columns).toArrow()


def positions(runs: DataFrame) -> DataFrame:
    """Runs taken apart: one row per position, its entry in `first_entry` and `last_entry`."""
    taken_apart = runs.select("*", F.explode(F.sequence("first_entry", "last_entry")).alias("entry"))
    return taken_apart.withColumns({"first_entry": F.col("entry"), "last_entry": F.col("entry")}).drop("entry")


def delivery_rows(
    joined: DataFrame, count: int, tasks: int, stamp: Stamp, *cut: str, small: DataFrame | None = None
) -> DataFrame:
    """Rows of `deliveries`: about `count` joined rows in the stated order, numbered from 1 in `sequence`.

    `cut` is a column that grows with the order, and stays; rows come sorted by it, for files of their own. `small` has
    the columns of the order, persisted: texts are read once then.
    """
    ordered = in_order(joined, [*cut, *columns_of(ORDER)], count, tasks, small)
    same = {"batch_id": F.lit(stamp.batch_id), "released_at": F.timestamp_millis(F.lit(stamp.released_at))}
    numbers = {"sequence": F.col(NUMBER) + 1, **same}
    return ordered.withColumns(numbers).select(*DELIVERIES.columns.names, *cut)


def missing(wanted: DataFrame, joined: DataFrame, instant: int, batch_id: int) -> DataFrame:
    """Rows of `rejected_dispatch`: positions of the batch that the join did not find."""
    keys = ["topic", "subscription", "ledger_id", "first_entry", "redelivery_count"]
    found = joined.withColumnRenamed("entry_id", "first_entry").select(*keys)
    columns = {"reason": F.lit(MESSAGE_MISSING), "released_at": F.timestamp_millis(F.lit(instant))}
    return withdrawn_rows(positions(wanted).join(found, keys, "left_anti").withColumns(columns), batch_id)
