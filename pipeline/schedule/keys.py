"""The keys of the schedule's state: which shard and which index the positions of a subscription are in.

An index has an owner: a topic, and the subscriptions that get the same positions at the same instants. Its name is a
JSON list: the topic, then name and life of each subscription. That is an odd number of texts:

    ["orders", "checkout", "1", "billing", "2"]

What comes again has one text more: its redelivery count, its round behind a point when that is another number, and the
cause. These are the same for a whole index:

    ["orders", "billing", "2", "1.3:nack"]
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.config.session import PARTITIONS
from pipeline.worker.release import NOBODY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SHARING = 64
"""About so many subscriptions share an index at most: whoever comes or goes gives the others another owner."""
_SHARDS_A_STORE = 4
"""Enough that stores are filled alike, and few: a call costs five milliseconds, whatever is in it (decision 0018)."""

NO_POSITION = ("0L AS shard", f"'{NOBODY}' AS owner", "0L AS segment_ms", "0L AS tick_ms")
"""The columns of a row that is no chunk of positions. NULLs there would make the columns of a key nullable in batches
that have such rows, and Spark refuses a state whose keys have become nullable."""

# Texts: a plan made of PySpark's functions asks the JVM two hundred times, at each start of the schedule.
_PART = f"pmod(hash(each.name), shiftleft(1, cast(ceil(log2(greatest(1, size(subscriptions) / {_SHARING}))) AS int)))"
_PARTY = f"struct(coalesce(each.tick_ms, 0L) AS tick_ms, {_PART} AS part)"
_LISTENER = f"struct({_PARTY} AS party, coalesce(each.name, '') AS name, coalesce(each.life, 0L) AS life)"
_LISTENERS = f"array_sort(transform(subscriptions, each -> {_LISTENER}))"
_ALIKE = "filter(listeners, each -> each.party = party)"
_NAMES = f"flatten(transform({_ALIKE}, each -> array(each.name, cast(each.life AS string))))"
_NUMBER = "concat_ws('.', cast(redelivery_count AS string), cast(round AS string))"
_AGAIN = f"if(cause IS NULL, cast(array() AS array<string>), array(concat_ws(':', {_NUMBER}, cause)))"
_OWNER = f"to_json(concat(array(coalesce(topic, '')), {_NAMES}, {_AGAIN}))"


def shards(spark: SparkSession) -> int:
    """So many shards share the indexes. Another number at another start does no harm: a state keeps its alarm."""
    return _SHARDS_A_STORE * int(str(spark.conf.get(PARTITIONS)))


def addressed(segments: DataFrame, count: int) -> DataFrame:
    """Chunks of `segments`, once for all subscriptions that listen alike, with their shard of so many.

    Subscriptions listen alike when a row is for them and they have one tick: they get the same positions at the same
    instants. The name of such an owner is described above; only Spark reads it.
    Nothing is nullable: Spark hands nullable longs to pandas as floats, which lose the last digits of large numbers.
    """
    heard = segments.where("kind <> 'marker'").selectExpr("*", f"{_LISTENERS} AS listeners")
    by_party = heard.selectExpr("*", "explode(array_distinct(listeners.party)) AS party")
    return by_party.selectExpr(
        f"coalesce(cast(pmod(hash(topic, party), {count}) AS bigint), 0L) AS shard",
        f"coalesce({_OWNER}, '{NOBODY}') AS owner",
        "coalesce(unix_millis(segment_start), 0L) AS segment_ms",
        "party.tick_ms",
        "chunk",
    )
