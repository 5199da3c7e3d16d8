"""Benchmark of the page: its overview, first and again, its memory, a search by key, and the history of a message.

    python -m benchmarks.page [--messages 10000000] [--json]

The tables are made first, by delta-rs; no stage runs. A process of its own looks at them, as `delayline web` does.
Before each further overview a thousand messages are added, as ingest adds them. Beside that `pending` counts all anew.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from deltalake import write_deltalake

from benchmarks.commanding import PER_LEDGER, TOPIC, fill, messages
from benchmarks.support.machine import describe
from benchmarks.support.report import tell
from pipeline.client.insight.pending import pending
from pipeline.client.insight.pendingrows import pending_rows
from pipeline.client.insight.trace import trace
from pipeline.config.wallclock import wall_ms
from pipeline.delta.deltars import open_table
from pipeline.insight.overview import OverviewFollower
from schemas import MESSAGES

_ADDED, _AGAIN, _SHOWN = 1_000, 5, 101


def rows(count: int) -> Iterator[dict[str, Any]]:
    """How long each screen took when so many messages wait, and the memory of the process, MB."""
    with TemporaryDirectory() as folder:
        root = str(Path(folder) / "warehouse")
        fill(root, count)
        with get_context("spawn").Pool(1) as looking:
            yield from looking.apply(measured, (root, count))


def measured(root: str, count: int) -> list[dict[str, Any]]:
    """The figures of one process."""
    # What it loads is not part of the first look.
    pending(root, "nobody")
    follower = OverviewFollower(root)
    found = [_timed("first overview", lambda: follower.look(wall_ms()).backlog)]
    # What is added here is made in this process, and that takes memory, too.
    memory = {"what": "memory", "messages": count, "mb": getrusage(RUSAGE_SELF).ru_maxrss / 1_024}
    draw, again = np.random.default_rng(20_261_128), list[dict[str, Any]]()
    for number in range(_AGAIN):
        ledger = count // PER_LEDGER + 1 + number
        added = messages(draw, ledger * PER_LEDGER, _ADDED)
        write_deltalake(open_table(root, MESSAGES), added, mode="append")
        again.append(_timed("further overview", lambda: follower.look(wall_ms()).backlog))
    found.append(max(again, key=lambda each: float(each["seconds"])))
    key, place = f"flight-{count // 2}", (count // 2 // PER_LEDGER, count // 2 % PER_LEDGER)
    found.append(_timed("search by key", lambda: pending_rows(root, TOPIC, key=key, limit=_SHOWN).num_rows))
    found.append(_timed("history of a message", lambda: len(trace(root, TOPIC, position=place))))
    found.append(_timed("counted anew", lambda: pending(root).backlogs[0].count))
    return [*found, memory]


def _timed(name: str, call: Callable[[], int]) -> dict[str, Any]:
    begun = time.perf_counter()
    count = call()
    return {"what": name, "messages": count, "seconds": time.perf_counter() - begun}


def show(row: dict[str, Any]) -> Iterator[str]:
    """A row for a person."""
    figure = f"{row['seconds']:8.2f} s" if "seconds" in row else f"{row['mb']:8.0f} MB"
    yield f"  {row['what']:21} {row['messages']:>11,} messages {figure}"


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.page", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--messages", type=int, default=10_000_000, help="so many wait")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    tell(describe("deltalake", "pyarrow"), rows(options.messages), show, as_json=options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
