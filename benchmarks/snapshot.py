"""What a warehouse holds and its job has used at one moment, and whose commits there were between two of them."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.processes import Usage, usage
from schemas import TABLES

APPEND = "WRITE"
"""What the stages do to a table, as the log names it."""


@dataclass(frozen=True)
class Snapshot:
    """What a warehouse holds and its job has used, at one moment."""

    at: float
    used: Usage
    commits: Mapping[str, int]
    data_files: int
    checkpoint_files: int

    @classmethod
    def take(cls, root: str, pid: int) -> Snapshot:
        """Count now."""
        folder = Path(root)
        # By the number of the last one: logs are cut meanwhile.
        logs = {table.name: (folder / table.name / "_delta_log").glob("*.json") for table in TABLES}
        commits = {name: 1 + max(int(entry.stem) for entry in log) for name, log in logs.items()}
        found = (file for table in TABLES for file in (folder / table.name).rglob("*.parquet"))
        data = sum("_delta_log" not in file.parts for file in found)
        ours = sum(len(names) for _, _, names in os.walk(folder / "_checkpoints"))
        return cls(time.monotonic(), usage(pid), commits, data, ours)

    def since(self, before: Snapshot) -> dict[str, Any]:
        """What was used and written between two of them."""
        seconds = self.at - before.at
        return {
            "seconds": round(seconds, 1),
            "cpu_s_per_minute": round((self.used.cpu_s - before.used.cpu_s) / seconds * 60, 1),
            "resident_mb": round(self.used.resident / (1 << 20)),
            "commits_start": sum(before.commits.values()),
            "commits_end": sum(self.commits.values()),
            "commits": {name: count - before.commits[name] for name, count in self.commits.items()},
            "data_files": self.data_files - before.data_files,
            "checkpoint_files": self.checkpoint_files - before.checkpoint_files,
        }


class Upkeep:
    """The commits of maintenance from some versions on: all that append nothing.

    Attributes:
        commits: how many there were.
        data_files: how many files they added.
    """

    def __init__(self, root: str, commits: Mapping[str, int]) -> None:
        """Count those from the given version of each table on, which is to be added next."""
        self._root, self._next = Path(root), dict(commits)
        self.commits = self.data_files = 0

    def look(self) -> None:
        """Count what was added since the last look. Versions that nobody can read any more are not counted."""
        for name in self._next:
            log = self._root / name / "_delta_log"
            while (entry := log / f"{self._next[name]:020d}.json").exists():
                self._next[name] += 1
                self._count([json.loads(line) for line in entry.read_text(encoding="utf-8").split("\n") if line])

    def _count(self, actions: list[dict[str, Any]]) -> None:
        if not any(each["commitInfo"].get("operation") == APPEND for each in actions if "commitInfo" in each):
            self.commits += 1
            self.data_files += sum("add" in each for each in actions)
