"""The signals that end a service, in this process and in the JVM that it started.

systemd, `timeout`, Ctrl-C and a terminal that closes send their signal to each process of a job. A JVM ends at once
then, in the middle of a batch, and takes the stages with it. So the JVM ignores these signals, and this process, which
gets them too, stops the stages between two batches. When this process ends, however it ends, the JVM sees the end of
its standard input and ends as well.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from pyspark.sql import SparkSession

from pipeline.config.jvm import java_class

ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@contextmanager
def stop_signals() -> Iterator[threading.Event]:
    """An event that the signals of a stop set; SIGHUP is left ignored where `nohup` made it so."""
    asked = threading.Event()

    def ask(_number: int, _frame: FrameType | None) -> None:
        asked.set()

    with _handled(ask):
        yield asked


@contextmanager
def stops_start() -> Iterator[None]:
    """While Spark starts, the signals of a stop end the start: they raise KeyboardInterrupt, as Ctrl-C does."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    with _handled(interrupt):
        yield


@contextmanager
def _handled(handler: object) -> Iterator[None]:
    ours = [number for number in ENDING if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, handler) for number in ours}  # type: ignore[arg-type] # a handler, above
    try:
        yield
    finally:
        for number, handled in before.items():
            signal.signal(number, handled)


def shield_jvm(spark: SparkSession) -> None:
    """Let the JVM that this process started ignore the signals of a stop, and what it starts from now on as well."""
    ignore = java_class(spark, "sun.misc.SignalHandler").SIG_IGN
    kind = java_class(spark, "sun.misc.Signal")
    for number in ENDING:
        kind.handle(kind(number.name.removeprefix("SIG")), ignore)
