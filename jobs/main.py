"""What the mains share: arguments in, stages up, wait, exit code out."""

import argparse
import os
import sys
import threading
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from jobs.commands.failures import explain, one_line, storage
from jobs.commands.java import need_java
from jobs.commands.sizes import sized
from jobs.commands.spark import kept_session
from pipeline.config.errors import MemoryEnded, PipelineError
from pipeline.config.jvm import answer_jvm, java_class, keep_classes
from pipeline.config.paths import one_spelling
from pipeline.config.printed import print_logs, printable
from pipeline.config.profiles import Profile, read_profile
from pipeline.config.session import PARTITIONS, local_session, submitted_session
from pipeline.delta.tables import create_all
from pipeline.delta.warehouse import Warehouse
from pipeline.service.process import beside_stages, serve
from pipeline.service.run import Stage, start_all, stop_all
from pipeline.service.signals import ENDING, shield_jvm, stop_signals, stops_start
from pipeline.service.stopfile import StopFile
from pipeline.service.warmup import warmed
from pipeline.service.watch.process import watched
from pipeline.sources.running import packages
from pipeline.storage.locks import warn_unlocked
from pipeline.storage.storecheck import check_store

STOPPED, FAILED, REFUSED = 0, 1, 2
"""Exit codes: asked to stop, a stage failed, not even started."""


def run(stages: Sequence[str], arguments: Sequence[str] | None = None) -> int:
    """Run stages until they are asked to stop: 0 after a stop in good order, 1 after a failure, 2 when refused."""
    parser = argparse.ArgumentParser(description=f"Run {', '.join(stages)} of delayline.")
    parser.add_argument("--profile", type=Path, required=True, help="a TOML file as in conf/")
    add_warehouse(parser, "folder of the tables; made when it is missing")
    options = parser.parse_args(arguments)
    print_logs()
    try:
        profile = read_profile(options.profile)
    except (PipelineError, OSError, ValueError, TypeError) as error:
        return _end(f"{options.profile}: {error}", REFUSED)
    try:
        with stops_start():
            spark = _session(f"delayline {' '.join(stages)}", profile, options.warehouse)
            try:
                return _run(spark, stages, profile, Warehouse(options.warehouse, spark))
            finally:
                spark.stop()
    except KeyboardInterrupt:
        return STOPPED
    except (MemoryEnded, ConnectionError, Py4JNetworkError) as error:
        # The JVM is gone: what failed on the way out is not why.
        return _end(explain(error)[1], FAILED)
    except PipelineError as error:
        return _end(str(error), REFUSED)


def _run(spark: SparkSession, stages: Sequence[str], profile: Profile, warehouse: Warehouse) -> int:
    running: list[Stage] = []
    with stop_signals() as asked, ExitStack() as watching:
        if submitted():
            _listen_to_the_jvm(spark, asked)
        else:
            shield_jvm(spark)
        try:
            # First: it asks a store without the JVM, which asks again for minutes before it says what is missing.
            stop_file = StopFile(warehouse.root)
            check_store(spark, warehouse.root)
            create_all(warehouse)
        except OSError as error:
            return _end(explain(error)[1], REFUSED)
        warn_unlocked(warehouse.root)
        try:
            if submitted():
                profile = _with_given(spark, profile)
            profile = sized(warehouse, profile, _say)
            watch = watching.enter_context(watched(spark, warehouse.root, profile.watching))
            options = replace(profile.options, watch=watch)
            with warmed(spark, stages):
                running = start_all(warehouse, options, stages)
            watching.enter_context(beside_stages(warehouse, running, profile.sources, options))
        except PipelineError as error:
            stop_all(running)
            return _end(str(error), REFUSED)
        reason = serve(running, asked, stop_file)
    if reason is None:
        return STOPPED
    what = storage(reason, warehouse.root)
    return _end(one_line(reason) if what is None else f"{what} ({one_line(reason)})", FAILED)


def add_warehouse(parser: argparse.ArgumentParser, about: str) -> None:
    """The option that all mains have."""
    parser.add_argument("--warehouse", required=True, type=one_spelling, help=about)


def tool_session(app: str, root: str) -> SparkSession:
    """A session for a job that ends by itself. spark-submit brings master, memory and JARs; alone we bring them."""
    return submitted_session(app, root) if submitted() else local_session(app, None, root)


def submitted() -> bool:
    """Whether spark-submit started us: it brings master, memory and JARs."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _session(app: str, profile: Profile, root: str) -> SparkSession:
    """To what spark-submit brings we add what correctness needs; alone we bring everything ourselves."""
    if not submitted():
        return kept_session(need_java(), app, profile.machine, root, packages=packages(profile.sources))
    spark = submitted_session(app, root)
    keep_classes(spark)
    return spark


def _with_given(spark: SparkSession, profile: Profile) -> Profile:
    """The profile with the shuffle partitions that spark-submit was given, if it was: they win."""
    given = spark.sparkContext.getConf().get(PARTITIONS)
    if given is None:
        return profile
    machine = replace(profile.machine, partitions=int(given))
    return replace(profile, machine=machine, origins={**profile.origins, "session.partitions": "spark-submit"})


class _Ask:
    """A signal handler of the JVM, in Python."""

    def __init__(self, asked: threading.Event) -> None:
        self._asked = asked

    def handle(self, _signal: object) -> None:
        """The signal has come."""
        self._asked.set()

    class Java:
        """What py4j implements with this class."""

        implements = ("sun.misc.SignalHandler",)


def _listen_to_the_jvm(spark: SparkSession, asked: threading.Event) -> None:
    """Take over the JVM's signals: spark-submit's process is the JVM, and who stops the job sends them there."""
    answer_jvm(spark)
    kind = java_class(spark, "sun.misc.Signal")
    for number in ENDING:
        kind.handle(kind(number.name.removeprefix("SIG")), _Ask(asked))


def _say(text: str) -> None:
    # The terminal may have been closed.
    with suppress(OSError):
        sys.stderr.write(f"{printable(text)}\n")


def _end(reason: str, code: int) -> int:
    _say(f"delayline: {reason}")
    return code
