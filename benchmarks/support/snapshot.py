"""What a warehouse holds and its job has used at one moment, and whose commits there were between two of them."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from benchmarks.support.processes import Usage, usage
from schemas import TABLES

APPEND = "WRITE"
"""What the stages do to a table, as the log names it."""


@dataclass(frozen=True)
class Snapshot:
    """What a warehouse holds and its job has used, at one moment."""

    at: float
    used: Usage
    commits: Mapping[str, int]
    data_files: frozenset[str]
    checkpoint_files: int

    @classmethod
    def take(cls, root: str, pid: int) -> Snapshot:
        """Count now."""
        folder = Path(root)
        # By the number of the last one: logs are cut meanwhile.
        logs = {table.name: (folder / table.name / "_delta_log").glob("*.json") for table in TABLES}
        commits = {name: 1 + max(int(entry.stem) for entry in log) for name, log in logs.items()}
        found = (file for table in TABLES for file in (folder / table.name).rglob("*.parquet"))
        data = frozenset(str(file.relative_to(folder)) for file in found if "_delta_log" not in file.parts)
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
            "data_files": len(self.data_files - before.data_files),
            "checkpoint_files": self.checkpoint_files - before.checkpoint_files,
        }


class Upkeep:
    """Whose commits there were from a moment on: those that append nothing are of maintenance."""

    def __init__(self, root: str, before: Snapshot) -> None:
        """Begin at this moment."""
        self._root, self._before, self._next = Path(root), before, dict(before.commits)
        self._commits, self._added = 0, set[str]()

    def look(self, now: Snapshot) -> dict[str, int]:
        """How many commits of maintenance there were until now, and how many of their data files are there.

        A version whose file is gone, since logs are cut, is not counted: look before.
        """
        for name, end in now.commits.items():
            for version in range(self._next[name], end):
                with suppress(FileNotFoundError):
                    self._count(name, (self._root / name / "_delta_log" / f"{version:020d}.json").read_text("utf-8"))
            self._next[name] = end
        return {"commits": self._commits, "data_files": len(self._added & now.data_files - self._before.data_files)}

    def _count(self, name: str, text: str) -> None:
        actions = [json.loads(line) for line in text.split("\n") if line]
        if not any(each["commitInfo"].get("operation") == APPEND for each in actions if "commitInfo" in each):
            self._commits += 1
            self._added |= {f"{name}/{unquote(each['add']['path'])}" for each in actions if "add" in each}
