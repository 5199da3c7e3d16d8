"""Rows of the inbox, as the benchmarks under the virtual clock make them."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

from schemas import INBOX


def inbox_rows(spark: SparkSession, count: int, files: int, payload_bytes: int, **made: Column) -> DataFrame:
    """So many rows of topic `t`, in so many files, `id` from 0 on; `made` are columns of the inbox."""
    told = {"topic": F.lit("t"), "payload": _random_bytes(payload_bytes), **made}
    columns = (told.get(f.name, F.lit(None)).cast(f.dataType).alias(f.name) for f in INBOX.schema.fields)
    return spark.range(0, count, 1, files).select(*columns)


def _random_bytes(count: int) -> Column:
    """Bytes that do not compress: hashes of the row's number, cut to length."""
    hashes = (F.sha2(F.concat_ws("-", "id", F.lit(part)), 256) for part in range(-(-count // 32)))
    return F.substring(F.unhex(F.concat(*hashes)), 1, count)
