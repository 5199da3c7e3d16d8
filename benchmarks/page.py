"""Benchmark of the page: its overview, first and again, its memory, a search by key, and the history of a message.

    python -m benchmarks.page [--messages 10000000] [--messages 100000000] [--busy 0] [--json]
    python -m benchmarks.page --subscriptions 5000 [--json]

The tables are made first, by delta-rs; no stage runs. A process of its own looks at them, as `delayline web` does.
Before each further overview a thousand messages are added, as ingest adds them. Beside that `pending` counts all anew.
With `--busy` the tables and logs also have what the stages leave in so many seconds with 1,000 messages a second.
With `--subscriptions` few messages wait for many subscriptions, ten of each topic. Then whole screens are asked for, as
a browser asks for them.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator
from itertools import chain
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
from deltalake import write_deltalake

from benchmarks.commanding import PER_LEDGER, TOPIC, fill, messages
from benchmarks.support.busy import work
from benchmarks.support.machine import describe
from benchmarks.support.paged import ServedPage, served
from benchmarks.support.processes import DRIVER, memory, usage
from benchmarks.support.report import tell
from pipeline.client.create import create_all
from pipeline.client.insight.pending import pending
from pipeline.client.insight.pendingrows import pending_rows
from pipeline.client.insight.trace import trace
from pipeline.client.subscribing.subscriptions import Subscription, subscribe_all
from pipeline.config.wallclock import wall_ms
from pipeline.delta.deltars import append, open_table, rows_of
from pipeline.insight.overview import PATIENCE_S, OverviewFollower
from schemas import MESSAGES, SEGMENTS

_ADDED, _AGAIN, _SHOWN, _LOOK_S = 1_000, 5, 101, 0.1
_LAST_LEDGER = 1 << 30
"""Nothing else is in this one, or behind it."""
_LISTENERS, _PER_TOPIC = 10, 100
"""Subscriptions, and messages, of a topic when there are many."""
_SCREENS = {"further overview": "", "subscriptions": "subscriptions"}


def rows(count: int, busy_s: int) -> Iterator[dict[str, Any]]:
    """How long each screen took when so many messages wait, and the memory of the process, MB."""
    with TemporaryDirectory() as folder:
        root = str(Path(folder) / "warehouse")
        fill(root, count)
        work(root, TOPIC, busy_s)
        with get_context("spawn").Pool(1) as looking:
            yield from ({**row, "pending": count} for row in looking.apply(measured, (root, count)))


def of_many(count: int) -> Iterator[dict[str, Any]]:
    """How long screens take with so many subscriptions, and how large they are."""
    with TemporaryDirectory() as folder:
        root = str(Path(folder) / "warehouse")
        fill_many(root, count)
        draw, named = np.random.default_rng(20_261_128), count * _PER_TOPIC // _LISTENERS
        with served(root, Path(folder)) as page:
            yield _asked(page, "first overview", count)
            for what, path in _SCREENS.items():
                again = list[dict[str, Any]]()
                for _ in range(_AGAIN):
                    named += 1
                    added = messages(draw, named * PER_LEDGER, _PER_TOPIC, "t0")
                    write_deltalake(open_table(root, MESSAGES), added, mode="append")
                    again.append(_asked(page, what, count, path))
                yield max(again, key=lambda each: float(each["seconds"]))
            yield {"what": "memory", "subscriptions": count, "mb": usage(page.process.pid).resident / (1 << 20)}


def _asked(page: ServedPage, what: str, count: int, path: str = "") -> dict[str, Any]:
    seconds, size = page.look(path)
    return {"what": what, "subscriptions": count, "seconds": seconds, "bytes": size}


def fill_many(root: str, count: int) -> None:
    """Make a warehouse with so many subscriptions, for each of which some messages wait."""
    create_all(root)
    names = [(f"t{number // _LISTENERS}", f"s{number % _LISTENERS}") for number in range(count)]
    subscribe_all(root, lambda _: [Subscription(*each) for each in names])
    joined = {"topic": "", "count": 0, "kind": "marker", "batch_id": 0, "first_ledger": 0}
    listeners = [{"name": f"s{number}", "life": 0, "tick_ms": 1} for number in range(_LISTENERS)]
    topics = sorted({topic for topic, _ in names})
    markers = [
        joined | {"topic": topic, "marker": number, "subscriptions": listeners}
        for number, topic in enumerate(topics, 1)
    ]
    append(root, SEGMENTS, rows_of(SEGMENTS, markers))
    draw = np.random.default_rng(20_261_128)
    parts = (messages(draw, at * PER_LEDGER, _PER_TOPIC, topic) for at, topic in enumerate(topics))
    write_deltalake(open_table(root, MESSAGES), pa.concat_tables(parts), mode="append")


def measured(root: str, count: int) -> list[dict[str, Any]]:
    """The figures of one process."""
    # What it loads is not part of the first look.
    pending(root, "nobody")
    follower = OverviewFollower(root, PATIENCE_S)
    found = [_timed("first overview", lambda: follower.look(wall_ms()).figures.count)]
    while follower.look(wall_ms()).found is None:
        time.sleep(_LOOK_S)
    # What is added here is made in this process, and that takes memory, too.
    peak = memory(os.getpid())[DRIVER].peak
    most = {"what": "memory", "messages": count, "mb": peak / (1 << 20)}
    draw, again = np.random.default_rng(20_261_128), list[dict[str, Any]]()
    for number in range(_AGAIN):
        ledger = _LAST_LEDGER + number
        added = messages(draw, ledger * PER_LEDGER, _ADDED)
        write_deltalake(open_table(root, MESSAGES), added, mode="append")
        again.append(_timed("further overview", lambda: follower.look(wall_ms()).figures.count))
    found.append(max(again, key=lambda each: float(each["seconds"])))
    key, place = f"flight-{count // 2}", (count // 2 // PER_LEDGER, count // 2 % PER_LEDGER)
    found.append(_timed("search by key", lambda: pending_rows(root, TOPIC, key=key, limit=_SHOWN).num_rows))
    found.append(_timed("history of a message", lambda: len(trace(root, TOPIC, position=place))))
    found.append(_timed("counted anew", lambda: pending(root).backlogs[0].count))
    return [*found, most]


def _timed(name: str, call: Callable[[], int]) -> dict[str, Any]:
    begun, used = time.perf_counter(), time.process_time()
    count = call()
    took = {"seconds": time.perf_counter() - begun, "cpu_s": time.process_time() - used}
    return {"what": name, "messages": count, **took}


def show(row: dict[str, Any]) -> Iterator[str]:
    """A row for a person."""
    figure = f"{row['seconds']:8.2f} s" if "seconds" in row else f"{row['mb']:8.0f} MB"
    of = "messages" if "messages" in row else "subscriptions"
    more = f", {row['bytes']:,} bytes" if "bytes" in row else f", {row['cpu_s']:.2f} CPU s" if "cpu_s" in row else ""
    yield f"  {row['what']:21} {row[of]:>11,} {of} {figure}{more}"


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.page", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--messages", type=int, action="append", help="so many wait (10,000,000); repeatable")
    parser.add_argument("--busy", type=int, default=0, help="so many seconds the stages have worked before")
    parser.add_argument("--subscriptions", type=int, default=0, help="instead: so many, and few messages for each")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    counts = options.messages or [10_000_000]
    found = (
        of_many(options.subscriptions)
        if options.subscriptions
        else chain.from_iterable(rows(count, options.busy) for count in counts)
    )
    tell(describe("deltalake", "pyarrow"), found, show, as_json=options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
