"""What the benchmarks have in common: loads, observers, processes, the machine, reports."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""The folder of the project."""
WORKLOADS = ROOT / "benchmarks" / "workloads"
"""The folder of the named workloads."""
