"""A standalone cluster of Spark on this machine: a master and its workers, each a process of its own.

What `sbin/start-master.sh` and `sbin/start-worker.sh` of an installation start is started here from the installed
pyspark, on the loopback address, at ports that are free.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pyspark

from benchmarks.support.processes import tree

HOME = Path(pyspark.__file__).parent
"""The installation of Spark."""
HERE = "127.0.0.1"
EXECUTOR = "CoarseGrainedExecutorBackend"
"""What the command line of an executor has."""
CONFINES = sys.platform == "linux"
"""Whether a worker can be kept on one core of this machine."""
_PATIENCE_S = 60
_DAEMONS = {
    "SPARK_HOME": str(HOME),
    "SPARK_LOCAL_IP": HERE,
    "SPARK_DAEMON_MEMORY": "256m",
    "SPARK_DAEMON_CLASSPATH": "",
}


@dataclass
class Daemon:
    """A master or a worker: its process, and what it writes."""

    process: subprocess.Popen[bytes]
    log: Path

    @classmethod
    def begin(cls, words: Sequence[str], folder: Path, environment: Mapping[str, str]) -> Daemon:
        """Start a class of Spark in a folder of its own."""
        folder.mkdir(parents=True)
        variables = {**os.environ, **_DAEMONS, "SPARK_LOCAL_DIRS": str(folder), **environment}
        with (folder / "log").open("wb") as log:
            command = [str(HOME / "bin" / "spark-class"), *words, "--host", HERE, "--webui-port", "0"]
            process = subprocess.Popen(command, cwd=folder, env=variables, stdout=log, stderr=log)  # noqa: S603 - our own
        return cls(process, folder / "log")

    def until_said(self, text: str) -> None:
        """Wait until it has written something.

        Raises:
            ChildProcessError: it ended before, or did not in time.
        """
        end = time.monotonic() + _PATIENCE_S
        while text not in self.log.read_text(errors="replace"):
            if self.process.poll() is not None or time.monotonic() > end:
                raise ChildProcessError(self.log.read_text(errors="replace")[-2_000:])
            time.sleep(0.1)

    @property
    def executors(self) -> list[int]:
        """The processes of the executors that it has started."""
        return [int(each.name) for each in tree(self.process.pid) if EXECUTOR in command(each)]

    def kill(self) -> None:
        """Kill -9 the process alone; executors notice that their worker is gone, and end."""
        self.process.kill()
        self.process.wait()

    def end(self) -> None:
        """Kill it with all that it started."""
        below = [int(each.name) for each in tree(self.process.pid)] if self.process.poll() is None else []
        self.kill()
        for pid in below:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@contextmanager
def confined(core: int | None) -> Iterator[None]:
    """What this thread starts meanwhile stays on one core of the machine; None leaves it alone.

    Spark's "cores" are tasks at a time and bind nothing: the compiler of a JVM, its garbage collector and the Python
    workers take every core that is free. Where the system cannot confine a process nothing happens.
    """
    if core is None or not CONFINES:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {sorted(before)[core % len(before)]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


class Cluster:
    """A master, and workers of one core each that come and go."""

    def __init__(self, folder: Path, memory: str, environment: Mapping[str, str], *, confine: bool = False) -> None:
        """Start the master; workers have so much memory for executors, and an environment beside ours.

        With `confine` each worker, and what it starts, has one core of the machine.
        """
        self._folder, self._memory, self._environment, self._confine = folder, memory, environment, confine
        with socket.socket() as found:
            found.bind((HERE, 0))
            port = found.getsockname()[1]
        self.url = f"spark://{HERE}:{port}"
        """What `--master` is told."""
        words = ["org.apache.spark.deploy.master.Master", "--port", str(port)]
        self._master = Daemon.begin(words, folder / "master", environment)
        self.workers: list[Daemon] = []
        try:
            self._master.until_said("New state: ALIVE")
        except BaseException:
            self.end()
            raise

    def join(self) -> Daemon:
        """Another worker, which the master knows."""
        folder = self._folder / f"worker-{len(self.workers)}"
        words = ["org.apache.spark.deploy.worker.Worker", self.url, "--cores", "1", "--memory", self._memory]
        with confined(len(self.workers) if self._confine else None):
            worker = Daemon.begin([*words, "--work-dir", str(folder)], folder, self._environment)
        self.workers.append(worker)
        worker.until_said("Successfully registered with master")
        return worker

    @property
    def executors(self) -> list[int]:
        """The processes of all executors."""
        alive = (worker for worker in self.workers if worker.process.poll() is None)
        return [pid for worker in alive for pid in worker.executors]

    def until_there(self, count: int, without: int = 0) -> list[int]:
        """Wait until so many executors are there, and a process is not among them; give their processes.

        Raises:
            TimeoutError: they were not in time.
        """
        end = time.monotonic() + _PATIENCE_S
        while len(found := self.executors) != count or without in found:
            if time.monotonic() > end:
                raise TimeoutError(f"executors: {found}")
            time.sleep(0.1)
        return found

    def end(self) -> None:
        """Kill everything."""
        for daemon in (*self.workers, self._master):
            daemon.end()


@contextmanager
def cluster(
    folder: Path,
    workers: int,
    memory: str = "1g",
    environment: Mapping[str, str] | None = None,
    *,
    confine: bool = False,
) -> Iterator[Cluster]:
    """A cluster with so many workers, ended after the block; see `Cluster` for the rest."""
    found = Cluster(folder, memory, environment or {}, confine=confine)
    try:
        for _ in range(workers):
            found.join()
        yield found
    finally:
        found.end()


def submit(url: str, packages: Sequence[str], conf: Mapping[str, str], words: Sequence[str]) -> list[str]:
    """The command that submits an application; its driver is a process of this machine."""
    settings = [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
    return [str(HOME / "bin" / "spark-submit"), "--master", url, "--packages", ",".join(packages), *settings, *words]


def command(folder: Path) -> str:
    """The command line of a process, by its folder in /proc; empty when it is gone."""
    try:
        return (folder / "cmdline").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""
