"""What Spark's executors import beside the core of ingest: the stateful function, encoding and unpacking.

Nothing here imports more than numpy, pandas, pyarrow, pyroaring, PySpark, `state`, `schemas`, and modules of this
project that need no more than that. So a node of a cluster needs those packages, and neither delta-rs nor a metrics
client.
"""

__all__ = ["audience", "encode", "express", "release", "unpack", "warm"]
