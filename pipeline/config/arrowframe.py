"""The one door by which rows of this process go to Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


def arrow_frame(session: SparkSession, rows: pa.Table, schema: StructType | None = None) -> DataFrame:
    """Rows as a DataFrame; with the types that Arrow's have in Spark when no `schema` is given.

    Of a table with an empty chunk Spark loses all that follows it, unless that chunk is the first one: its iterator
    over small tables (`ArrowConverters`, seen with 4.2) ends at a batch without rows. So a table is made of one chunk
    first. One that has more than 2 GiB of texts stays in chunks, none of which is empty.
    """
    whole = rows.combine_chunks()
    return session.createDataFrame(whole) if schema is None else session.createDataFrame(whole, schema)
