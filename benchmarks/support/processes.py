"""Processes of our own: started, ended, and what one and all that it started take of the machine (/proc, Linux).

A job is a tree of them: the Python driver at its root, the JVM below it, Python workers below that.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
KINDS = JVM, DRIVER, WORKERS = "JVM", "Python driver", "Python workers"
"""What a job is made of."""
_TICKS, _PAGE = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Usage:
    """Of a tree of processes.

    Attributes:
        cpu_s: seconds of processor that it and its ended children have had.
        resident: bytes in RAM; pages that are shared count for each.
        processes: how many there are.
    """

    cpu_s: float
    resident: int
    processes: int


@dataclass(frozen=True)
class Memory:
    """Of the processes of one kind, in bytes.

    Attributes:
        resident: in RAM now; a page that several processes share counts once. Python workers are forked from one
            another, and share most of what they have.
        peak: the most that each had in RAM so far, summed; shared pages count for each.
    """

    resident: int = 0
    peak: int = 0


def apart(function: Callable[P, T], *words: P.args, **named: P.kwargs) -> T:
    """What a function gives in a process of its own, started for it and ended after it; its memory is nobody else's."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(function, *words, **named).result()


@contextmanager
def started(
    command: Sequence[str], log: Path, environment: Mapping[str, str], output: int | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A process in the folder of its log, which takes its words; killed if it is still there at the end.

    `environment` goes over ours; `output` takes what it prints, when that is not for the log.
    """
    with log.open("wb") as words:
        process = subprocess.Popen(  # noqa: S603 - our own
            command, cwd=log.parent, env=os.environ | environment, stdout=output or words, stderr=words
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()


def usage(root: int, proc: Path = Path("/proc")) -> Usage:
    """Usage of a process and its descendants, now."""
    fields = [stat for stat in map(_stat, tree(root, proc)) if stat]
    # Fields 14 to 17 of proc(5), counted from the state: own time, user and kernel, and that of children waited for.
    cpu = sum(int(each) for stat in fields for each in stat[11:15])
    return Usage(cpu / _TICKS, sum(int(stat[21]) for stat in fields) * _PAGE, len(fields))


def memory(root: int, proc: Path = Path("/proc")) -> dict[str, Memory]:
    """Memory of a job by kind of process, now; `root` is the Python driver."""
    found = dict.fromkeys(KINDS, Memory())
    for folder in tree(root, proc):
        status, parts = _fields(folder / "status"), _fields(folder / "smaps_rollup")
        kind = JVM if status.get("Name") == "java" else DRIVER if folder.name == str(root) else WORKERS
        resident, peak = (int(kb.split()[0]) << 10 for kb in (parts.get("Pss", "0"), status.get("VmHWM", "0")))
        found[kind] = Memory(found[kind].resident + resident, found[kind].peak + peak)
    return found


def tree(root: int, proc: Path = Path("/proc")) -> list[Path]:
    """The folders of a process and of its descendants."""
    children: dict[int, list[int]] = {}
    for folder in proc.glob("[0-9]*"):
        stat = _stat(folder)
        if stat:
            children.setdefault(int(stat[1]), []).append(int(folder.name))
    return [proc / str(pid) for pid in _below(root, children)]


def _below(pid: int, children: dict[int, list[int]]) -> Iterator[int]:
    yield pid
    for child in children.get(pid, ()):
        yield from _below(child, children)


def _stat(folder: Path) -> list[str]:
    """The fields of `stat` from the state on, behind a name that may hold anything; none when the process is gone."""
    try:
        return (folder / "stat").read_text(encoding="utf-8", errors="replace").rpartition(") ")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def _fields(file: Path) -> dict[str, str]:
    """The lines `Name: value` of a file; none when the process is gone."""
    try:
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return {}
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
