"""A job that was away for a day: the process before, the process after, and what the deliveries come to.

`python -m tests.support.outage ROOT take COUNT` takes messages in and ends; `... ROOT return STEP_MS` goes through the
day that it has missed. Both have the session and the settings of conf/local.toml, all stages, and the virtual clock.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks.support.rows import inbox_table
from benchmarks.support.usual import LOCAL, usual
from pipeline.config.options import Options
from pipeline.config.profiles import read_profile
from pipeline.config.session import local_session
from pipeline.config.settings import DAY_MS, SECOND_MS, VirtualClock
from pipeline.delta.deltars import append, open_table
from pipeline.delta.warehouse import Warehouse
from pipeline.service.lockstep import reach
from pipeline.service.replay import ReplayClock
from pipeline.service.run import Stage, start_all, stop_all
from schemas import DELIVERIES, INBOX

T0, SLICE, PAYLOAD_BYTES = 1_700_000_000_123, 1_000_000, 20
REACHED = "reached"
_POSITION, _ORDER = ("ledger_id", "entry_id"), ("due_time", "deliver_at", "ledger_id", "entry_id")
_ENTRY_BITS = 31
Columns = dict[str, NDArray[np.int64]]


def slices(count: int) -> Iterator[pa.Table]:
    """Messages in slices, published at `T0`, due uniformly within a day after it."""
    for number, first in enumerate(range(0, count, SLICE)):
        random, size = np.random.default_rng(number), min(SLICE, count - first)
        due = T0 * 1_000 + random.integers(1, DAY_MS * 1_000, size, endpoint=True)
        yield inbox_table(random, pa.repeat("t", size), T0 * 1_000, due, PAYLOAD_BYTES)


def arrived(root: str) -> Columns:
    """Where and when each delivery came, in the order in which they were handed over; times in microseconds."""
    names = ["batch_id", "sequence", "released_at", *_ORDER]
    table = open_table(root, DELIVERIES).to_pyarrow_table(columns=names)
    columns = {name: table.column(name).cast(pa.int64()).to_numpy() for name in names}
    order = np.lexsort((columns["sequence"], columns["batch_id"]))
    return {name: values[order] for name, values in columns.items()}


def faults(found: Columns, count: int) -> dict[str, int]:
    """How many deliveries are missing, came twice, early, or after one that should have come later."""
    ledgers, entries = (found[name] for name in _POSITION)
    rows = len(ledgers)
    return {
        "missing": count - rows,
        "twice": rows - len(np.unique(ledgers << _ENTRY_BITS | entries)),
        "early": int(np.sum(found["released_at"] < np.maximum(found["due_time"], found["deliver_at"]))),
        "out of order": descents([found[name] for name in _ORDER]),
    }


def descents(keys: list[NDArray[np.int64]]) -> int:
    """How many rows are less than the one before, by several keys, the first one first."""
    less, same = np.zeros(max(0, len(keys[0]) - 1), bool), True
    for key in keys:
        step = np.diff(key)
        less |= same & (step < 0)
        same &= step == 0
    return int(less.sum())


@contextmanager
def _job(root: str) -> Iterator[tuple[Warehouse, list[Stage]]]:
    spark = local_session("delayline-outage", read_profile(LOCAL).machine)
    warehouse = Warehouse(root, spark)
    spark.sparkContext.setLogLevel("OFF")
    stages = start_all(warehouse, Options(VirtualClock(), usual(warehouse)))
    try:
        yield warehouse, stages
    finally:
        stop_all(stages)
        spark.stop()


def take(root: str, count: int) -> None:
    """Take messages in, and come to the first instant in any case."""
    with _job(root) as (warehouse, stages):
        reach(stages, warehouse, T0)
        for number, rows in enumerate(slices(count)):

            def produce(rows: pa.Table = rows) -> None:
                append(root, INBOX, rows)

            reach(stages, warehouse, T0 + 1 + number, produce)


def come_back(root: str, step_ms: int) -> None:
    """Go through the day in steps, as a live clock does on its way back, and say what each took."""
    with _job(root) as (warehouse, stages):
        for instant in ReplayClock(T0 + step_ms, T0 + DAY_MS + SECOND_MS, step_ms):
            begun = time.monotonic()
            reach(stages, warehouse, instant)
            print(REACHED, instant, round(time.monotonic() - begun, 1), flush=True)  # noqa: T201 - for the test


if __name__ == "__main__":
    {"take": take, "return": come_back}[sys.argv[2]](sys.argv[1], int(sys.argv[3]))
