"""A line of the table of all benchmarks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Row = Mapping[str, Any]
"""What a benchmark gave of a workload."""
MILLION = 1_000_000


@dataclass(frozen=True)
class Line:
    """A line of the table; `met` is None where there is only a figure, `beside` is how the baselines did."""

    workload: str
    measure: str
    aim: str
    ours: str
    met: bool | None
    beside: str = ""
