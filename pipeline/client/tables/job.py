"""Whether a job runs on a warehouse, by what its stages leave there: their checkpoints, and locks on this machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from time import monotonic

from pipeline.client.clock import is_turned, is_virtual
from pipeline.config.paths import local_path
from pipeline.config.spelling import command_line, iso_text
from pipeline.config.stages import IDLE_MS, INGEST, STAGES
from pipeline.config.wallclock import wall_ms
from pipeline.delta.checkpoints import parse
from pipeline.storage.files import Files
from pipeline.storage.locks import holder

FRESH_MS = 30_000
"""A job that was seen since runs: it has a batch every few seconds."""
_QUIET_S, _AGAIN_S = 10.0, 30.0
"""Who waits looks for the job when nothing has come for so long, and then so often. A job that starts is up by then."""
_Numbers = Mapping[int, int]
"""Batches, and when the file of each was written, ms UTC."""


@dataclass(frozen=True)
class Job:
    """A job, as it was seen last.

    Attributes:
        seen: when a stage began or ended a batch last, ms UTC by the clock of the file system; None: never. A job that
            has nothing to do has a batch every few seconds.
        behind_ms: how far the clock of ingest was behind the wall clock at the end of its last batch; None: nobody
            knows, or the clock is virtual.
        process: what runs it on this machine; None: nothing does, or nobody can tell.
    """

    seen: int | None
    behind_ms: int | None
    process: int | None

    @property
    def lag_ms(self) -> int | None:
        """How far it is behind, when that is more than what is usual for a job that has nothing to do; else None."""
        return None if self.behind_ms is None or self.behind_ms <= IDLE_MS else self.behind_ms


def job_of(root: str) -> Job:
    """The job of a warehouse."""
    files, folder = Files(), f"{root.rstrip('/')}/_checkpoints"
    written = {
        name: _numbers(files, f"{folder}/{name}")
        for stage in STAGES
        for name in (f"{stage}/offsets", f"{stage}/commits")
    }
    seen = max((time for each in written.values() for time in each.values()), default=None)
    behind = None if is_virtual(root) else _behind(files, f"{folder}/{INGEST}/offsets", written[f"{INGEST}/commits"])
    held = (holder(stage, folder) for stage in STAGES)
    return Job(seen, behind, next((process for process in held if process is not None), None))


def absence(root: str) -> str:
    """That no job runs, since when, and how to start one; empty while one is seen, or nobody can tell."""
    # On a warehouse that is on no disk of this machine a job of another one may run, or begin.
    if is_turned(root) or local_path(root) is None:
        return ""
    # Whatever stands in the way of the answer, it is about something else.
    with suppress(Exception):
        job = job_of(root)
        if job.process is not None or (job.seen is not None and wall_ms() - job.seen < FRESH_MS):
            return ""
        seen = "no job has run" if job.seen is None else f"no job was seen since {iso_text(job.seen, 'seconds')}"
        return f"{seen} on {root}: {command_line(root, 'run')}"
    return ""


@dataclass(frozen=True)
class JobHint:
    """A text for the message of somebody who waits in vain, which is looked for when it is read first.

    Attributes:
        root: the warehouse.
    """

    root: str

    def __str__(self) -> str:
        """What `absence` says, behind a semicolon."""
        return self._text

    @cached_property
    def _text(self) -> str:
        text = absence(self.root)
        return text and f"; {text}"


class JobWatch:
    """Tells those who wait for messages that no job runs, once each time that it is so."""

    def __init__(self, root: str, tell: Callable[[str], object], now_s: Callable[[], float] = monotonic) -> None:
        """Watch the job of a warehouse.

        Args:
            root: the warehouse.
            tell: takes what is told.
            now_s: a clock that only grows, s.
        """
        self._root, self._tell, self._now_s = root, tell, now_s
        self._next_s, self._last = now_s() + _QUIET_S, ""

    def look(self, *, news: bool) -> None:
        """Look whether a job runs, when nothing has come for some time; call it as often as you look for messages.

        Args:
            news: something has come since the last call.
        """
        if not news and self._now_s() < self._next_s:
            return
        self._next_s = self._now_s() + (_QUIET_S if news else _AGAIN_S)
        text = "" if news else absence(self._root)
        if text and text != self._last:
            self._tell(text)
        self._last = text


def _numbers(files: Files, folder: str) -> _Numbers:
    if not files.exists(folder):
        return {}
    return {int(name): time for name, (_, time) in files.sizes(folder).items() if name.isdigit()}


def _behind(files: Files, offsets: str, ended: _Numbers) -> int | None:
    """How far the instant of the last batch was behind the end of it, ms."""
    if ended:
        last = max(ended)
        # Of a checkpoint that another version wrote nobody knows it.
        with suppress(ValueError, KeyError, TypeError, IndexError):
            return max(0, ended[last] - parse(files.text_if_there(f"{offsets}/{last}") or "").instant)
    return None
