"""Watching a process: the listener, the metrics on a port, the log of progress, and a line now and then."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from socket import AF_INET, AF_INET6, SO_REUSEADDR, SOL_SOCKET, socket
from threading import Event

from deltalake.exceptions import DeltaError
from prometheus_client import start_http_server
from pyspark.sql import SparkSession

from pipeline.client.insight.backlogfigures import BacklogFigures
from pipeline.client.insight.pendingfollower import PendingFollower
from pipeline.client.subscribing.subscriptions import subscriptions
from pipeline.config.errors import BadSetting, PipelineError
from pipeline.config.options import Delivered, SettleBatch, Watching
from pipeline.config.stages import SETTLE
from pipeline.config.threads import beside
from pipeline.config.wallclock import monotonic_ms, wall_ms
from pipeline.delta.deltars import path_of
from pipeline.delta.logs.entries import newest
from pipeline.service.watch.line import ProgressAggregator, Publication
from pipeline.service.watch.listener import LOG, Listener
from pipeline.service.watch.metrics import Metrics
from pipeline.service.watch.progress import CPU, WHOLE, Progress
from pipeline.storage.files import Files
from pipeline.subscriptions.incarnations import Name
from schemas import SUBSCRIPTIONS

_LINE_S, _QUIET_LINES = 5.0, 12
"""A line every few seconds while something moves, and one a minute while nothing does."""
_COUNT_S, _COUNT_SHARE = 5.0, 0.02
"""What is pending is counted from the tables: so often at most, and never for more than this share of the time."""
_PATIENCE_S = 1.0
_FORGET_S = 60.0
"""So often it is looked which subscriptions there are."""
_ERRORS = (DeltaError, OSError, PipelineError)


class Watcher(Metrics):
    """The metrics, and beside them the board of the lines and the lines of settle in the log of progress."""

    def __init__(self) -> None:
        super().__init__()
        self.board = ProgressAggregator(wall_ms())

    def progressed(self, batch: Progress) -> None:
        """A batch ended."""
        super().progressed(batch)
        self.board.progressed(batch)

    def settled(self, batch: SettleBatch) -> None:
        """A batch of settle ended; it is told as those of the stages are."""
        progress = Progress(
            stage=SETTLE,
            batch=batch.number,
            ended_ms=batch.ended_ms,
            rows=batch.rows,
            duration_ms={WHOLE: max(0, batch.ended_ms - batch.begun_ms), CPU: batch.cpu_ms},
            instant_ms=batch.instant_ms,
            version=batch.version,
        )
        LOG.info(progress.dumps())
        # Not to the board: settle need not move while nobody acknowledges, and is not behind then.
        super().progressed(progress)
        super().settled(batch)

    def published(
        self, count: int, first_due_ms: int, last_due_ms: int, committed_ms: int, shares: Sequence[Delivered] = ()
    ) -> None:
        """A commit made deliveries visible."""
        super().published(count, first_due_ms, last_due_ms, committed_ms, shares)
        self.board.published(Publication.of(count, first_due_ms, last_due_ms, committed_ms), committed_ms)

    def waiting(self, figures: BacklogFigures) -> None:
        """What is pending was counted."""
        super().waiting(figures)
        self.board.waiting(figures.count, figures.next_due_ms)


def check_port(options: Watching) -> None:
    """Find out in a moment, and not after Spark's start, that the port of metrics is taken.

    Raises:
        BadSetting: it is, or the address is none of this machine.
    """
    if options.metrics_port is None:
        return
    family = AF_INET6 if ":" in options.metrics_address else AF_INET
    with socket(family) as door:
        # As the server does: what an earlier process left behind is no hindrance.
        door.setsockopt(SOL_SOCKET, SO_REUSEADDR, 1)
        try:
            door.bind((options.metrics_address, options.metrics_port))
        except OSError as error:
            raise _taken(options.metrics_port, error) from error


def _taken(port: int, error: OSError) -> BadSetting:
    return BadSetting("run.metrics_port", port, f"a free port ({error.strerror})")


@contextmanager
def watched(spark: SparkSession, root: str, options: Watching, *, counted: bool = False) -> Iterator[Watcher]:
    """Watch the stages that are started in the block, with what it gives as their `Options.watch`.

    What is pending is counted now and then for the metrics, or when somebody else wants it `counted`.

    Raises:
        BadSetting: the port is taken, or the file of the log cannot be written.
    """
    watcher = Watcher()
    with ExitStack() as stack:
        if options.progress_log is not None:
            stack.enter_context(_logged(Path(options.progress_log)))
        if options.metrics_port is not None:
            stack.enter_context(_served(watcher, options.metrics_port, options.metrics_address))
        stack.enter_context(beside(_forget, root, watcher, patience_s=_PATIENCE_S))
        if counted or options.metrics_port is not None:
            stack.enter_context(beside(_count, root, watcher, patience_s=_PATIENCE_S))
        listener = Listener(watcher)
        spark.streams.addListener(listener)
        stack.callback(spark.streams.removeListener, listener)
        yield watcher


@contextmanager
def _served(watcher: Watcher, port: int, address: str) -> Iterator[None]:
    try:
        server, thread = start_http_server(port, address, watcher.registry)
    except OSError as error:
        raise _taken(port, error) from error
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def _logged(path: Path) -> Iterator[None]:
    """The lines of the progress log, appended to a file as they are."""
    try:
        handler = logging.FileHandler(path, encoding="utf-8")
    except OSError as error:
        raise BadSetting("run.progress_log", str(path), f"a file that can be written ({error.strerror})") from error
    before = LOG.level
    LOG.addHandler(handler)
    LOG.setLevel(logging.INFO)
    try:
        yield
    finally:
        LOG.setLevel(before)
        LOG.removeHandler(handler)
        handler.close()


def reporting(watcher: Watcher, echo: Callable[[str], None]) -> AbstractContextManager[None]:
    """Echo a line every few seconds, until the block ends."""
    return beside(_report, watcher.board, echo, patience_s=_PATIENCE_S)


def _report(board: ProgressAggregator, echo: Callable[[str], None], ended: Event) -> None:
    quiet = 0
    while not ended.wait(_LINE_S):
        line, quiet = board.line(wall_ms()), quiet + 1
        if line.moves or quiet >= _QUIET_LINES:
            echo(str(line))
            quiet = 0


def _forget(root: str, watcher: Watcher, ended: Event) -> None:
    """Metrics of subscriptions that have ended go. A process may run for years, and topics come and go."""
    files, seen, names = Files(), -1, list[Name]()
    while not ended.wait(_FORGET_S):
        try:
            version = newest(files, path_of(root, SUBSCRIPTIONS), seen)
            if version != seen:
                names, seen = [each.named for each in subscriptions(root)], version
            watcher.forget_others(names)
        except _ERRORS as error:
            LOG.warning("the registry was not read: %s", error)


def _count(root: str, watcher: Watcher, ended: Event) -> None:
    """Count, and pause in proportion: it takes cores that the stages need. The first time reads whole columns."""
    pause, follower = _COUNT_S, PendingFollower(root)
    while not ended.wait(pause):
        begun = monotonic_ms()
        try:
            now = wall_ms()
            watcher.waiting(BacklogFigures.of(follower.look().backlogs, now))
        except _ERRORS as error:
            LOG.warning("what is pending was not counted: %s", error)
        pause = max(_COUNT_S, (monotonic_ms() - begun) / 1_000 / _COUNT_SHARE)
