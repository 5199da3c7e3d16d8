"""A command that only looks lets others go first."""

import subprocess
import sys

_PROGRAM = """
import os, threading
from jobs.niceness import be_nice
def values(): return [os.getpriority(os.PRIO_PROCESS, int(each)) for each in os.listdir("/proc/self/task")]
over = threading.Event()
threading.Thread(target=over.wait).start()
before = values()
be_nice()
threading.Thread(target=over.wait).start()
print(*before, *values())
over.set()
"""


def nice_values(start: int) -> list[int]:
    """What the threads of a process have that starts with a nice value: two before, and three after."""
    command = ["nice", "-n", str(start), sys.executable, "-c", _PROGRAM]
    return [int(each) for each in subprocess.check_output(command).split()]  # noqa: S603 - our own


def test_all_threads_of_a_looker_are_nice() -> None:
    """Those that were there before, too. Nobody gets more than he had."""
    before = nice_values(0)[0]
    assert nice_values(0) == [before] * 2 + [max(10, before)] * 3
    assert nice_values(19) == [19] * 5
