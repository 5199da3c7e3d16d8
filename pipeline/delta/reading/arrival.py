"""The order in which inbox rows arrived: commit, file, place in the file.

It breaks ties between messages with one due time, so it must not depend on how Spark cuts files into tasks. Spark
packs large files first, and file names are random; only the Delta log knows which commit came first.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

import pyarrow as pa

from pipeline.config.arrowframe import arrow_frame
from pipeline.config.lazyspark import F
from pipeline.delta.checkpoints import Position
from pipeline.delta.logs.entries import between, uri_name
from pipeline.storage.hadoop import session_files
from schemas import INBOX

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ARRIVAL = ("arrival_commit", "arrival_file", "arrival_block", "arrival_row")


def with_place(stream: DataFrame) -> DataFrame:
    """Inbox rows with their file and block, from a stream of files. To be called on the source itself.

    Columns that a producer added are left out here: they may have any name.
    """
    name = F.element_at(F.split(F.input_file_name(), "/"), -1).alias("arrival_file")
    return stream.select(*INBOX.columns.names, name, F.input_file_block_start().alias("arrival_block"))


def in_order_of_arrival(rows: DataFrame, commits: dict[str, int]) -> DataFrame:
    """Add the row's number within its block, and the commit of its file, to a batch of such a stream.

    A block is read by one task from its first row to its last, so numbers that grow within a task will do. One commit,
    or none known, needs no look-up.
    """
    rows, versions = rows.withColumn("arrival_row", F.monotonically_increasing_id()), set(commits.values())
    if len(versions) < 2:
        return rows.withColumn("arrival_commit", F.lit(min(versions, default=0)).cast("bigint"))
    table = pa.table({"arrival_file": list(commits), "arrival_commit": pa.array(commits.values(), pa.int64())})
    known = F.broadcast(arrow_frame(rows.sparkSession, table))
    return rows.join(known, "arrival_file", "left").withColumn("arrival_commit", F.coalesce("arrival_commit", F.lit(0)))


def file_commits(spark: SparkSession, path: str, start: Position, end: Position) -> dict[str, int]:
    """The version that added each file of a table, for the versions that a batch covers. Reads one small file each."""
    if start.version == end.version:
        return {}
    found = between(session_files(spark), path, start.offset, end.offset) or ()
    return {uri_name(each["path"]): each["version"] for each in found}


def numbered_by_arrival(rows: DataFrame, name: str) -> DataFrame:
    """Add a column with the number of each row in the order of arrival, from 0 on. One job counts the rows of blocks.

    Args:
        rows: with the columns `ARRIVAL`.
        name: of the column.
    """
    block, row = ARRIVAL[:3], ARRIVAL[3]
    counted = rows.groupBy(*block).agg(F.count("*").alias("count"), F.min(row).alias("first")).collect()
    ordered = sorted(counted, key=lambda each: tuple(each[:3]))
    before = accumulate((each["count"] for each in ordered), initial=0)
    offsets = [start - each["first"] for each, start in zip(ordered, before, strict=False)]
    known = {key: [each[key] for each in ordered] for key in block} | {name: offsets}
    if not ordered:
        return rows.withColumn(name, F.col(row))
    starts = F.broadcast(arrow_frame(rows.sparkSession, pa.table(known)))
    return rows.join(starts, list(block), "left").withColumn(name, F.coalesce(F.col(name), F.lit(0)) + F.col(row))
