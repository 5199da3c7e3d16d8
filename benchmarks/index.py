"""Benchmark of the index core: bytes a message, add and drain rates, cost of one pop, against the published layouts.

    python -m benchmarks.index [--messages N] [--baseline-messages N] [--full] [--only TEXT] [--json]

Each contender runs in a process of its own, forked after the input is made; its live bytes are the growth of that
process's resident memory. What is in it is drained twice: in 100 pops of equal spans of time, and, filled again, in one
pop, as after an outage or when all is due at one instant.
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from benchmarks.support import WORKLOADS
from benchmarks.support.contenders import BASELINES, Contender, Index, NestedBitmaps
from benchmarks.support.machine import describe, resident_bytes
from benchmarks.support.report import machine_line
from benchmarks.support.words import check_only
from pipeline.subscriptions.topicpolicies import EXACT, PROPORTIONAL
from state.buckets import IntArray, proportional_deliver_at

FILE = WORKLOADS / "index.toml"
POPS = 100
LATER = 32
"""Pops after the first one, as far as there are messages."""
POPS_OF = (
    (1_000_000, 10_000, 1),
    (1_000_000, 10_000, 10),
    (10_000_000, 10_000, 10),
    (10_000_000, 10_000, 30),
    (1_000_000, 100_000, 1),
    (10_000_000, 100_000, 10),
)
"""Messages that are pending, those that a pop takes, and chunks."""
DRAINS_OF = ((3_000_000, 3), (3_000_000, 30))
"""Messages that one call takes out, and chunks."""


@dataclass(frozen=True)
class Workload:
    """A named stream of messages; the fields are explained in `workloads/index.toml`."""

    name: str
    per_ms: int
    tick_ms: int
    seed: int
    start: int
    ledger_entries: int
    batch: int
    delay_ms: int | None = None
    uniform_ms: int | None = None
    choice: list[tuple[float, str, int]] = field(default_factory=list)
    ledgers: int | None = None
    numbered: str = "publish"
    precision: str = EXACT
    aim: float | None = None
    published_mb: float | None = None

    def messages(self, number: int) -> tuple[IntArray, IntArray, IntArray]:
        """Ledger ids, entry ids and delivery times of the first `number` messages."""
        arrival = np.arange(number, dtype=np.int64)
        published = self.start + arrival // self.per_ms
        due = published + self._delays(number)
        if self.precision == PROPORTIONAL:
            due = proportional_deliver_at(due, published)
        if self.numbered == "due":
            due = np.concatenate([np.sort(due[at : at + self.batch]) for at in range(0, number, self.batch)])
        if self.ledgers:
            return arrival % self.ledgers, arrival // self.ledgers, due
        return arrival // self.ledger_entries, arrival % self.ledger_entries, due

    def _delays(self, number: int) -> IntArray:
        rng = np.random.default_rng(self.seed)
        if self.delay_ms is not None:
            return np.full(number, self.delay_ms, dtype=np.int64)
        if self.uniform_ms is not None:
            return rng.integers(0, self.uniform_ms, number)
        kinds = rng.choice(len(self.choice), number, p=[share for share, _, _ in self.choice])
        drawn = [rng.integers(0, ms, number) if how == "uniform" else np.full(number, ms) for _, how, ms in self.choice]
        delays: IntArray = np.choose(kinds, drawn)
        return delays


def load(section: str) -> list[Workload]:
    """The workloads of a section of the file."""
    data = tomllib.loads(FILE.read_text())
    common = {key: data[key] for key in ("start", "ledger_entries", "batch")}
    return [Workload(**{**common, "seed": seed, **fields}) for seed, fields in enumerate(data[section])]


def measure(make: Callable[[int], Contender], workload: Workload, number: int) -> dict[str, Any]:
    """Bytes and rates of one contender, measured in a forked process."""
    arrays = workload.messages(number)
    receive, send = multiprocessing.get_context("fork").Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(target=_measure, args=(send, make, workload, arrays))
    child.start()
    send.close()
    figures: dict[str, Any] = receive.recv()
    child.join()
    return figures


def _measure(
    send: Connection, make: Callable[[int], Contender], workload: Workload, arrays: tuple[IntArray, IntArray, IntArray]
) -> None:
    number = len(arrays[0])
    warm = make(workload.tick_ms)
    warm.add(*(a[:20_000] for a in arrays))
    warm.drain(int(arrays[2].max()) + workload.tick_ms)
    del warm
    gc.collect()
    contender, before = make(workload.tick_ms), resident_bytes()
    started = time.perf_counter()
    for at in range(0, number, workload.batch):
        contender.add(*(a[at : at + workload.batch] for a in arrays))
    added = time.perf_counter() - started
    if isinstance(contender, NestedBitmaps):
        contender.optimise()
    gc.collect()
    figures: dict[str, Any] = {"name": contender.name, "messages": number}
    figures["resident"] = max(resident_bytes() - before, 0) / number
    if isinstance(contender, Index):
        figures["live"] = contender.index.nbytes / number
        figures["serialised"] = len(contender.index.to_bytes()) / number
        figures["chunks"] = contender.index.chunks
    drained = _drain(contender, arrays[2], workload.tick_ms, POPS)
    for at in range(0, number, workload.batch):
        contender.add(*(a[at : at + workload.batch] for a in arrays))
    burst = _drain(contender, arrays[2], workload.tick_ms, 1)
    rates = {"add": number / added / 1e6, "drain": number / drained / 1e6, "burst": number / burst / 1e6}
    send.send(figures | rates)


def _drain(
    contender: Contender, times: IntArray, tick_ms: int, pops: int, clock: Callable[[], float] = time.perf_counter
) -> float:
    number = len(times)
    instants = np.linspace(int(times.min()), int(times.max()) + tick_ms, pops + 1)[1:].astype(np.int64).tolist()
    started = clock()
    got = sum(len(contender.drain(now)[0]) for now in instants)
    seconds = clock() - started
    if got != number:
        message = f"{contender.name} gave {got} of {number} messages"
        raise RuntimeError(message)
    return seconds


def pop_cost(workload: Workload, pending: int, taken: int, chunks: int) -> dict[str, Any]:
    """CPU milliseconds of the first pop of about `taken` messages of `pending` in `chunks` chunks, and of later ones.

    The best of five, each from an index that was just made; of the later pops the mean.
    """
    arrays = workload.messages(pending)
    instants = np.sort(arrays[2])[taken : (LATER + 1) * taken + 1 : taken].tolist()
    first, later, got, held = float("inf"), float("inf"), 0, 0
    for _ in range(5):
        contender = _filled(workload, arrays, chunks)
        held, ends = contender.index.chunks, [time.process_time()]
        for now in instants:
            popped = len(contender.drain(now)[0])
            ends.append(time.process_time())
            got = popped if len(ends) == 2 else got
        first, later = min(first, ends[1] - ends[0]), min(later, (ends[-1] - ends[1]) / (len(instants) - 1))
    figures = {"pending": pending, "chunks": held, "taken": got, "ms": first * 1e3, "later_ms": later * 1e3}
    return figures | {"ns_per_message": first * 1e9 / got}


def drain_cost(workload: Workload, pending: int, chunks: int) -> dict[str, Any]:
    """Messages a CPU second of one call that takes out all `pending` messages of `chunks` chunks; the best of five."""
    arrays = workload.messages(pending)
    best, held = float("inf"), 0
    for _ in range(5):
        contender = _filled(workload, arrays, chunks)
        held = contender.index.chunks
        best = min(best, _drain(contender, arrays[2], workload.tick_ms, 1, time.process_time))
    return {"pending": pending, "chunks": held, "ms": best * 1e3, "per_us": pending / best / 1e6}


def _filled(workload: Workload, arrays: tuple[IntArray, IntArray, IntArray], chunks: int) -> Index:
    """An index that was given the messages in so many chunks of equal size; it may have merged small ones."""
    contender = Index(workload.tick_ms)
    for parts in zip(*(np.array_split(array, chunks) for array in arrays), strict=True):
        contender.add(*parts)
    return contender


def steps(only: str) -> Iterator[dict[str, Any]]:
    """What one call costs: pops from few and many pending messages, and drains at once, in few and many chunks."""
    for workload in load("step"):
        if only not in workload.name:
            continue
        for pending, taken, chunks in POPS_OF:
            yield {"workload": workload.name, "step": "pop"} | pop_cost(workload, pending, taken, chunks)
        for pending, chunks in DRAINS_OF:
            yield {"workload": workload.name, "step": "drain"} | drain_cost(workload, pending, chunks)


def rows(number: int, baseline_number: int, only: str) -> Iterator[dict[str, Any]]:
    """One row of figures a workload: ours, and each baseline with at most `baseline_number` messages."""
    for workload in load("workload"):
        if only in workload.name:
            ours = measure(Index, workload, number)
            baselines = [measure(baseline, workload, min(number, baseline_number)) for baseline in BASELINES]
            yield {"workload": workload.name, "aim": workload.aim, "ours": ours, "baselines": baselines}


def published_rows(number: int, only: str) -> Iterator[dict[str, Any]]:
    """The four published points: MB for `number` messages, ours beside what was published for 10 million."""
    for workload in load("published"):
        if only in workload.name:
            ours = measure(Index, workload, number)
            yield {"workload": workload.name, "published_mb": workload.published_mb, "mb": ours["live"] * number / 1e6}


def show(row: dict[str, Any]) -> None:
    """Print a row for a person."""
    ours = row["ours"]
    aim = "" if row["aim"] is None else f"  (aim <= {row['aim']:g})"
    print(f"\n{row['workload']}")
    columns = ("messages", "B live", "B stored", "B resident", "add M/s", "100 pops", "1 pop")
    print(f"  {'':24}" + " ".join(f"{name:>10}" for name in columns))
    print(
        f"  {ours['name']:24}{ours['messages']:>10} {ours['live']:>10.5f} {ours['serialised']:>10.5f} "
        f"{ours['resident']:>10.3f} {ours['add']:>10.1f} {ours['drain']:>10.1f} {ours['burst']:>10.1f}{aim}"
    )
    for base in row["baselines"]:
        print(
            f"  {base['name']:24}{base['messages']:>10} {'':>10} {'':>10} {base['resident']:>10.3f} "
            f"{base['add']:>10.2f} {base['drain']:>10.2f} {base['burst']:>10.2f}  "
            f"ours: {base['resident'] / ours['live']:.0f}x smaller, adds {ours['add'] / base['add']:.1f}x, "
            f"drains {ours['drain'] / base['drain']:.1f}x, at once {ours['burst'] / base['burst']:.1f}x"
        )


def show_step(row: dict[str, Any], before: list[dict[str, Any]]) -> None:
    """Print a row of `steps` for a person, a pop beside the first one of as many messages of this workload."""
    where = f"{row['workload']}, {row['pending']:,} in {row['chunks']} chunks"
    if row["step"] == "drain":
        print(f"drain at once, {where}: {row['ms']:.0f} CPU ms, {row['per_us']:.1f} M/s", flush=True)
        return
    like = [each for each in before if (each["workload"], each["step"]) == (row["workload"], "pop")]
    base = next(each for each in like if abs(each["taken"] - row["taken"]) < row["taken"] / 10)
    figures = f"{row['ms']:.2f} CPU ms ({row['ns_per_message']:.0f} ns a message), later ones {row['later_ms']:.2f} ms"
    ratio = "" if base is row else f": {row['ms'] / base['ms']:.1f}x and {row['later_ms'] / base['later_ms']:.1f}x"
    print(f"pop of {row['taken']:,}, {where}: {figures}{ratio}", flush=True)


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.index", description=__doc__.splitlines()[0] if __doc__ else ""
    )
    parser.add_argument("--messages", type=int, default=2_000_000)
    parser.add_argument("--baseline-messages", type=int, default=2_000_000, help="a larger heap takes minutes")
    parser.add_argument("--full", action="store_true", help="10 million messages")
    parser.add_argument("--only", default="", help="workloads whose name holds this text")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    kinds = ("workload", "published", "step")
    check_only(parser, options.only, list(dict.fromkeys(each.name for kind in kinds for each in load(kind))))
    number = 10_000_000 if options.full else options.messages
    machine = describe("numpy", "pyarrow", "pyroaring")
    report: dict[str, Any] = {"machine": machine, "messages": number, "rows": [], "published": [], "steps": []}
    if not options.json:
        print(machine_line(machine))
        print(f"workloads: {FILE.name}, {number} messages, added in batches of 1 000 000, drained in {POPS} pops")
    for row in rows(number, options.baseline_messages, options.only):
        report["rows"].append(row)
        if not options.json:
            show(row)
    for row in published_rows(10_000_000, options.only):
        report["published"].append(row)
        if not options.json:
            print(
                f"\n{row['workload']}, 10 million: {row['mb']:.4f} MB (published {row['published_mb']} MB, aim < 0.2)"
            )
    for row in steps(options.only):
        report["steps"].append(row)
        if not options.json:
            show_step(row, report["steps"])
    print(json.dumps(report) if options.json else "")
    return 0


if __name__ == "__main__":
    sys.exit(main())
