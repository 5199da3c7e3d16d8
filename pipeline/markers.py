"""What ingest remembers between batches, and the marker rows of `segments` that carry it across restarts.

Markers are part of the commit that they describe, so no crash can part them. They survive a new checkpoint, and they
still know the last ledger when retention has emptied `messages`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

from pipeline.lives import Joined, Life, Name, next_lives
from schemas import LEFT, SEGMENTS


@dataclass(frozen=True)
class Marker:
    """What one commit of `segments` changes.

    Attributes:
        number: orders markers; grows by one.
        loaded: what is due before this instant (ms) has been loaded.
        next_ledger: ledgers below it are used.
        joined: subscriptions that begin a life.
        left: subscriptions that are no longer registered.
    """

    number: int
    loaded: int
    next_ledger: int
    joined: Mapping[Name, Joined]
    left: frozenset[Name]


@dataclass(frozen=True)
class IngestMemory:
    """The sum of all markers, and the segments (by number) in which parked messages wait that are not loaded yet."""

    marker: int = 0
    loaded: int = 0
    next_ledger: int = 0
    lives: Mapping[Name, Life] = field(default_factory=dict)
    parked: frozenset[int] = frozenset()

    @classmethod
    def addressed(cls, markers: DataFrame) -> "IngestMemory":
        """What markers alone say: what was addressed to whom. A batch in the middle of its commits is not in it."""
        top = markers.agg(F.max("marker"), F.unix_millis(F.max("loaded_until")), F.max("next_ledger")).collect()[0]
        return cls(top[0] or 0, top[1] or 0, top[2] or 0, lives_of(markers))

    @classmethod
    def of_tables(cls, markers: DataFrame, messages: DataFrame, segment_ms: int) -> "IngestMemory":
        """What the tables say. Three small jobs; run once, at a start."""
        told, ledger = cls.addressed(markers), messages.agg(F.max("ledger_id")).collect()[0][0]
        used = max(told.next_ledger, 0 if ledger is None else ledger + 1)
        return replace(told, next_ledger=used, parked=_parked(messages, told.loaded, segment_ms))

    def waits_before(self, instant: int, segment_ms: int) -> bool:
        """Whether anything parked is due before an instant (ms) that ends a segment."""
        return any(segment * segment_ms < instant for segment in self.parked)

    def after(self, marker: Marker, parked: frozenset[int], segment_ms: int) -> "IngestMemory":
        """The same after a commit that loaded what it could, and a batch that parked messages in some segments."""
        lives = next_lives(self.lives, marker.joined, marker.left)
        waiting = frozenset(each for each in self.parked | parked if each * segment_ms >= marker.loaded)
        return IngestMemory(marker.number, marker.loaded, marker.next_ledger, lives, waiting)


def marker_rows(spark: SparkSession, marker: Marker) -> DataFrame:
    """The rows of `segments`, less `batch_id`, that say it."""
    rows = [_row(marker, "", [], None, 0)]
    rows += [_row(marker, name[0], [name[1]], each.since, each.tick_ms) for name, each in sorted(marker.joined.items())]
    rows += [_row(marker, topic, [name], LEFT, 0) for topic, name in sorted(marker.left)]
    local = spark.createDataFrame(pa.Table.from_pylist(rows, schema=_ARROW))
    return local.select(*_columns())


_ARROW = pa.schema(
    [
        ("topic", pa.string()),
        ("names", pa.list_(pa.string())),
        ("loaded_ms", pa.int64()),
        ("next_ledger", pa.int64()),
        ("first_ledger", pa.int64()),
        ("tick_ms", pa.int64()),
        ("marker", pa.int64()),
    ]
)


def _row(marker: Marker, topic: str, names: list[str], first: int | None, tick_ms: int) -> dict[str, object]:
    common = {"loaded_ms": marker.loaded, "next_ledger": marker.next_ledger, "marker": marker.number}
    return {"topic": topic, "names": names, "first_ledger": first, "tick_ms": tick_ms, **common}


def _columns() -> list[Column]:
    """A column of `segments` each, from the rows of `_row`."""
    said = {
        "topic": F.col("topic"),
        "subscriptions": F.transform("names", _listener),
        "count": F.lit(0).cast("bigint"),
        "kind": F.lit("marker"),
        "loaded_until": F.timestamp_millis("loaded_ms"),
        "next_ledger": F.col("next_ledger"),
        "first_ledger": F.col("first_ledger"),
        "marker": F.col("marker"),
    }
    fields = (field for field in SEGMENTS.schema.fields if field.name != "batch_id")
    return [said.get(field.name, F.lit(None)).cast(field.dataType).alias(field.name) for field in fields]


def _listener(name: Column) -> Column:
    return F.struct(name.alias("name"), F.lit(0).cast("bigint").alias("life"), F.col("tick_ms"))


def lives_of(segments: DataFrame) -> dict[Name, Life]:
    """Every subscription's last life, from the markers among rows of `segments`.

    Files without a marker of that kind are passed over by their statistics.
    """
    told = segments.where("first_ledger IS NOT NULL").select("marker", "first_ledger", "topic", "subscriptions")
    lives: dict[Name, Life] = {}
    # `LEFT` is below all ledgers: who left and came back in one commit comes back.
    for row in sorted(told.collect(), key=lambda row: (row["marker"], row["first_ledger"])):
        ticks = {(row["topic"], listener["name"]): listener["tick_ms"] for listener in row["subscriptions"]}
        left = row["first_ledger"] == LEFT
        joined = {} if left else {name: Joined(row["first_ledger"], tick) for name, tick in ticks.items()}
        lives = next_lives(lives, joined, ticks if left else ())
    return lives


def _parked(messages: DataFrame, loaded: int, segment_ms: int) -> frozenset[int]:
    later = messages.where(F.col("parked") & (F.col("due_time") >= F.timestamp_millis(F.lit(loaded))))
    segment = F.floor(F.unix_millis("due_time") / F.lit(segment_ms))
    return frozenset(row[0] for row in later.select(segment).distinct().collect())
