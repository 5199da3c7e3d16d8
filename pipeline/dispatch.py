"""Dispatch: positions that became due are joined with their messages and handed over, in the stated order.

A batch writes its files, says in `rejected_dispatch` what has no message, and notes what it wrote; the publisher makes
that visible when it is due, and accounts for it in `publications`. The window of due times and ledgers goes into the
join as literals, so that files outside are not opened: a release costs the same however much the log holds.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

from pipeline.lives import Name
from pipeline.messagelog import Bounds, MessageLog
from pipeline.numbering import NUMBER, in_order
from pipeline.prepared import Part, Prepared, Shelf
from pipeline.presence import Presence
from pipeline.progress import Log
from pipeline.publisher import Publisher
from pipeline.registry import Registry
from pipeline.settings import Settings
from pipeline.sinks import Observer, Sink
from pipeline.tables import Warehouse
from pipeline.timeline import Timeline
from schemas import DELIVERIES, PUBLICATIONS, REJECTED_DISPATCH
from state import tick_bits

STAGE = "dispatch"
PART = "part"
"""The column by which rows of a batch are cut into parts that become visible one after the other."""
ORDER = ("due_time", "exact_due", "ledger_id", "entry_id", "topic", "subscription", "redelivery_count")
_BROADCAST = 2_000_000
"""Up to so many positions, about 200 MB as a hash table, are sent to every task instead of being shuffled."""
_RUNS_PER_LEDGER = 20
"""Up to so many runs in a ledger a message is compared with each; with more, runs are taken apart to positions."""


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


@dataclass(frozen=True)
class Note:
    """What the commits of a batch carry, for a repetition that finds some of them.

    `registry` and `lives` are the version of `subscriptions` and the marker by which removed ones and earlier lives
    were dropped; `begin` and `source` are where the batch begins and ends in `redelivery` (version, index).
    """

    registry: int
    lives: int
    begin: tuple[int, int]
    source: tuple[int, int]

    @property
    def decided_by(self) -> tuple[int, int]:
        """What decides who gets something: `registry` and `lives`."""
        return self.registry, self.lives

    def as_dict(self) -> dict[str, Any]:
        """For the metadata of a commit."""
        return dict(vars(self))


class Dispatch:
    """The body of the dispatch query: call it with each batch of `redelivery`."""

    def __init__(
        self,
        spark: SparkSession,
        warehouse: Warehouse,
        checkpoint: Log,
        settings: Settings,
        timeline: Timeline,
        observe: Observer,
    ) -> None:
        """Look up once what the tables hold."""
        self._spark, self._warehouse, self._checkpoint = spark, warehouse, checkpoint
        self._settings, self._timeline, self._observe = settings, timeline, observe
        self._registry, self._presence = Registry(spark, warehouse), Presence(spark, warehouse)
        self._log = MessageLog(spark, warehouse)
        tables = (REJECTED_DISPATCH, DELIVERIES, PUBLICATIONS)
        self.sinks = {table.name: Sink(spark, warehouse, table, STAGE) for table in tables}
        shown = self.sinks["deliveries"], self.sinks["publications"]
        self.publisher = Publisher(Shelf(spark, warehouse), *shown, timeline, observe)

    def __call__(self, redelivery: DataFrame, batch_id: int) -> None:
        """Hand over one batch, unless it is prepared already."""
        owner = self._checkpoint.owner or ""
        if not self.publisher.knows(owner, batch_id):
            self._prepare(redelivery, owner, batch_id)
        self.publisher.settle()
        for sink in self.sinks.values():
            sink.appender.checkpoint()

    def _prepare(self, redelivery: DataFrame, owner: str, batch_id: int) -> None:
        """Write the deliveries of a batch, cut by due time; first say what is missing, then note what is written."""
        refused = self.sinks["rejected_dispatch"].found(owner, batch_id)
        registry, lives = self._versions() if refused is None else noted(refused.note).decided_by
        wanted = listening(redelivery, self._presence.at(lives, self._registry.at(registry)))
        window = look(wanted)
        if window is None:
            return
        self._observe("dispatch.counted", batch_id)
        note = self._note(registry, lives, batch_id)
        joined = join(wanted, self._log.read([bounds(window)]), window)
        parts = self._write(joined, window, batch_id)
        self._observe("dispatch.written", batch_id)
        if sum(part.count for part in parts) < window.positions:
            rows = missing(wanted, joined, window.released_at, batch_id)
            self.sinks["rejected_dispatch"].append(rows, owner, batch_id, note.as_dict())
            self._observe("dispatch.rejected", batch_id)
        if parts:
            self.publisher.take(Prepared(owner, batch_id, window.released_at, note.source, parts))
            self._observe("dispatch.noted", batch_id)

    def _write(self, joined: DataFrame, window: Window, batch_id: int) -> tuple[Part, ...]:
        """Files of what the log has of the positions. What is due by now is one part; later ones are cut by time."""
        appender, tasks = self.sinks["deliveries"].appender, self._settings.tasks(window.positions)
        now = self._timeline.now(window.released_at)
        if window.last_bucket <= now:
            files = appender.write(delivery_rows(joined, window.positions, tasks, batch_id))
            return (Part.of(files),) if files else ()
        step = self._settings.publish_ms
        ahead = F.ceil((F.unix_millis("due_time") - now) / F.lit(step))
        cut = joined.withColumn(PART, F.greatest(ahead, F.lit(0)).cast("bigint"))
        rows = delivery_rows(cut, window.positions, tasks, batch_id, PART)
        return tuple(Part.of(files) for files in appender.write_by(rows, PART).values())

    def _note(self, registry: int, lives: int, batch_id: int) -> Note:
        start, end = self._checkpoint.start(batch_id), self._checkpoint.position(batch_id)
        return Note(registry, lives, (start.version, start.index), (end.version, end.index))

    def _versions(self) -> tuple[int, int]:
        """Who listens now, and in which life."""
        registry = self._registry.version()
        return registry, self._presence.marker(registry)


def look(wanted: DataFrame) -> Window | None:
    """One job over the runs of a batch: their window; None when there are none."""
    spans = {
        "runs": F.count("*"),
        "positions": F.sum(F.col("last_entry") - F.col("first_entry") + 1),
        "ledgers": F.approx_count_distinct("ledger_id"),
        "first_ledger": F.min("ledger_id"),
        "last_ledger": F.max("ledger_id"),
        "first_due": F.unix_millis(F.min("message_due")),
        "last_due": F.unix_millis(F.max("message_due")),
        "tick_ms": F.max("tick_ms"),
        "last_bucket": F.unix_millis(F.max("due_time")),
        "released_at": F.unix_millis(F.max("released_at")),
    }
    row = wanted.agg(*(column.alias(name) for name, column in spans.items())).collect()[0]
    return Window(**row.asDict()) if row["runs"] else None


def listening(redelivery: DataFrame, lives: Mapping[Name, int]) -> DataFrame:
    """The runs of subscriptions that are still there, in their present life: the others are dropped here, at last."""
    topics, names = zip(*lives, strict=True) if lives else ((), ())
    known = {"topic": pa.array(topics, pa.string()), "subscription": pa.array(names, pa.string())}
    table = pa.table({**known, "life": pa.array(lives.values(), pa.int64())})
    present = F.broadcast(redelivery.sparkSession.createDataFrame(table))
    return redelivery.join(present, ["topic", "subscription", "life"], "left_semi")


def join(runs: DataFrame, messages: DataFrame, window: Window) -> DataFrame:
    """Runs with the messages of their positions.

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
        messages.where(bounds(window).inside).drop("batch_id", "parked").withColumnRenamed("due_time", "message_time")
    )
    small = window.positions <= _BROADCAST
    joined = held.join(F.broadcast(wanted) if few or small else wanted, same & matched)
    exact = joined.withColumn("exact_due", F.coalesce("deliver_at", "message_time"))
    return exact.drop("run_topic", "run_ledger", "first_entry", "last_entry")


