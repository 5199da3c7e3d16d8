"""What a control group leaves to this process, as containers are limited: memory and cores.

Both forms of Linux are read: one tree for all (version 2), and one for each resource (version 1). The limits of a group
hold for all groups below it, so the smallest on the way from the root to this process counts. In a container the root
is that of the container, and the way to this process is often one that only the host knows: what is not there is passed
over.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

_MOUNT = "sys/fs/cgroup"
_ENDLESS = 1 << 60
"""Bytes by which version 1 says that there is no limit: nearly 2^63, by pages."""


@dataclass(frozen=True)
class Limits:
    """What is left to this process; None: no group says it.

    Attributes:
        memory: bytes, after which the system kills.
        cores: how many it may keep busy in the long run; a part of a core counts as one.
    """

    memory: int | None = None
    cores: int | None = None


def limits(root: Path = Path("/")) -> Limits:
    """The limits of this process. `root` is the root of the file system, of which `/proc` and `/sys` are read."""
    memory, cores = list[int](), list[int]()
    for controllers, way in _groups(root):
        if not controllers:
            for folder in _from_root(root / _MOUNT, way):
                memory += _numbers(folder / "memory.max")[:1]
                cores += _cores(_numbers(folder / "cpu.max"))
        if "memory" in controllers:
            for folder in _from_root(root / _MOUNT / "memory", way):
                memory += _numbers(folder / "memory.limit_in_bytes")
        if "cpu" in controllers:
            for folder in _from_root(root / _MOUNT / "cpu", way):
                quota, period = (_numbers(folder / f"cpu.cfs_{name}_us") for name in ("quota", "period"))
                cores += _cores([*quota, *period])
    return Limits(min((each for each in memory if each < _ENDLESS), default=None), min(cores, default=None))


def _groups(root: Path) -> Iterator[tuple[list[str], PurePosixPath]]:
    """The groups of this process: the resources of a tree, none for the tree of all, and the way down in it."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, way = line.split(":", 2)
        yield controllers.split(",") if controllers else [], PurePosixPath(way)


def _from_root(mount: Path, way: PurePosixPath) -> Iterator[Path]:
    """The folders of a group and of those above it. One outside of what this process sees has none of its own."""
    yield mount
    if ".." not in way.parts:
        for each in (way, *way.parents):
            if each.parts[1:]:
                yield mount.joinpath(*each.parts[1:])


def _cores(quota: list[int]) -> list[int]:
    """Time in a period, and the period. Without a limit the time is -1, or is no number."""
    match quota:
        case [time, period] if time > 0 and period > 0:
            return [-(-time // period)]
    return []


def _numbers(path: Path) -> list[int]:
    """The numbers of a file; none when it is not there, or says that there is no limit: `max`, or `max 100000`."""
    words = _text(path).split()
    return [int(each) for each in words] if words and "max" not in words else []


def _text(path: Path) -> str:
    """A file of the system; empty when it is not there. A kernel without control groups has none."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""
