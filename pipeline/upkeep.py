"""Maintenance beside the stages, in a thread: a round from time to time, and small files of `messages` as they come.

A release opens each file of `messages` in which something may be due, and a file that ingest has just written spans
all delays there are. A round comes too seldom for that: at 5 000 messages a second there are 480 such files after ten
minutes (decision 0019).
"""

import logging
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from threading import Event, Thread

from pyspark.sql import SparkSession

from pipeline.clock import wall_ms
from pipeline.errors import StageRunning
from pipeline.layout import SmallFiles
from pipeline.maintenance import maintain
from pipeline.settings import SECOND_MS, Upkeep
from pipeline.tables import Warehouse
from schemas import MESSAGES

_LOOK_S = 5.0
"""Pause between two looks at the files that came."""
_LOG = logging.getLogger(__name__)


@contextmanager
def maintaining(spark: SparkSession, warehouse: Warehouse, upkeep: Upkeep) -> Iterator[None]:
    """Maintain in a thread until the block ends. A failure is logged: the stages do without.

    Args:
        spark: the session of the stages.
        warehouse: where they run.
        upkeep: how often a round is done, and what is kept.
    """
    ended = Event()
    worker = Thread(target=_keep_maintaining, args=(spark, warehouse, upkeep, ended), daemon=True)
    worker.start()
    try:
        yield
    finally:
        ended.set()
        worker.join()


def _keep_maintaining(spark: SparkSession, warehouse: Warehouse, upkeep: Upkeep, ended: Event) -> None:
    pause, small = upkeep.every_ms / SECOND_MS, SmallFiles(spark, warehouse)
    end = time.monotonic() + pause
    while not ended.wait(max(0.0, min(_LOOK_S, end - time.monotonic()))):
        due = time.monotonic() >= end
        try:
            if due:
                _round(spark, warehouse, upkeep, ended)
            else:
                _merge(small)
        except StageRunning:
            _LOG.info("another round of maintenance is on its way")
        except Exception:  # noqa: BLE001 - whatever it is, messages are delivered without it
            _LOG.exception("maintenance failed; it is tried again later")
        if due:
            end = time.monotonic() + pause


def _merge(small: SmallFiles) -> None:
    merged, into = small.merge()
    if merged:
        _LOG.info("%s: %d files became %d", MESSAGES.name, merged, into)


def _round(spark: SparkSession, warehouse: Warehouse, upkeep: Upkeep, ended: Event) -> None:
    with closing(maintain(spark, warehouse, upkeep, wall_ms())) as work:
        for done in work:
            _LOG.info("%s", done)
            if ended.is_set():
                return
