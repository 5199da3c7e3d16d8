"""Benchmark of the forecast: 24 hours by the minute, with two rates and an outage of two hours.

    python -m benchmarks.forecast [--messages 1000000] [--core 100000000] [--json]

`core` is the forecast alone: so many messages are due within a day, for three subscriptions, two of which have a rate
that is a little above what becomes due. `pending` and `forecast` are of a warehouse whose messages are due within that
day, which is made first: the one counts them, the other also tells when they come, with the same events.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.commanding import START_MS, fill
from benchmarks.support.machine import describe
from benchmarks.support.report import tell
from pipeline.client.insight.departures import DueLoad, Outage, Rate, WhatIf
from pipeline.client.insight.forecast import Horizon, forecast_of
from pipeline.client.insight.forecasting import Assumptions, foreseen
from pipeline.client.insight.pending import pending
from pipeline.subscriptions.policies import Policies

_HOUR_MS, _DAY_MS, _BUCKET_MS = 3_600_000, 86_400_000, 512
_HORIZON = Horizon(START_MS, START_MS + _DAY_MS, 5_000)
_OUTAGE = Outage(START_MS + 2 * _HOUR_MS, START_MS + 4 * _HOUR_MS)
_SPARE = 1.25
"""A rate is so much more than what becomes due."""


def _load(count: int) -> DueLoad:
    """So many messages in each bucket of a day, as evenly as whole numbers allow."""
    due = np.arange(START_MS, _HORIZON.end, _BUCKET_MS)
    ends = np.linspace(0, count, len(due) + 1).astype(np.int64)
    return DueLoad(due, ends[1:] - ends[:-1])


def _core(count: int) -> int:
    """The forecasts of three subscriptions of `count` messages together; how many become due."""
    each = count // 3
    load, rate = _load(each), max(1, round(each * _SPARE * 1_000 / _DAY_MS))
    policies = (Policies(max_rate=rate), Policies(max_rate=2 * rate), Policies())
    found = [forecast_of(("t", "s"), load, own, _HORIZON, [_OUTAGE]) for own in policies]
    return sum(int(one.due_count.sum()) for one in found)


def _forecast(root: str, count: int) -> int:
    """The forecast of a warehouse; how many messages become due."""
    rate = max(1, round(count * _SPARE * 1_000 / _DAY_MS))
    events: tuple[WhatIf, ...] = (Rate(START_MS, rate), _OUTAGE, Rate(START_MS + 12 * _HOUR_MS, 2 * rate))
    found = foreseen(root, (None, None), _HORIZON, Assumptions(events))
    return sum(int(one.due_count.sum()) for one in found.subscriptions)


def rows(count: int, core: int) -> Iterator[dict[str, Any]]:
    """What each of the three took.

    Args:
        count: so many messages wait in the warehouse.
        core: so many in the forecast alone.
    """
    yield _timed("core", core, lambda: _core(core))
    with TemporaryDirectory() as folder:
        root = str(Path(folder) / "warehouse")
        fill(root, count, _DAY_MS)
        yield _timed("pending", count, lambda: pending(root).backlogs[0].count)
        yield _timed("forecast", count, lambda: _forecast(root, count))


def _timed(name: str, count: int, call: Callable[[], int]) -> dict[str, Any]:
    begun, used = time.perf_counter(), time.process_time()
    found = call()
    took = {"seconds": time.perf_counter() - begun, "cpu_s": time.process_time() - used}
    return {"what": name, "messages": count, "counted": found, **took}


def show(row: dict[str, Any]) -> Iterator[str]:
    """A row for a person."""
    took = f"{row['seconds']:8.2f} s, {row['cpu_s']:.2f} CPU s"
    yield f"  {row['what']:9} {row['counted']:>11,} of {row['messages']:>11,} messages {took}"


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.forecast", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--messages", type=int, default=1_000_000, help="so many wait in a warehouse")
    parser.add_argument("--core", type=int, default=100_000_000, help="so many in the forecast alone")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    tell(describe("deltalake", "numpy"), rows(options.messages, options.core), show, as_json=options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
