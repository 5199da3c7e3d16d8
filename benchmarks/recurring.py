"""Benchmark of schedules: planning the occurrences of a day, and looking what the next ones are.

    python -m benchmarks.recurring [--schedules 100000] [--times 10] [--json]

Each schedule is an expression of cron with so many times a day, in one of eight zones. `core` is the occurrences alone;
`plan` is the first step of the planner: it reads and checks all definitions, and appends the rows; `start` is what a
start of the planner has to read again. `append` is the baseline: as many rows that are made already, appended to
another warehouse in commits of the same size.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa

from benchmarks.support.machine import describe
from benchmarks.support.report import tell
from pipeline.client.create import create_all
from pipeline.config.settings import DAY_MS
from pipeline.delta.deltars import append, open_table, query, rows_of
from pipeline.delta.warehouse import Warehouse
from pipeline.planner.planner import Planner
from pipeline.subscriptions.schedules import Schedule
from schemas import INBOX, SCHEDULES
from state.units import Ms

_START_MS = 1_772_884_800_500
"""On 7 March 2026: the day after it clocks of New York go forward."""
_COMMIT = 100_000
TOPIC = "reminders"
"""Nobody listens to it."""
_ZONES = (
    *("UTC", "America/New_York", "Europe/Rome", "Asia/Tokyo", "Australia/Lord_Howe", "Africa/Casablanca"),
    *("America/Sao_Paulo", "Asia/Kathmandu"),
)


def definitions(count: int, times: int) -> list[dict[str, Any]]:
    """Rows of `schedules`: so many, each of which comes so often a day."""
    hours = ",".join(str(each * 24 // times) for each in range(times))
    return [
        {
            "name": f"schedule-{number}",
            "topic": TOPIC,
            "cron": f"{number % 60} {hours} * * *",
            "zone": _ZONES[number % len(_ZONES)],
            "payload": "at {occurrence}",
        }
        for number in range(count)
    ]


def _core(rows: list[dict[str, Any]]) -> int:
    """The occurrences of a day of all schedules; how many there are."""
    found = 0
    for row in rows:
        for each in Schedule.of_row(row).recurrence.after(Ms(_START_MS)):
            if each.at > _START_MS + DAY_MS:
                break
            found += 1
    return found


def _timed(work: Callable[[], object]) -> dict[str, float]:
    begun, cpu = time.perf_counter(), time.process_time()
    work()
    return {"wall_s": round(time.perf_counter() - begun, 2), "cpu_s": round(time.process_time() - cpu, 2)}


def rows(schedules: int, times: int) -> Iterator[dict[str, Any]]:
    """The figures."""
    made = definitions(schedules, times)
    yield {"what": "core", "schedules": schedules, **_timed(lambda: _core(made))}
    with TemporaryDirectory() as folder:
        root = str(Path(folder) / "warehouse")
        create_all(root)
        append(root, SCHEDULES, rows_of(SCHEDULES, made))
        figures = _timed(Planner(Warehouse(root), _now).step)
        planned = query("SELECT COUNT(*) AS n FROM t", t=open_table(root, INBOX))[0]["n"]
        yield {"what": "plan", "schedules": schedules, "rows": planned, **figures}
        yield {"what": "start", "schedules": schedules, **_timed(Planner(Warehouse(root), _now).start)}
        made_already = open_table(root, INBOX).to_pyarrow_table()
        figures = _timed(lambda: _appended(made_already, f"{folder}/other"))
        yield {"what": "append", "schedules": schedules, "rows": planned, **figures}


def _appended(rows: pa.Table, root: str) -> None:
    """Append rows to another warehouse, in commits of the size that the planner makes."""
    create_all(root)
    for first in range(0, rows.num_rows, _COMMIT):
        append(root, INBOX, rows.slice(first, _COMMIT))


def _now() -> int:
    return _START_MS


def show(row: dict[str, Any]) -> Iterator[str]:
    """A line for a person."""
    planned = f", {row['rows']:,} rows" if "rows" in row else ""
    yield f"{row['what']}: {row['schedules']:,} schedules{planned}: {row['cpu_s']} s of CPU, {row['wall_s']} s"


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.recurring", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--schedules", type=int, default=100_000, help="so many schedules")
    parser.add_argument("--times", type=int, default=10, help="so often a day each of them comes")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    tell(describe("deltalake", "cronsim"), rows(options.schedules, options.times), show, as_json=options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
