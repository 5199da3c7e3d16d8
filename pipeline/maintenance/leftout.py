"""What dispatch left out for a later round, and settle has yet to put back: the mark waits for it."""

import math

from pyspark.sql import SparkSession

from pipeline.config.stages import SETTLE
from pipeline.delta.logs.entries import entry, newest
from pipeline.delta.logs.filestats import first_ms
from pipeline.delta.logs.logfiles import appended
from pipeline.delta.warehouse import Warehouse
from pipeline.delta.writing.oncewriter import last_commit
from pipeline.storage.hadoop import session_files
from pipeline.subscriptions.settled import SettledMark
from schemas import CURSORS, REJECTED_DISPATCH


def left_out_unread(spark: SparkSession, warehouse: Warehouse, wanted: SettledMark) -> bool:
    """Whether dispatch may have left out something below a mark that settle does not know of, and puts back."""
    files, path = session_files(spark), warehouse.path(REJECTED_DISPATCH)
    last = last_commit(spark, warehouse.path(CURSORS), SETTLE)
    read = -1 if last is None else int(last.note["refused"])
    for version in range(read + 1, newest(files, path) + 1):
        actions = entry(files, path, version)
        if actions is None:
            return True
        if any(first_ms(file.get("stats"), "due_time", -math.inf) <= wanted.due_ms for file in appended(actions)):
            return True
    return False
