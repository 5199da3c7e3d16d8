"""Processes of our own: started, ended, and what one and all that it started take of the machine (/proc, Linux)."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

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
