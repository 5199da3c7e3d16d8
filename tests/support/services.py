"""`delayline run` as a process that leads a session of its own: started, signalled, waited for."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.support.jobs import Process, said, signal_all
from tests.support.modules import ROOT

COMMAND = [sys.executable, "-m", "jobs.cli"]
RUN = [*COMMAND, "run", "--init", "-w"]
PATIENCE_OF_SUPERVISORS_S = 60
"""systemd waits 90 s before it kills."""


@contextmanager
def service(command: Sequence[str], folder: Path) -> Iterator[Process]:
    """A process, its words in `log` of a folder; all that it started is killed if the test leaves it running."""
    folder.mkdir(exist_ok=True)
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(  # noqa: S603 - our own command
            command, cwd=folder, env=variables, stdout=log, stderr=log, start_new_session=True
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            signal_all(process.pid, signal.SIGKILL)
        process.wait()


def ended_well(job: Process, folder: Path) -> None:
    """Exit 0 in time; the last line says that it stopped; no stack trace."""
    assert job.wait(timeout=PATIENCE_OF_SUPERVISORS_S) == 0, said(folder)
    assert "Stopped" in said(folder).splitlines()[-1]
    assert "Traceback" not in said(folder)
    assert "Exception" not in said(folder)


def gone(pids: Sequence[int]) -> bool:
    """Whether processes have ended."""
    return not any(Path(f"/proc/{pid}").exists() for pid in pids)


def in_time(seen: Callable[[], bool]) -> bool:
    """Whether something came to be within a supervisor's patience."""
    end = time.monotonic() + PATIENCE_OF_SUPERVISORS_S
    while not seen() and time.monotonic() < end:
        time.sleep(0.1)
    return seen()
