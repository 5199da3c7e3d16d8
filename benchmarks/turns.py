"""Everybody's turn: what `fair_by` does with a million held messages, and what it costs, beside a rate without it.

    python -m benchmarks.turns [--messages 1000000] [--seconds 20] [--json]

The stages are the real ones, without Spark, by a clock that is turned twice a second. A subscription has a rate of a
thousand messages a second. In the first two cases a million messages of one tenant are due at once, and behind them one
of another tenant; the first case, the baseline, takes what was due first, the second one takes turns. In the third case
the million is of ten tenants in any order, and in the fourth of a hundred thousand. Told are when the single message
came, how even the shares of the ten are, how long the values took to be looked up, the times of the batches of
dispatch by the wall, and how much memory grew from before the look-up to the end.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.support.machine import describe, resident_bytes
from benchmarks.support.report import tell
from pipeline.client.create import create_all
from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from pipeline.config.settings import Settings
from pipeline.delta.deltars import append, open_table, query
from pipeline.storage.arrays import IntArray, arrow_schema, completed
from pipeline.subscriptions.policies import Policies
from pipeline.testing.stages import Stages
from schemas import DELIVERIES, INBOX

MESSAGES_SENT, SECONDS, RATE, STEP_MS = 1_000_000, 20, 1_000, 500
T0, PAYLOAD = 2_000_000_000_000, b"x" * 100
TENANTS: Mapping[str, int] = {"no turns": 1, "one with a million": 1, "ten equal ones": 10, "many": 100_000}
"""Cases, and the number of tenants to whom the million belongs."""
SINGLE = "single"
_CAME = "SELECT properties['tenant'] AS tenant, count(*) AS count, min(released_at) AS first FROM t GROUP BY 1"


def rows_of(tenants: IntArray) -> pa.Table:
    """Rows of the inbox that are due at once, of tenants by number."""
    count = len(tenants)
    names = pa.array(["tenant"]).take(pa.array(np.zeros(count, np.int64)))
    values = pa.array([SINGLE, *(f"tenant-{number}" for number in range(int(tenants.max()) + 1))])
    properties = pa.MapArray.from_arrays(
        pa.array(np.arange(count + 1), pa.int32()), names, values.take(pa.array(tenants + 1))
    )
    payload = pa.array([PAYLOAD]).take(pa.array(np.zeros(count, np.int64)))
    columns = {"properties": properties, "payload": payload}
    return completed(arrow_schema(INBOX.columns), columns, {"topic": "t"}, count)


class Run:
    """A warehouse of which a million is held."""

    def __init__(self, root: str, case: str, count: int) -> None:
        """Send it, and let dispatch hold it."""
        fair_by = None if case == "no turns" else "property:tenant"
        self.stages = Stages(root, Settings(driver_rows=2 * count, max_bytes=1 << 40))
        create_all(root)
        subscribe(root, Subscription("t", "s", tick_ms=1, policies=Policies(max_rate=RATE, fair_by=fair_by)))
        self.stages.instant = T0
        self.stages.work()
        of = np.random.default_rng(7).integers(0, TENANTS[case], count)
        for tenants in (of, np.array([-1])):
            append(root, INBOX, rows_of(tenants))
            self.stages.instant += STEP_MS
            self.stages.ingest()
            self.stages.schedule.step(self.stages.instant)
            self.stages.dispatch()

    def step(self) -> float:
        """Turn the clock, and let dispatch do what there is; how long that took, s."""
        self.stages.instant += STEP_MS
        begun = time.perf_counter()
        while self.stages.has_dispatch:
            self.stages.dispatch()
        return time.perf_counter() - begun


def measured(case: str, count: int, seconds: int) -> dict[str, Any]:
    """The figures of a case."""
    with tempfile.TemporaryDirectory(prefix="delayline-bench-") as root:
        run, steps = Run(f"{root}/warehouse", case, count), seconds * 1_000 // STEP_MS
        begun, before = run.stages.instant, resident_bytes()
        first, *times = (run.step() for _ in range(steps))
        came = {row["tenant"]: row for row in query(_CAME, t=open_table(run.stages.root, DELIVERIES))}
        single = came.pop(SINGLE, None)
        shares = [row["count"] for row in came.values()]
        after = None if single is None else round(single["first"].timestamp() * 1_000) - begun
        return {
            "case": case,
            "messages": count,
            "delivered": sum(shares) + (single is not None),
            "single_after_ms": after,
            "uneven": round(max(shares) / np.mean(shares) - 1, 4) if TENANTS[case] == 10 else None,
            "looked_up_s": round(first, 2),
            "batch_ms": round(median(times) * 1_000),
            "batch_max_ms": round(max(times) * 1_000),
            "grown_mb": round((resident_bytes() - before) / 1e6),
        }


def shown(row: Mapping[str, Any]) -> Iterator[str]:
    """A row for people."""
    single = "did not come" if row["single_after_ms"] is None else f"came after {row['single_after_ms'] / 1_000:g} s"
    yield (
        f"{row['case']}: {row['delivered']:,} of {row['messages']:,} came; the single one {single}; values looked "
        f"up in {row['looked_up_s']} s, a batch {row['batch_ms']} ms (max {row['batch_max_ms']}), "
        f"{row['grown_mb']} MB more"
    )
    if row["uneven"] is not None:
        yield f"  the share that differs most from the mean by {100 * row['uneven']:.2f} %"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print machine and figures; 0."""
    parser = argparse.ArgumentParser(description="Turns between tenants of whom a million messages are held.")
    parser.add_argument("--messages", type=int, default=MESSAGES_SENT, help="so many are held")
    parser.add_argument("--seconds", type=int, default=SECONDS, help="so long it is looked at")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    machine = describe("deltalake", "pyarrow", "numpy")
    rows = (measured(case, options.messages, options.seconds) for case in TENANTS)
    tell(machine, rows, shown, as_json=options.json)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
