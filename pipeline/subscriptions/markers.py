"""What ingest remembers between batches, and the marker rows of `segments` that carry it across restarts.

Markers are part of the commit that they describe, so no crash can part them. They survive a new checkpoint, and they
still know the last ledger when retention has emptied `messages`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

from pipeline.delta import messages
from pipeline.delta.messagelog import Bounds, MessageLog
from pipeline.storage import arrays
from pipeline.storage.parquet import NotHere
from pipeline.subscriptions.incarnations import Joined, Life, Name, change, next_lives
from pipeline.worker.encode import ARROW
from schemas import LEFT


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
    def of_tables(cls, markers: DataFrame, messages: DataFrame, log: MessageLog, segment_ms: int) -> "IngestMemory":
        """What the tables say; `log` is that of `messages`. Run once, at a start, over every message that waits."""
        told, ledger = cls.addressed(markers), messages.agg(F.max("ledger_id")).collect()[0][0]
        used = max(told.next_ledger, 0 if ledger is None else ledger + 1)
        try:
            parked = _parked_here(log, told.loaded, segment_ms)
        except NotHere:
            parked = _parked(messages, told.loaded, segment_ms)
        return replace(told, next_ledger=used, parked=parked)

    def waits_before(self, instant: int, segment_ms: int) -> bool:
        """Whether anything parked is due before an instant (ms) that ends a segment."""
        return any(segment * segment_ms < instant for segment in self.parked)

    def after(self, marker: Marker, parked: frozenset[int], segment_ms: int) -> "IngestMemory":
        """The same after a commit that loaded what it could, and a batch that parked messages in some segments."""
        lives = next_lives(self.lives, marker.joined, marker.left)
        waiting = frozenset(each for each in self.parked | parked if each * segment_ms >= marker.loaded)
        return IngestMemory(marker.number, marker.loaded, marker.next_ledger, lives, waiting)


def marker_rows(marker: Marker) -> pa.Table:
    """The rows of `segments`, less `batch_id`, that say it."""
    rows = [_row(marker, "", [], None, 0)]
    rows += [_row(marker, name[0], [name[1]], each.since, each.tick_ms) for name, each in sorted(marker.joined.items())]
    rows += [_row(marker, topic, [name], LEFT, 0) for topic, name in sorted(marker.left)]
    return pa.Table.from_pylist(rows, schema=ARROW)


def _row(marker: Marker, topic: str, names: list[str], first: int | None, tick_ms: int) -> dict[str, object]:
    return {
        "topic": topic,
        "subscriptions": [{"name": name, "life": 0, "tick_ms": tick_ms} for name in names],
        "count": 0,
        "kind": "marker",
        "loaded_until": marker.loaded * 1_000,
        "next_ledger": marker.next_ledger,
        "first_ledger": first,
        "marker": marker.number,
    }


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
        change(lives, joined, ticks if left else ())
    return lives


def _parked_here(log: MessageLog, loaded: int, segment_ms: int) -> frozenset[int]:
    """The segments in which parked messages wait that are due from `loaded` (ms) on, by whole arrays.

    Raises:
        NotHere: they are not on this machine, or are not what the table says.
    """
    found: set[int] = set()
    for rows in messages.messages(log, Bounds(first_due=loaded), ("due_time", "parked")):
        due = arrays.longs(rows, "due_time")[rows.column("parked").to_numpy(zero_copy_only=False)]
        segments = due // (segment_ms * 1_000)
        # Files are sorted by due time: most neighbours are of one segment.
        found.update(segments[np.flatnonzero(np.diff(segments, prepend=segments[:1] - 1))].tolist())
    return frozenset(found)


def _parked(messages: DataFrame, loaded: int, segment_ms: int) -> frozenset[int]:
    """The same by Spark."""
    later = messages.where(F.col("parked") & (F.col("due_time") >= F.timestamp_millis(F.lit(loaded))))
    segment = F.floor(F.unix_millis("due_time") / F.lit(segment_ms))
    return frozenset(row[0] for row in later.select(segment).distinct().collect())
