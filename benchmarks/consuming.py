"""Consuming with acknowledgement: lateness until `receive` returns, a backlog, sending, consumers that come and go.

The job, the producer and the consumers are processes of their own, and share the machine. A consumer process writes
what it saw into a file, and this one puts the files together.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.support import WORKLOADS
from benchmarks.support.consumed import Draining, Streaming, sending
from benchmarks.support.machine import describe
from benchmarks.support.report import tell
from benchmarks.support.sharing import Holes, Joining, Killed
from benchmarks.support.sizes import entries, merged
from benchmarks.support.words import check_names

FILE = WORKLOADS / "consuming.toml"
KINDS: dict[str, Callable[[dict[str, Any], Path], dict[str, Any]]] = {
    "live": lambda workload, folder: Streaming(workload, folder).measure(),
    "drain": lambda workload, folder: Draining(workload, folder).measure(),
    "send": sending,
    "holes": lambda workload, folder: Holes(workload, folder).measure(),
    "joining": lambda workload, folder: Joining(workload, folder).measure(),
    "killed": lambda workload, folder: Killed(workload, folder).measure(),
}


def measured(workload: dict[str, Any]) -> dict[str, Any]:
    """The figures of a workload, with what was run."""
    with tempfile.TemporaryDirectory(prefix="delayline-consuming-") as folder:
        measure = KINDS[workload["kind"]]
        figures = measure(workload, Path(folder))
    return {"workload": workload["name"], "kind": workload["kind"], "parameters": workload, **figures}


def show(row: dict[str, Any]) -> Iterator[str]:
    """A row for a person."""
    parameters = ", ".join(f"{key} {value}" for key, value in row["parameters"].items() if key not in ("name", "kind"))
    yield f"\n{row['workload']}"
    yield f"  {parameters}"
    for name, value in row.items():
        if name not in ("workload", "kind", "parameters"):
            yield f"  {name:28} {value}"


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark; 1 when something was lost or came early."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.consuming", description=(__doc__ or "").splitlines()[0])
    names = [each["name"] for each in entries(FILE, full=False)]
    parser.add_argument("workload", nargs="*", metavar="WORKLOAD", default=names, help=", ".join(names))
    parser.add_argument("--full", action="store_true", help="the full sizes")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="change a size")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    check_names(parser, "workload", options.workload, names)
    sizes = merged(*(tomllib.loads(each) for each in options.set))
    known = [
        merged(each, {n: value for n, value in sizes.items() if n in each}) for each in entries(FILE, full=options.full)
    ]
    chosen = [each for each in known if each["name"] in options.workload]
    machine, begun = describe("pyspark", "delta-spark", "deltalake", "pyarrow"), time.monotonic()
    rows = tell(machine, (measured(each) for each in chosen), show, as_json=options.json)
    sys.stderr.write(f"{time.monotonic() - begun:.0f} s\n")
    wrong = ("missing", "early", "out of order in their key", "of the settled half")
    return int(any(row.get(name) for row in rows for name in wrong))


if __name__ == "__main__":
    sys.exit(main())
