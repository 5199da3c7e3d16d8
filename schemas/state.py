"""The row that the schedule keeps per (shard, segment): all that is pending in the indexes of a shard.

Spark freezes the schema of a stateful operator at its first start, and accepts atomic columns only. So everything
that may change lives in one binary column whose bytes carry their own version; the scalars beside it never change.
"""

from schemas.columns import BYTES, LONG, Columns

STATE_VERSION = 2
"""Version of the row itself (the group inside has its own). Version 1 had a row per topic, subscription and segment."""

STATE_ROW = Columns.of(("version", LONG), ("earliest_due", LONG), ("count", LONG), ("indexes", BYTES))
"""version; first bucket due in ms UTC; positions pending, once for all who share them;
`IndexGroup` bytes."""