def bounds(window: Window) -> Bounds:
    """Where in the log the messages of a window are: those of a bucket are due up to its width before it."""
    first = window.first_due - (1 << tick_bits(window.tick_ms)) + 1
    return Bounds(window.first_ledger, window.last_ledger, first, window.last_due)


def positions(runs: DataFrame) -> DataFrame:
    """Runs taken apart: one row per position, its entry in `first_entry` and `last_entry`."""
    taken_apart = runs.select("*", F.explode(F.sequence("first_entry", "last_entry")).alias("entry"))
    return taken_apart.withColumns({"first_entry": F.col("entry"), "last_entry": F.col("entry")}).drop("entry")


def delivery_rows(joined: DataFrame, count: int, tasks: int, batch_id: int, *cut: str) -> DataFrame:
    """Rows of `deliveries`: about `count` joined rows in the stated order, numbered from 1 in `sequence`.

    `cut` is a column that grows with the order, and stays; rows come sorted by it, for files of their own.
    """
    ordered = in_order(joined, (*cut, *ORDER), count, tasks)
    numbers = {"sequence": F.col(NUMBER) + 1, "batch_id": F.lit(batch_id)}
    return ordered.withColumns(numbers).select(*DELIVERIES.schema.names, *cut)


def missing(wanted: DataFrame, joined: DataFrame, instant: int, batch_id: int) -> DataFrame:
    """Rows of `rejected_dispatch`: positions that became due and have no message in the log."""
    keys = ["topic", "subscription", "ledger_id", "entry_id", "redelivery_count"]
    single = positions(wanted).withColumnRenamed("first_entry", "entry_id")
    return single.join(joined.select(*keys), keys, "left_anti").select(
        F.lit("message_missing").alias("reason"),
        F.timestamp_millis(F.lit(instant)).alias("rejected_at"),
        F.lit(batch_id).alias("batch_id"),
        *(name for name in REJECTED_DISPATCH.schema.names if name not in ("reason", "rejected_at", "batch_id")),
    )


def noted(note: Mapping[str, Any]) -> Note:
    """What a commit carries."""
    return Note(**{**note, "begin": tuple(note["begin"]), "source": tuple(note["source"])})
