"""The program that publishes: it begins and ends the sinks of its share, and tells its parent what they do.

    python -m pipeline.sinks.program WAREHOUSE PIPE SHARE

The process ends with its standard input. What it writes into the pipe is for its parent, a line of JSON each: how late
a sink is, which one it begins, or what is to be logged. Clients of brokers may print what they like.
"""

from __future__ import annotations

import json
import logging
import signal
import sys
from contextlib import suppress
from threading import Lock
from typing import TextIO

from pipeline.config.options import StageListener
from pipeline.sinks.running import Share, publishing

LATE, BEGINS, LOGGED = "late", "begins", "log"


class _Teller(StageListener, logging.Handler):
    """Tells the parent what a sink's watcher and a logger are told here."""

    def __init__(self, out: TextIO) -> None:
        super().__init__()
        self._out, self._turn = out, Lock()
        self.setFormatter(logging.Formatter("%(message)s"))

    def sink_late(self, topic: str, subscription: str, seconds: float | None) -> None:
        self._tell(LATE, topic, subscription, seconds)

    def begins(self, name: str | None) -> None:
        """A sink begins; None: the one that did has caught up, or stands still."""
        self._tell(BEGINS, name)

    def emit(self, record: logging.LogRecord) -> None:
        self._tell(LOGGED, record.name, record.levelno, self.format(record))

    def _tell(self, *values: object) -> None:
        # Without a parent nobody listens, and the process ends.
        with self._turn, suppress(OSError):
            self._out.write(json.dumps(values) + "\n")
            self._out.flush()


def main(root: str, pipe: str, share: str) -> None:
    """Publish for the sinks of a warehouse until the standard input ends, as it does when the parent dies."""
    # They are sent to each process of a job. The parent stops its stages first, and then this process.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    with open(int(pipe), "w", encoding="utf-8") as out:  # noqa: PTH123 - it has no path
        teller = _Teller(out)
        logging.basicConfig(level=logging.WARNING, handlers=[teller])
        with publishing(root, teller, share=Share(**json.loads(share)), begins=teller.begins):
            sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
