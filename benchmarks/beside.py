"""Benchmark of a job with something beside it: how late deliveries are with it and without it, in runs that alternate.

    python -m benchmarks.beside [--with page] [--rounds 3] [--parked 1000000] [--seconds 90] [--json]
    python -m benchmarks.beside --with planner [--schedules 10000] [--rounds 3] [--seconds 90] [--json]

Each run is one of `benchmarks.live`, with 1,000 messages a second and many that wait for another day. In every second
one a page of its warehouse, `delayline web`, is open: the overview is asked for every three seconds, as the script of
the page does. Or new schedules come when the load begins, each with ten occurrences a day, and the job plans them.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import Any

from benchmarks.live import Run
from benchmarks.recurring import TOPIC, definitions
from benchmarks.support.load import Workload, changed, workloads
from benchmarks.support.machine import describe
from benchmarks.support.paged import ServedPage, served
from benchmarks.support.processes import usage
from benchmarks.support.report import tell
from pipeline.delta.deltars import append, open_table, query, rows_of
from schemas import INBOX, SCHEDULES

EVERY_S = 3.0
"""From one look to the next one, as in `jobs/web/static/page.js`."""
PLAIN, PAGED, PLANNED = "nothing beside", "beside a page", "beside a planner"
_TIMES = 10
Company = Callable[[str, Path], AbstractContextManager[dict[str, Any]]]
"""What is beside the job of a warehouse, given a folder for its files; gives figures, complete at its end."""


class CompanyRun(Run):
    """A run of the live benchmark with something beside the job, from when the load begins."""

    def __init__(self, workload: Workload, folder: Path, company: Company) -> None:
        """Make the warehouse of our own job; nothing is started yet."""
        super().__init__(workload, "delayline", folder)
        self._company = company

    def _observed(self, job: subprocess.Popen[bytes]) -> dict[str, Any]:
        with self._company(self._root, self._folder) as figures:
            observed = super()._observed(job)
        return observed | figures


@contextmanager
def planned(count: int, root: str, _folder: Path) -> Iterator[dict[str, Any]]:
    """So many schedules that the job has to plan; gives how many occurrences were."""
    figures: dict[str, Any] = {}
    append(root, SCHEDULES, rows_of(SCHEDULES, definitions(count, _TIMES)))
    yield figures
    counted = f"SELECT COUNT(*) AS n FROM t WHERE topic = '{TOPIC}'"  # noqa: S608 - a constant
    figures["occurrences"] = query(counted, t=open_table(root, INBOX))[0]["n"]


@contextmanager
def opened(root: str, folder: Path) -> Iterator[dict[str, Any]]:
    """A page that somebody has open; gives how often it was looked at, the longest look, its memory and CPU time."""
    looks: dict[str, Any] = {"looks": 0, "longest_look_s": 0.0}
    with served(root, folder) as page:
        ended = Event()
        looking = Thread(target=_follow, args=(page, ended, looks), daemon=True)
        looking.start()
        try:
            yield looks
        finally:
            used = usage(page.process.pid)
            looks |= {"page_mb": round(used.resident / 1e6), "page_cpu_s": round(used.cpu_s, 1)}
            ended.set()
            looking.join()


def _follow(page: ServedPage, ended: Event, looks: dict[str, Any]) -> None:
    """Ask for the overview until it is enough."""
    while not ended.is_set():
        took, _ = page.look()
        looks["looks"] += 1
        looks["longest_look_s"] = max(looks["longest_look_s"], round(took, 3))
        ended.wait(max(EVERY_S, took))


def rows(rounds: int, parked: int, seconds: int, beside: tuple[str, Company]) -> Iterator[dict[str, Any]]:
    """A row for each run: two a round, of which one has something beside it, and goes first in every second round."""
    sizes = {"rate": 1_000, "seconds": seconds, "high_ms": 40_000, "bulk": 0, "quiet_s": 0, "parked": parked}
    workload = changed(workloads(full=False)["steady"], [f"{name}={value}" for name, value in sizes.items()])
    both: list[tuple[str, Company]] = [(PLAIN, lambda *_: nullcontext({})), beside]
    for number in range(rounds):
        for name, company in both if number % 2 == 0 else both[::-1]:
            yield _measured(name, company, workload)


def _measured(name: str, company: Company, workload: Workload) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="delayline-beside-") as folder:
        run = CompanyRun(workload, Path(folder), company).measure()
    late = run["warm"]["late"]
    wrong = {each: run[each] for each in ("early", "twice", "missing", "job_exit")}
    figures = {"what": name, "messages": workload.sent, "p50_ms": late["p50"], "p99_ms": late["p99"], **wrong}
    figures["cpu_s_per_minute"] = run["run"]["cpu_s_per_minute"]
    of_company = ("looks", "longest_look_s", "page_mb", "page_cpu_s", "occurrences")
    return figures | {each: run[each] for each in of_company if each in run}


def show(row: Mapping[str, Any]) -> Iterator[str]:
    """A row for a person."""
    late = f"p50 {row['p50_ms']:.1f}, p99 {row['p99_ms']:.1f} ms late"
    seen = f", {row['looks']} looks, longest {row['longest_look_s']} s, {row['page_mb']} MB" if "looks" in row else ""
    seen += f", {row['occurrences']:,} occurrences" if "occurrences" in row else ""
    yield f"  {row['what']:16} {row['messages']:>10,} messages, {late}, {row['cpu_s_per_minute']} CPU s a minute{seen}"


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark; 1 when something came early, twice or not in time, or a job did not end well."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.beside", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--with", dest="company", choices=["page", "planner"], default="page", help="what is beside it")
    parser.add_argument("--schedules", type=int, default=10_000, help="so many are planned")
    parser.add_argument("--rounds", type=int, default=3, help="so often with and without")
    parser.add_argument("--parked", type=int, default=1_000_000, help="so many wait for another day")
    parser.add_argument("--seconds", type=int, default=90, help="so long lasts the load")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    machine = describe("pyspark", "delta-spark", "deltalake", "pyarrow")
    companies: dict[str, tuple[str, Company]] = {
        "page": (PAGED, opened),
        "planner": (PLANNED, partial(planned, options.schedules)),
    }
    made = rows(options.rounds, options.parked, options.seconds, companies[options.company])
    found = tell(machine, made, show, as_json=options.json)
    return int(any(row[wrong] for row in found for wrong in ("early", "twice", "missing", "job_exit")))


if __name__ == "__main__":
    sys.exit(main())
