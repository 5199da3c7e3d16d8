"""How far a command is that takes longer than two seconds: a bar on a terminal, lines of JSON otherwise.

What a command prints goes to standard output, and this to standard error. The frame of all commands (`jobs.groups`)
begins it, so a command that says nothing of its steps is named all the same.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, RLock, Thread, Timer
from typing import TYPE_CHECKING

from jobs.commands.jsonform import json_line
from jobs.terminal import BEFORE_OUTPUT, echo

if TYPE_CHECKING:
    from rich.progress import Progress

    from pipeline.config.options import OnStep

QUIET_S = 2.0
"""A command that takes less long says nothing of how far it is, nor does one say it more often than that in JSON."""
_SHOWN = list["_Bar | _Lines"]()
"""What shows the steps of this process; the last one does."""
_Step = tuple[str, int, int | None]
"""What is done, how much of it, and how much there is; None: nobody knows."""


@contextmanager
def progress(doing: str | None = None, clock: Callable[[], float] = time.monotonic) -> Iterator[OnStep]:
    """Show steps while the block runs, from two seconds after its beginning on.

    Args:
        doing: what is done before the first step; None: nothing is shown before it.
        clock: gives seconds of a clock that never steps back.
    """
    is_seen = sys.stderr is not None and sys.stderr.isatty()
    shown: _Bar | _Lines = _Bar(doing, QUIET_S) if is_seen else _Lines(doing, clock)
    _SHOWN.append(shown)
    try:
        yield shown.step
    finally:
        _SHOWN.remove(shown)
        shown.end()


def on_step(doing: str, done: int, total: int | None) -> None:
    """Say how far the command is that runs, wherever that is shown."""
    for shown in _SHOWN[-1:]:
        shown.step(doing, done, total)


class _Lines:
    """A line of JSON every two seconds."""

    def __init__(self, doing: str | None, clock: Callable[[], float]) -> None:
        self._clock, self._begun = clock, clock()
        self._said, self._last = self._begun, _first(doing)
        self._lock, self._ended = RLock(), Event()
        self._thread = Thread(target=self._follow, daemon=True)
        self._thread.start()

    def step(self, doing: str, done: int, total: int | None) -> None:
        with self._lock:
            self._last = doing, done, total
            self._say()

    def end(self) -> None:
        self._ended.set()
        self._thread.join()

    def _follow(self) -> None:
        """Say the last step again while it lasts."""
        while not self._ended.wait(QUIET_S):
            with self._lock:
                self._say()

    def _say(self) -> None:
        now = self._clock()
        if self._last is not None and now - self._said >= QUIET_S:
            self._said = now
            doing, done, total = self._last
            seconds = round(now - self._begun, 1)
            echo(json_line({"doing": doing, "done": done, "total": total, "took_s": seconds}), err=True)


class _Bar:
    """A bar, which goes when the command ends or prints a line, and is back with the next step."""

    def __init__(self, doing: str | None, after_s: float) -> None:
        self._last, self._lock, self._is_late = _first(doing), RLock(), False
        self._bar: Progress | None = None
        self._timer = Timer(after_s, self._late)
        self._timer.daemon = True
        self._timer.start()
        BEFORE_OUTPUT.append(self._hide)

    def step(self, doing: str, done: int, total: int | None) -> None:
        with self._lock:
            self._last = doing, done, total
            if self._is_late:
                self._show()

    def end(self) -> None:
        BEFORE_OUTPUT.remove(self._hide)
        self._timer.cancel()
        self._timer.join()
        self._hide()

    def _late(self) -> None:
        with self._lock:
            self._is_late = True
            self._show()

    def _show(self) -> None:
        if self._last is None:
            return
        if self._bar is None:
            self._bar = _made()
            self._bar.add_task("", total=None)
        doing, done, total = self._last
        self._bar.update(self._bar.task_ids[0], description=doing, completed=done, total=total)
        self._bar.start()

    def _hide(self) -> None:
        with self._lock:
            if self._bar is not None:
                self._bar.stop()


def _first(doing: str | None) -> _Step | None:
    return None if doing is None else (doing, 0, None)


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
    # Standard output may lead elsewhere than to this terminal, so nothing of it is drawn around the bar.
    return Progress(
        *columns,
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )
