"""Processes that are started, and killed with all that they started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from tests.support.modules import ROOT

PATIENCE_S = 900.0
_LOOK_S = 0.02


@dataclass
class Victim:
    """A process group of its own: Python, the JVM, and what they start."""

    process: subprocess.Popen[bytes]
    log: Path
    started: ClassVar[list[Victim]] = []

    @classmethod
    def begin(cls, words: Sequence[str], log: Path, scratch: Path) -> Victim:
        """Start `python -m` with these words; what it prints goes to a file, Spark's own files to a folder."""
        environment = {**os.environ, "SPARK_LOCAL_DIRS": str(scratch), "TMPDIR": str(scratch)}
        scratch.mkdir(exist_ok=True)
        with log.open("ab") as file:
            process = subprocess.Popen(  # noqa: S603 - our own command
                [sys.executable, "-m", *words],
                cwd=ROOT,
                env=environment,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        cls.started.append(cls(process, log))
        return cls.started[-1]

    @classmethod
    def kill_all(cls) -> None:
        """Kill those that still run."""
        for each in cls.started:
            if each.alive:
                each.kill()
        cls.started.clear()

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self.process.poll() is None

    def kill(self) -> None:
        """Kill -9 the whole group."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def wait_for(self, look: Callable[[], bool]) -> bool:
        """Wait until something is so; whether the process was still alive then."""
        patience = time.monotonic() + PATIENCE_S
        while self.alive and not look():
            assert time.monotonic() < patience, self.log.read_text(errors="replace")[-4_000:]
            time.sleep(_LOOK_S)
        return self.alive

    def end(self) -> int:
        """Wait for its end; the exit code."""
        try:
            return self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise
