"""The keys of the schedule's state: which shard and which index the positions of a subscription are in."""

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

from pipeline.config.session import PARTITIONS
from pipeline.worker.release import NOBODY

_ALIKE = 64
"""About so many subscriptions share an index at most: whoever comes or goes gives the others another owner."""
_SHARDS_A_STORE = 4
"""Enough that stores are filled alike, and few: a call costs five milliseconds, whatever is in it (decision 0018)."""

NO_POSITION = ("0L AS shard", f"'{NOBODY}' AS owner", "0L AS segment_ms", "0L AS tick_ms")
"""The columns of a row that is no chunk of positions. NULLs there would make the columns of a key nullable in batches
that have such rows, and Spark refuses a state whose keys have become nullable."""


def shards(spark: SparkSession) -> int:
    """So many shards share the indexes. Another number at another start does no harm: a state keeps its alarm."""
    return _SHARDS_A_STORE * int(str(spark.conf.get(PARTITIONS)))


def addressed(segments: DataFrame, count: int) -> DataFrame:
    """Chunks of `segments`, once for all subscriptions that listen alike, with their shard of so many.

    Alike listen subscriptions that a row is for and that have one tick: they get the same positions at the same
    instants. The name of such an owner is JSON of the topic, and of name and life of each, so an odd number of texts.
    What comes again has one text more: its redelivery count, then a point and its round when that is another number,
    and its cause, which so are the same for a whole index. Only Spark reads it.
    Nothing is nullable: Spark hands nullable longs to pandas as floats, which lose the last digits of large numbers.
    """
    zero, nothing = F.lit(0).cast("bigint"), F.lit("")
    parts = F.expr(f"shiftleft(1, cast(ceil(log2(greatest(1, size(subscriptions) / {_ALIKE}))) as int))")

    def listener(each: Column) -> Column:
        tick, part = F.coalesce(each["tick_ms"], zero), F.pmod(F.hash(each["name"]), parts)
        party = F.struct(tick.alias("tick_ms"), part.alias("part"))
        name, life = F.coalesce(each["name"], nothing), F.coalesce(each["life"], zero)
        return F.struct(party.alias("party"), name.alias("name"), life.alias("life"))

    heard = segments.where("kind <> 'marker'")
    rows = heard.select("*", F.array_sort(F.transform("subscriptions", listener)).alias("listeners"))
    rows = rows.select("*", F.explode(F.array_distinct(F.col("listeners.party"))).alias("party"))
    alike = F.filter("listeners", lambda each: each["party"] == F.col("party"))
    names = F.flatten(F.transform(alike, lambda each: F.array(each["name"], each["life"].cast("string"))))
    number = F.concat_ws(".", F.col("redelivery_count").cast("string"), F.col("round").cast("string"))
    again = F.array(F.concat_ws(":", number, "cause"))
    last = F.when(F.col("cause").isNotNull(), again).otherwise(F.array().cast("array<string>"))
    owner = F.to_json(F.concat(F.array(F.coalesce("topic", nothing)), names, last))
    shard = F.pmod(F.hash("topic", "party"), F.lit(count)).cast("bigint")
    return rows.select(
        F.coalesce(shard, zero).alias("shard"),
        F.coalesce(owner, F.lit(NOBODY)).alias("owner"),
        F.coalesce(F.unix_millis("segment_start"), zero).alias("segment_ms"),
        "party.tick_ms",
        "chunk",
    )
