"""How much a command leaves the processors to others: who only looks can wait, a message that is due cannot."""

import os
from contextlib import suppress
from pathlib import Path

LOOKER = 10
"""The nice value of what only looks: beside a busy thread of a job it gets a tenth of a core."""
_THREADS = Path("/proc/self/task")


def be_nice() -> None:
    """Leave the processors to whoever else needs them on this machine, with all threads that there are and will be.

    A thread that is nicer already stays so. Without `/proc` threads that were there before keep their priority; Windows
    has no such value.
    """
    if not hasattr(os, "setpriority"):
        return
    for thread in [int(each.name) for each in _THREADS.iterdir()] if _THREADS.is_dir() else [0]:
        # It may have ended meanwhile.
        with suppress(ProcessLookupError):
            os.setpriority(os.PRIO_PROCESS, thread, max(LOOKER, os.getpriority(os.PRIO_PROCESS, thread)))
