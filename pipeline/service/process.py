"""Stages as a service: they run until somebody asks them to stop, or until one of them fails."""

import logging
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError  # type: ignore[import-untyped]

from pipeline.config.errors import MemoryEnded, PipelineError
from pipeline.config.options import Options
from pipeline.config.sources import Source
from pipeline.config.stages import DISPATCH, INGEST
from pipeline.delta.warehouse import Warehouse
from pipeline.maintenance.upkeep import maintaining
from pipeline.planner.running import planning
from pipeline.service.outages import Wait, no_answer
from pipeline.service.run import STORE_AWAY, Stage, stop_all
from pipeline.service.stopfile import StopFile
from pipeline.sinks.apart import publishing_apart
from pipeline.sources.running import following

_LOG = logging.getLogger(__name__)
_STILL_STOPPING = "failed to stop within"
"""What Spark says of a query that is in the middle of a request, for instance."""
_PATIENCE_S = 10.0
"""So long a stop waits for pauses between batches. A stage whose batches take longer than its trigger has none."""


@contextmanager
def beside_stages(
    warehouse: Warehouse, running: list[Stage], sources: Sequence[Source], options: Options
) -> Iterator[None]:
    """What runs beside the stages while they are served.

    In the process that has ingest: the sources of the profile, the planner of what recurs, and maintenance. In the one
    that has dispatch: the sinks.

    Raises:
        PipelineError: a source cannot be followed as the profile says; the stages are stopped then.
    """
    names = {stage.name for stage in running}
    with ExitStack() as block:
        try:
            block.enter_context(following(warehouse, sources if INGEST in names else (), options))
        except BaseException:
            stop_all(running)
            raise
        if INGEST in names:
            block.enter_context(planning(warehouse, options))
        if INGEST in names and options.upkeep is not None:
            block.enter_context(maintaining(warehouse, options.upkeep))
        if DISPATCH in names:
            block.enter_context(publishing_apart(warehouse.root, options.watch))
        yield


def serve(stages: Sequence[Stage], asked: threading.Event, stop_file: StopFile) -> str | None:
    """Wait until a stop is asked for or a stage fails; then stop all stages between two batches.

    A stage that fails when a signal has asked for the stop is no failure: the signal has ended one of its Python
    workers, too, and the next start repeats its batch.

    Returns:
        The reason of a failure; None after a stop in good order.

    Raises:
        MemoryEnded: the JVM is gone.
    """
    reason: str | None = None
    running = list(stages)
    while reason is None and not asked.wait(stop_file.pause_s) and not stop_file.asked:
        try:
            running = [restart_if_possible(stage, answers=stop_file.answered) for stage in running]
            # What passes, and came after the look, is seen by the next one.
            ended = [stage for stage in running if stage.failure is not None]
            reason = next((stage.failure for stage in ended if stage.passing is None), None)
        except Py4JJavaError:
            raise
        except (ConnectionError, Py4JError) as error:
            # Py4J has no error of its own for an answer that did not come.
            raise _jvm_gone(running) from error
        except PipelineError as error:
            reason = str(error)
    if asked.is_set():
        reason = None
    end = time.monotonic() + _PATIENCE_S
    for stage in running:
        stage.pause_clock()
    for stage in reversed(running):
        _finish_batch(stage, end)
    stop_all(running)
    return reason


def _jvm_gone(running: Sequence[Stage]) -> MemoryEnded:
    """What the stages were at when the JVM ended: ingest is the first that a large file meets."""
    at = [stage for stage in running if stage.work is not None and stage.work.files] or list(running)
    files, memory = (None, "unknown") if at[0].work is None else (at[0].work.files, at[0].work.memory)
    return MemoryEnded(at[0].name, "Spark's JVM ended", files, memory)


def restart_if_possible(stage: Stage, *, answers: bool = True) -> Stage:
    """The stage; a new one in its place when it ended of something that passes.

    Args:
        stage: one that may have ended.
        answers: whether the store has answered just now. One that waits for the store is not started before.

    Raises:
        PipelineError: it was started again, and was refused.
    """
    if stage.again is None or (why := stage.passing) is None:
        return stage
    if why == STORE_AWAY:
        return _when_it_answers(stage, answers=answers)
    _LOG.warning("stage %s is started again: %s", stage.name, why)
    return stage.restarted()


def _when_it_answers(stage: Stage, *, answers: bool) -> Stage:
    """A stage that ended because the store did not answer: a new one when its time has come.

    Raises:
        PipelineError: it was started again, and was refused.
    """
    wait = Wait.after(stage.wait, stage.query)
    if stage.wait is None or stage.wait.ended is not stage.query:
        said = no_answer(stage.failure)
        _LOG.warning("stage %s has ended, and is started again when the store answers: %s", stage.name, said)
    if wait.asleep or not answers:
        return replace(stage, wait=wait)
    try:
        begun = stage.restarted()
    except (PipelineError, ConnectionError, Py4JNetworkError):
        raise
    except Exception as error:  # noqa: BLE001 - whatever a client of a store, Spark or Delta says
        again = no_answer(error) is not None or _STILL_STOPPING in str(error)
        return replace(stage, wait=wait.longer(), refusal=None if again else str(error))
    _LOG.warning("stage %s is started again", stage.name)
    return replace(begun, wait=wait.longer(), starts=stage.starts)


def _finish_batch(stage: Stage, end: float) -> None:
    """Wait, though not for ever, until a stage is between two batches. Stopping in the middle is safe, but noisy."""
    waited = threading.Event()
    while time.monotonic() < end and stage.query.isActive and stage.query.status["isTriggerActive"]:
        waited.wait(0.01)
