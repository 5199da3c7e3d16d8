"""Processes of a benchmark: what they take, by kind, and functions in processes of their own."""

from __future__ import annotations

import os
from pathlib import Path

from benchmarks.support.processes import DRIVER, JVM, WORKERS, Memory, apart, memory


def test_memory_is_told_by_kind_of_process(tmp_path: Path) -> None:
    """A heap that grows and workers that grow have different reasons."""
    processes = ((10, 1, "python", 5, 9), (11, 10, "java", 70, 80), (12, 11, "python", 3, 4), (13, 12, "python", 2, 6))
    for pid, parent, name, resident, peak in processes:
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "stat").write_text(f"{pid} ({name}) S {parent}\n")
        (tmp_path / str(pid) / "status").write_text(f"Name:\t{name}\nVmHWM:\t   {peak} kB\nVmRSS:\t   999 kB\n")
        (tmp_path / str(pid) / "smaps_rollup").write_text(
            f"0-f ---p 0 0 0 [rollup]\nRss: 999 kB\nPss:   {resident} kB\n"
        )
    found = memory(10, tmp_path)
    assert found == {
        DRIVER: Memory(5 << 10, 9 << 10),
        JVM: Memory(70 << 10, 80 << 10),
        WORKERS: Memory(5 << 10, 10 << 10),
    }
    for name in ("status", "smaps_rollup"):
        (tmp_path / "13" / name).unlink()
    assert memory(10, tmp_path)[WORKERS] == Memory(3 << 10, 4 << 10)


def test_a_function_can_run_in_a_process_of_its_own() -> None:
    """Its memory is not ours."""
    assert apart(os.getpid) != os.getpid()
