"""The row that the schedule keeps per (topic, subscription, segment).

Spark freezes the schema of a stateful operator at its first start, and accepts atomic columns only. So everything
that may change lives in one binary column whose bytes carry their own version; the scalars beside it never change.
"""

from pyspark.sql.types import BinaryType, LongType, StructField, StructType

STATE_VERSION = 1
"""Version of the row itself (the index inside has its own)."""

STATE_ROW = StructType(
    [
        StructField("version", LongType(), nullable=False),
        StructField("tick_ms", LongType(), nullable=False),
        StructField("earliest_due", LongType(), nullable=False),
        StructField("count", LongType(), nullable=False),
        StructField("index", BinaryType(), nullable=False),
    ]
)
"""version; tick of the subscription in ms; first bucket due in ms UTC; positions pending; `TimeBucketIndex` bytes."""
