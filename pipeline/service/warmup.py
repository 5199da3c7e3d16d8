"""A warm start: what the first batches would wait for is done while the stages look up what their tables hold.

Nothing here reads or writes a table or a checkpoint, so nothing that is promised of them can depend on it.
"""

import logging
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from threading import Event

from pyspark.sql import SparkSession

from pipeline.config.session import PARTITIONS
from pipeline.config.stages import ALL_STAGES, SCHEDULE
from pipeline.config.threads import beside
from pipeline.service.run import Stage
from pipeline.worker.warm import loaded

_LOG = logging.getLogger(__name__)
_LOOK_S, _LONGEST_S = 0.02, 20.0


def warmed(spark: SparkSession, stages: Sequence[str] = ALL_STAGES) -> AbstractContextManager[None]:
    """Start Python workers for the schedule, if it is to run, beside what is done in the block.

    They import pandas for most of a second each, and Spark keeps them for the tasks of the stages. The session has its
    shuffle partitions by now. What goes wrong is passed over: the stages would meet it as well, and say so.
    """
    return beside(_start_workers, spark, patience_s=_LONGEST_S) if SCHEDULE in stages else nullcontext()


def _start_workers(spark: SparkSession, _: Event) -> None:
    try:
        # The tasks of the schedule that run at once take a worker each. Those of other stages are Python's when a batch
        # is large.
        count = min(spark.sparkContext.defaultParallelism, int(str(spark.conf.get(PARTITIONS))))
        spark.range(0, count, 1, count).mapInArrow(loaded, "id bigint").toArrow()
    except Exception:  # noqa: BLE001 - whatever it is
        _LOG.debug("Python workers were not started ahead of the first batches", exc_info=True)


def first_batches(running: Sequence[Stage], asked: Event) -> None:
    """Wait until each stage that has a clock has ended a batch; not for ever, and not when a stop is asked for.

    Dispatch has no batch before something is due, and settle is no query of Spark's.
    """
    ticking = [stage for stage in running if stage.work is not None and stage.publisher is None]
    for _ in range(int(_LONGEST_S / _LOOK_S)):
        if all(stage.query.lastProgress is not None for stage in ticking) or asked.wait(_LOOK_S):
            return
        if any(stage.failure is not None for stage in running):
            return
