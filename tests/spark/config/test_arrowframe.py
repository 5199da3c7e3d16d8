"""Spark has all rows that it is given."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import SparkSession

from pipeline.config.arrowframe import arrow_frame


def test_rows_behind_an_empty_chunk_are_there(spark: SparkSession) -> None:
    """A table is put together of what several policies left out, and most of them left out nothing."""
    some, nothing = pa.table({"a": [1, 2]}), pa.table({"a": pa.array([], pa.int64())})
    assert arrow_frame(spark, pa.concat_tables([nothing, nothing, some, nothing, some])).count() == 4
