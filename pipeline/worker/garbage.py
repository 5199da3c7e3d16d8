"""What Spark's Python workers do with garbage, made cheap."""

import gc
from functools import cache


@cache
def leave_out_modules() -> None:
    """Leave what is loaded now out of all collections of garbage to come; the first call in a process does it.

    A worker of Spark collects garbage after each task (`pyspark/daemon.py`). It looks at every object then, and most of
    them belong to modules: beside PySpark, pandas and PyArrow a collection takes longer than a usual task of ours.
    """
    gc.collect()
    gc.freeze()
