"""Columns in Arrow, as the files of a table have them."""

from functools import cache

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType


@cache
def arrow_schema(columns: StructType) -> pa.Schema:
    """The same columns in Arrow: times in microseconds, UTC; everything nullable."""
    return pa.schema([pa.field(each.name, each.type) for each in to_arrow_schema(columns, timezone="UTC")])
