"""`delayline run`: all stages on the live clock, in one process, until somebody stops them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from jobs.commands.failures import one_line, storage
from jobs.commands.sizes import sized
from jobs.commands.spark import session
from pipeline.client.create import create_all
from pipeline.config.errors import PipelineError
from pipeline.config.profiles import Profile
from pipeline.config.settings import QUIET_VERSIONS, Upkeep
from pipeline.config.spelling import command_line, spell
from pipeline.config.stages import ALL_STAGES, SCHEDULE
from pipeline.config.wallclock import wall_ms
from pipeline.delta.checkpoints import Checkpoint, Progress
from pipeline.delta.deltars import open_table
from pipeline.delta.warehouse import Warehouse
from pipeline.service.process import beside_stages, serve
from pipeline.service.run import start_all
from pipeline.service.signals import shield_jvm, stop_signals, stops_start
from pipeline.service.stopfile import StopFile
from pipeline.service.warmup import comes_on_time, first_batches, warmed
from pipeline.service.watch.process import check_port, reporting, watched
from pipeline.sources.running import packages
from pipeline.storage.locks import StageLock, warn_unlocked
from schemas import DELIVERIES, INBOX, MESSAGES, REJECTED_INGEST, TABLES
from state.units import Ms


class StageFailed(PipelineError):
    """A stage ended with an error; all were stopped. The message holds the reason. A restart goes on where it was."""

    def __init__(self, reason: str) -> None:
        """Keep the reason, of which the stack traces of two languages are left out."""
        super().__init__(one_line(reason))
        self.reason = reason


class StorageFailed(PipelineError):
    """A disk is full or read-only. Make room, or make it writable, and start again: it goes on where it was."""

    def __init__(self, what: str, error: Exception) -> None:
        """Say what is wrong with which folder, and which write failed."""
        super().__init__(f"{what} ({one_line(str(error))})")
        self.what, self.error = what, error


@dataclass(frozen=True)
class Counts:
    """Rows of four tables, from their statistics."""

    sent: int
    accepted: int
    rejected: int
    delivered: int

    def __str__(self) -> str:
        """For people."""
        return (
            f"sent {self.sent:,}  accepted {self.accepted:,}  rejected {self.rejected:,}  delivered {self.delivered:,}"
        )


def run(root: str, profile: Profile, echo: Callable[[str], None], *, make: bool = False) -> None:
    """Run all stages until a signal or a stop file asks for the end; they end between two batches.

    The signals are SIGTERM, SIGINT and SIGHUP, to this process or to all of its process group.

    Args:
        root: the warehouse.
        profile: the settings.
        echo: says how it goes.
        make: make the warehouse if it is not there.

    Raises:
        NoWarehouse: the folder is none, and none is to be made.
        BadSetting: the port of metrics is taken.
        BrokenVersion: the newest version of a table is empty or cut short.
        NoJava, NoSession: Spark did not start.
        StageRunning, ForeignOwner: another process runs a stage, or another checkpoint wrote its tables.
        StageFailed: a stage ended with an error.
        StorageFailed: a disk is full or read-only.
    """
    try:
        with stops_start():
            _run(root, profile, echo, make=make)
    except KeyboardInterrupt:
        echo("Stopped while it started or ended")
    except Exception as error:
        what = storage(error.reason if isinstance(error, StageFailed) else str(error), root)
        if what is None:
            raise
        raise StorageFailed(what, error) from error


def _run(root: str, chosen: Profile, echo: Callable[[str], None], *, make: bool) -> None:
    check_port(chosen.watching)
    if not make:
        # Of a mistyped name a new warehouse would be made, in which nothing ever comes.
        open_table(root, INBOX)
    create_all(root)
    for table in TABLES:
        open_table(root, table)
    _check_free(root)
    stop_file, starting = StopFile(root), partial(echo, "Starting Spark")
    with (
        session("delayline run", chosen.machine, root, starting=starting, packages=packages(chosen.sources)) as spark,
        stop_signals() as asked,
        watched(spark, root, chosen.watching, counted=True) as watch,
    ):
        shield_jvm(spark)
        warehouse = Warehouse(root, spark)
        chosen = sized(warehouse, chosen, echo)
        options = replace(chosen.options, watch=watch)
        with warmed(spark):
            running = start_all(warehouse, options)
        first_batches(running, asked)
        warn_unlocked(root)
        schedule = Progress(Checkpoint(warehouse.files, warehouse.checkpoint(SCHEDULE)))
        is_on_time = comes_on_time(running, asked, schedule, Ms(wall_ms()))
        echo(f"Running on {root}; stop with Ctrl-C or: {command_line(root, 'stop')}")
        if not is_on_time:
            echo("What came while no job ran is taken first; what is due comes late until then")
        for line in followers(chosen.options.upkeep):
            echo(line)
        with beside_stages(warehouse, running, chosen.sources, options), reporting(watch, echo):
            reason = serve(running, asked, stop_file)
    if reason is not None:
        raise StageFailed(reason)
    echo(f"Stopped  {counts(root)}")


def followers(upkeep: Upkeep | None) -> Iterator[str]:
    """For people: how long somebody who follows `deliveries` by its log may be away."""
    if upkeep is None:
        return
    line = f"Who follows the log of deliveries may be away for {spell(upkeep.retain_log_ms)} (run.retain_log_ms)"
    if upkeep.quiet_ms > upkeep.retain_log_ms:
        line += f", for {spell(upkeep.quiet_ms)} while that is no more than {QUIET_VERSIONS:,} commits"
    yield line


def counts(root: str) -> Counts:
    """Count rows by the statistics of the logs."""
    return Counts(*(open_table(root, table).count() for table in (INBOX, MESSAGES, REJECTED_INGEST, DELIVERIES)))


def _check_free(root: str) -> None:
    """Find out in a moment, and not after Spark's start, that another process runs here."""
    for stage in ALL_STAGES:
        lock = StageLock(stage, f"{root}/_checkpoints")
        lock.take()
        lock.release()
