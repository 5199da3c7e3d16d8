"""`delayline stop --wait`: until no process of this machine runs a stage."""

import time

from pipeline.client.exceptions import Timeout
from pipeline.config.errors import BadSetting
from pipeline.config.paths import local_path
from pipeline.config.stages import ALL_STAGES
from pipeline.config.wallclock import monotonic_ms
from pipeline.storage.locks import holder, is_locked

_LOOK_S = 0.1
_ALLOWED = "a warehouse on a disk of this machine that has locks; `delayline status` says when a job was seen"


def await_end(root: str, most_ms: int) -> None:
    """Wait until all stages have stopped, for so many ms at most.

    Raises:
        Timeout: one has not. It stops when its batch has ended.
        BadSetting: the warehouse is on no disk of this machine, or on one without locks, so nobody can tell.
    """
    ends = monotonic_ms() + most_ms
    while (running := _running(root)) is not None:
        if monotonic_ms() >= ends:
            raise Timeout(f"stop: {running}: to end", most_ms)
        time.sleep(_LOOK_S)


def _running(root: str) -> str | None:
    """Which stage runs, and where; None: none does."""
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
