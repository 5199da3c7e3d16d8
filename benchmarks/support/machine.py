"""What a figure was measured on, and how much memory a step took."""

from __future__ import annotations

import ctypes
import os
import platform
from importlib.metadata import version
from pathlib import Path


def describe(*packages: str) -> dict[str, str]:
    """Processor, cores, memory, system, Python and package versions."""
    facts = {
        "processor": _field("/proc/cpuinfo", "model name") or platform.processor() or platform.machine(),
        "cores": str(os.cpu_count()),
        "memory": _field("/proc/meminfo", "MemTotal") or "unknown",
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }
    return facts | {package: version(package) for package in packages}


def _field(path: str, name: str) -> str | None:
    """The first value of `name : value` in a file of /proc; None where there is no such file."""
    if not Path(path).exists():
        return None
    lines = (line.partition(":") for line in Path(path).read_text().splitlines())
    return next((value.strip() for key, _, value in lines if key.strip() == name), None)


def resident_bytes() -> int:
    """Memory of this process that is in RAM now, bytes (Linux), after the allocator gave back what is free."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
