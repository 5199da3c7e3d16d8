"""A warm start: what the first batches would wait for is done while the stages look up what their tables hold.

Nothing here reads or writes a table or a checkpoint, so nothing that is promised of them can depend on it.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Event, Thread

from pyspark.sql import SparkSession

from pipeline.config.session import PARTITIONS
from pipeline.config.stages import ALL_STAGES, SCHEDULE
from pipeline.service.run import Stage
from pipeline.worker.warm import loaded

_LOG = logging.getLogger(__name__)
_LOOK_S, _LONGEST_S = 0.02, 20.0


@contextmanager
def warmed(spark: SparkSession, stages: Sequence[str] = ALL_STAGES) -> Iterator[None]:
    """Start Python workers for the schedule, if it is to run, beside what is done in the block.

    They import pandas for most of a second each, and Spark keeps them for the tasks of the stages. The session has its
    shuffle partitions by now. What goes wrong is passed over: the stages would meet it as well, and say so.
    """
    if SCHEDULE not in stages:
        yield
        return
    thread = Thread(target=_start_workers, args=(spark,), name="delayline-warmup", daemon=True)
    thread.start()
    try:
        yield
    finally:
        thread.join(_LONGEST_S)


def _start_workers(spark: SparkSession) -> None:
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
