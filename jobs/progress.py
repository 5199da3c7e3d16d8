"""How far a command is that takes longer than two seconds: a bar on a terminal, lines of JSON otherwise.

What a command prints goes to standard output, and this to standard error.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Timer
from typing import TYPE_CHECKING

from jobs.commands.jsonform import json_line
from jobs.terminal import echo
from pipeline.config.options import OnStep

if TYPE_CHECKING:
    from rich.progress import Progress

QUIET_S = 2.0
"""A command that takes less long says nothing of how far it is, nor does one say it more often than that in JSON."""


@contextmanager
def progress(clock: Callable[[], float] = time.monotonic) -> Iterator[OnStep]:
    """Show steps while the block runs, from two seconds after its beginning on.

    Args:
        clock: gives seconds of a clock that never steps back.
    """
    shown: _Bar | _Lines = _Bar(QUIET_S) if sys.stderr is not None and sys.stderr.isatty() else _Lines(clock)
    try:
        yield shown.step
    finally:
        shown.end()


class _Lines:
    """A line of JSON every two seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self._begun = clock, clock()
        self._said = self._begun

    def step(self, doing: str, done: int, total: int) -> None:
        now = self._clock()
        if now - self._said >= QUIET_S:
            self._said = now
            seconds = round(now - self._begun, 1)
            echo(json_line({"doing": doing, "done": done, "total": total, "seconds": seconds}), err=True)

    def end(self) -> None:
        pass


class _Bar:
    """A bar, which goes when the command has ended. It moves on by itself while a step lasts."""

    def __init__(self, after_s: float) -> None:
        self._bar = _made()
        self._task = self._bar.add_task("", total=None)
        self._timer = Timer(after_s, self._bar.start)
        self._timer.daemon = True
        self._timer.start()

    def step(self, doing: str, done: int, total: int) -> None:
        self._bar.update(self._task, description=doing, completed=done, total=total)

    def end(self) -> None:
        self._timer.cancel()
        self._timer.join()
        self._bar.stop()


def _made() -> Progress:
    # Only a command that takes long needs it, and it takes a tenth of a second.
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True)
