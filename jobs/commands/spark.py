"""The Spark session of a command: Java looked for first, Spark's own talk kept in a file."""

import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark import java_gateway
from pyspark.sql import SparkSession

from jobs.commands.java import need_java
from jobs.commands.startcache import Kept
from pipeline.config.errors import PipelineError
from pipeline.config.session import Machine, local_session
from pipeline.storage.storecheck import check_store

LOG4J = Path(__file__).resolve().parents[2] / "conf" / "log4j2.properties"
"""Errors only, from the JVM's first line on; a level that is set later leaves what was written until then."""


_GATEWAY: Any = java_gateway
_NOT_FOUND = re.compile(r"unresolved dependency: (\S+): not found")


class NoSession(PipelineError):
    """Spark did not start. Its own words are in the log; often memory, a proxy, or no way to Maven Central."""

    def __init__(self, log: Path, error: Exception) -> None:
        missing = _NOT_FOUND.search(log.read_text(errors="replace")) if log.exists() else None
        why = type(error).__name__ if missing is None else f"no way to the JAR {missing[1]} at Maven Central"
        super().__init__(f"Spark did not start ({why}); its log is {log}")
        self.log, self.error = log, error


@contextmanager
def session(
    app: str,
    machine: Machine,
    *paths: str,
    starting: Callable[[], None] = lambda: None,
    packages: Sequence[str] = (),
) -> Iterator[SparkSession]:
    """A local session, stopped at the end. What the JVM writes goes to a file in the folder for temporary files.

    Args:
        app: the application's name.
        machine: what it takes of this one.
        paths: a warehouse, and what else it will read.
        starting: called when there is a suitable Java, before Spark starts.
        packages: what it needs beside Spark and Delta, as Maven names it.

    Raises:
        NoJava: there is no suitable Java.
        NoSession: Spark did not start.
        StrangeJar: it resolved a JAR that is not as `conf/jars.lock` says.
        NoConditionalPuts, StoreRefused: the warehouse lies in a store of objects that will not do.
    """
    java = need_java()
    starting()
    log = private_log()
    options = f"{machine.java_options} -Dlog4j2.configurationFile={LOG4J.as_uri()}"
    try:
        with _stderr_to(log), _ended_if_interrupted():
            spark = kept_session(java, app, replace(machine, java_options=options), *paths, packages=packages)
    except PipelineError:
        raise
    except Exception as error:
        raise NoSession(log, error) from error
    try:
        for path in paths[:1]:
            check_store(spark, path)
        yield spark
    finally:
        spark.stop()
        with suppress(OSError):
            if not log.stat().st_size:
                log.unlink()


@contextmanager
def _ended_if_interrupted() -> Iterator[None]:
    """End the processes that PySpark has started when its start does not come to an end.

    A JVM whose start was interrupted finds no place for what it has to say, and would then stay for ever.
    """
    begun, launch = list[Any](), _GATEWAY.Popen

    def noted(*words: Any, **how: Any) -> Any:  # noqa: ANN401 - as Popen
        begun.append(launch(*words, **how))
        return begun[-1]

    _GATEWAY.Popen = noted
    try:
        yield
    except BaseException:
        for process in begun:
            with process:
                process.kill()
        raise
    finally:
        _GATEWAY.Popen = launch


def private_log() -> Path:
    """A new file in the folder for temporary files, for this user alone. Its name cannot be known before.

    Others may write to that folder. A file or a link of theirs with our name would be written to, or keep us out.
    """
    descriptor, name = tempfile.mkstemp(prefix="delayline-", suffix=".log")
    os.close(descriptor)
    return Path(name)


def kept_session(java: Path, app: str, machine: Machine, *paths: str, packages: Sequence[str] = ()) -> SparkSession:
    """A local session with what earlier starts have kept, which keeps what it lacks."""
    kept = Kept.of(java, paths, packages=packages)
    jars = kept.jars()
    machine = replace(machine, java_options=f"{machine.java_options} {kept.java_options()}")
    spark = local_session(app, machine, *paths, jars=jars, packages=packages)
    if not jars:
        kept.keep_jars(spark)
    return spark


@contextmanager
def _stderr_to(log: Path) -> Iterator[None]:
    """Point file descriptor 2 to a file: a process started meanwhile keeps it, ours comes back."""
    sys.stderr.flush()
    kept = os.dup(2)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)
