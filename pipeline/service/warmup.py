"""A warm start: what the first batches would wait for is done while the stages look up what their tables hold.

Nothing here reads or writes a table or a checkpoint, so nothing that is promised of them can depend on it.
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from threading import Event

from pyspark.sql import SparkSession

from pipeline.config.session import PARTITIONS
from pipeline.config.stages import ALL_STAGES, SCHEDULE
from pipeline.config.threads import beside
from pipeline.delta.checkpoints import Progress
from pipeline.service.run import Stage
from pipeline.worker.warm import loaded
from state.units import Ms

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
    _waited(running, asked, lambda: all(stage.query.lastProgress is not None for stage in ticking))


def comes_on_time(running: Sequence[Stage], asked: Event, schedule: Progress, now: Ms) -> bool:
    """Wait until the schedule has let go what is due at a time, so that what is sent from then on comes on time.

    Its clock stands still after a start until ingest has taken what came meanwhile (`pipeline.service.catchup`), which
    is waited for as long as for first batches. Whether it has; when a stop is asked for it need not.

    Args:
        running: the stages.
        asked: a stop is asked for.
        schedule: how far the schedule is.
        now: the time, ms UTC.
    """
    _waited(running, asked, lambda: schedule.is_at(now))
    return schedule.is_at(now) or asked.is_set()


def _waited(running: Sequence[Stage], asked: Event, met: Callable[[], bool]) -> None:
    for _ in range(int(_LONGEST_S / _LOOK_S)):
        if met() or asked.wait(_LOOK_S) or any(stage.failure is not None for stage in running):
            return
