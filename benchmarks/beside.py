"""Benchmark of a job with something beside it: how late deliveries are with it and without it, in runs that alternate.

    python -m benchmarks.beside [--with page] [--rounds 3] [--parked 10000000] [--seconds 90] [--json]
    python -m benchmarks.beside --with planner [--schedules 10000] [--rounds 3] [--seconds 90] [--json]

Each run is one of `benchmarks.live`, with 1,000 messages a second and many that wait for another year, which lie there
before the job begins. In every second run a page of its warehouse, `delayline web`, is open from when the load begins:
the overview is asked for every three seconds, as the script of the page does. Or new schedules come then, each with ten
occurrences a day, and the job plans them.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from statistics import median
from threading import Event, Thread
from typing import Any

from benchmarks.commanding import lay_down
from benchmarks.live import Run
from benchmarks.recurring import TOPIC, definitions
from benchmarks.support.load import Workload, changed, workloads
from benchmarks.support.machine import describe
from benchmarks.support.paged import ServedPage, served
from benchmarks.support.processes import DRIVER, memory, usage
from benchmarks.support.report import tell
from pipeline.config.settings import DAY_MS
from pipeline.delta.deltars import append, open_table, query, rows_of
from schemas import INBOX, SCHEDULES

EVERY_S = 3.0
"""From one look to the next one, as in `jobs/web/static/page.js`."""
PLAIN, PAGED, PLANNED = "nothing beside", "beside a page", "beside a planner"
_TIMES, _PARKED_MS = 10, 29 * DAY_MS
Company = Callable[[str, Path], AbstractContextManager[dict[str, Any]]]
"""What is beside the job of a warehouse, given a folder for its files; gives figures, complete at its end."""


class CompanyRun(Run):
    """A run of the live benchmark with something beside the job, from when the load begins."""

    def __init__(self, workload: Workload, folder: Path, company: Company) -> None:
        """Make the warehouse of our own job, with what is parked; nothing is started yet."""
        super().__init__(workload, "delayline", folder)
        self._company = company
        lay_down(self._root, workload.listeners[0], workload.parked, _PARKED_MS)

    def _park(self, _job: subprocess.Popen[bytes]) -> None:
        """It lies there already: sent through the inbox, ten million would take minutes."""

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
    """A page that somebody has open; gives how long its looks took, and its memory and CPU time."""
    figures, seconds = dict[str, Any](), list[float]()
    with served(root, folder) as page:
        ended = Event()
        looking = Thread(target=_follow, args=(page, ended, seconds), daemon=True)
        looking.start()
        try:
            yield figures
        finally:
            ended.set()
            looking.join()
            figures |= looked(seconds)
            figures["page_mb"] = round(memory(page.process.pid)[DRIVER].peak / (1 << 20))
            figures["page_cpu_s"] = round(usage(page.process.pid).cpu_s, 1)


def looked(seconds: Sequence[float]) -> dict[str, Any]:
    """How many looks there were, and how long the first one took, and those that followed, s."""
    first, *more = (round(each, 3) for each in seconds)
    again = {"refresh_p50_s": median(more), "refresh_max_s": max(more)} if more else {}
    return {"looks": len(seconds), "first_look_s": first, **again}


def _follow(page: ServedPage, ended: Event, seconds: list[float]) -> None:
    """Ask for the overview until it is enough, once at least."""
    while not ended.is_set() or not seconds:
        seconds.append(page.look()[0])
        ended.wait(max(EVERY_S, seconds[-1]))


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
    figures = {"what": name, "messages": workload.sent, "parked": workload.parked, **wrong}
    figures |= {"p50_ms": late["p50"], "p99_ms": late["p99"], "cpu_s_per_minute": run["run"]["cpu_s_per_minute"]}
    of_company = ("looks", "first_look_s", "refresh_p50_s", "refresh_max_s", "page_mb", "page_cpu_s", "occurrences")
    return figures | {each: run[each] for each in of_company if each in run}


def show(row: Mapping[str, Any]) -> Iterator[str]:
    """A row for a person."""
    late = f"p50 {row['p50_ms']:.1f}, p99 {row['p99_ms']:.1f} ms late"
    seen = f", {row['occurrences']:,} occurrences" if "occurrences" in row else ""
    yield f"  {row['what']:16} {row['messages']:>10,} messages, {late}, {row['cpu_s_per_minute']} CPU s a minute{seen}"
    if "refresh_p50_s" in row:
        looks = f"first look {row['first_look_s']} s, {row['looks'] - 1} more {row['refresh_p50_s']} s (p50), "
        looks += f"{row['refresh_max_s']} s at most"
        yield f"    the page: {looks}; {row['page_mb']} MB, {row['page_cpu_s']} CPU s"


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark; 1 when something came early, twice or not in time, or a job did not end well."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.beside", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--with", dest="company", choices=["page", "planner"], default="page", help="what is beside it")
    parser.add_argument("--schedules", type=int, default=10_000, help="so many are planned")
    parser.add_argument("--rounds", type=int, default=3, help="so often with and without")
    parser.add_argument("--parked", type=int, default=10_000_000, help="so many wait for another year")
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
