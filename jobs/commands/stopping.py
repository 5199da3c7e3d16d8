"""`delayline stop`: ask the job to stop; with `--wait` until it has ended."""

import os
import time
from collections.abc import Collection
from dataclasses import dataclass

from pipeline.client.exceptions import Timeout
from pipeline.config.errors import BadSetting
from pipeline.config.paths import local_path
from pipeline.config.printed import printable
from pipeline.config.stages import ALL_STAGES
from pipeline.config.wallclock import monotonic_ms
from pipeline.service.stopfile import StopFile
from pipeline.storage.locks import holder, is_alive, is_locked

_LOOK_S = 0.1
_ALLOWED = "a warehouse on a disk of this machine that has locks; `delayline status` says when a job was seen"


@dataclass(frozen=True)
class Asked:
    """Who was asked to stop.

    Attributes:
        root: the warehouse.
        runs: whether a job runs there; None: nobody can tell.
        processes: those of this machine that run its stages, as far as they are seen.
    """

    root: str
    runs: bool | None
    processes: frozenset[int]

    def __str__(self) -> str:
        """For people."""
        whom = "whoever runs" if self.runs is None else "the job"
        return printable(
            f"no job runs on {self.root}" if self.runs is False else f"asked {whom} on {self.root} to stop"
        )


def ask(root: str) -> Asked:
    """Ask whoever runs on a warehouse to stop between two batches; also when nobody is seen from here.

    Raises:
        BadSetting: the warehouse lies on another file system, where nobody looks for such a request.
    """
    here = local_path(f"{root}/_checkpoints")
    found = [None if here is None else holder(stage, str(here)) for stage in ALL_STAGES]
    try:
        runs: bool | None = _running(root) is not None
    except BadSetting:
        runs = None
    StopFile(root).ask()
    # A program that has run stages itself does not end with them.
    return Asked(root, runs, frozenset(each for each in found if each is not None) - {os.getpid()})


def await_end(root: str, processes: Collection[int], most_ms: int) -> None:
    """Wait until all stages have stopped, and the processes that ran them have ended, for so many ms at most.

    Raises:
        Timeout: one has not. It stops when its batch has ended.
        BadSetting: the warehouse is on no disk of this machine, or on one without locks, so nobody can tell.
    """
    ends = monotonic_ms() + most_ms
    while (running := _running(root) or _ending(processes)) is not None:
        if monotonic_ms() >= ends:
            raise Timeout(f"stop: {running}: to end", most_ms)
        time.sleep(_LOOK_S)


def _running(root: str) -> str | None:
    """Which stage runs, and where; None: none does.

    Raises:
        BadSetting: nobody can tell.
    """
    here = local_path(f"{root}/_checkpoints")
    for stage in ALL_STAGES:
        if here is not None and (process := holder(stage, str(here))) is not None:
            return f"{stage} runs in process {process}"
    for stage in ALL_STAGES:
        held = None if here is None else is_locked(stage, here)
        if held is None:
            raise BadSetting("--wait", root, _ALLOWED)
        if held:
            return f"{stage} runs in a process that is not seen from here"
    return None


def _ending(processes: Collection[int]) -> str | None:
    """Which process has let its stages go, and has not ended: it ends Spark, and tells what it did."""
    return next((f"process {each} ends" for each in sorted(processes) if is_alive(each)), None)
