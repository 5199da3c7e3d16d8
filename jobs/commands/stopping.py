"""`delayline stop --wait`: until no process of this machine runs a stage."""

import time

from pipeline.client.exceptions import Timeout
from pipeline.config.errors import BadSetting
from pipeline.config.paths import local_path
from pipeline.config.stages import ALL_STAGES
from pipeline.config.wallclock import monotonic_ms
from pipeline.storage.locks import holder

_LOOK_S = 0.1


def await_end(root: str, most_ms: int) -> None:
    """Wait until all stages have stopped, for so many ms at most.

    Raises:
        Timeout: one has not. It stops when its batch has ended.
        BadSetting: the warehouse is on no disk of this machine, so nobody can tell.
    """
    if local_path(root) is None:
        allowed = "a warehouse on a disk of this machine; `delayline status` says when a job was seen"
        raise BadSetting("--wait", root, allowed)
    ends = monotonic_ms() + most_ms
    while True:
        held = ((stage, holder(stage, f"{root}/_checkpoints")) for stage in ALL_STAGES)
        running = next(((stage, process) for stage, process in held if process is not None), None)
        if running is None:
            return
        if monotonic_ms() >= ends:
            raise Timeout("stop: {} runs in process {}: to end".format(*running), most_ms)
        time.sleep(_LOOK_S)
