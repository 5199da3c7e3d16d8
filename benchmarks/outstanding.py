"""Benchmark of the state of settling: memory, bytes and time of a batch with few and with many outstanding, and holes.

    python -m benchmarks.outstanding [--only TEXT] [--json]

Each contender runs in a process of its own; its memory is the growth of that process's resident memory. A plain dict
of positions is measured beside, where it fits: it is not written anywhere, so its batches are its changes alone.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from statistics import median
from typing import Any, Protocol

import numpy as np

from benchmarks.support import WORKLOADS
from benchmarks.support.machine import describe, resident_bytes
from benchmarks.support.report import tell
from benchmarks.support.words import check_only
from state import Ack, Cursor, Nack, Outstanding, Positions, Released
from state.buckets import IntArray
from state.units import Ms

FILE = WORKLOADS / "outstanding.toml"
DICT_FITS = 1_000_000
NOW = 1_700_000_000_000


@dataclass(frozen=True)
class Workload:
    """A named load; the fields are explained in `workloads/outstanding.toml`."""

    name: str
    outstanding: int
    ledger_entries: int
    spread: int
    batches: int
    released: int
    acked: int
    nacked: int
    holes: str = ""

    @property
    def ledgers(self) -> int:
        """Ledgers that are full when the batches begin."""
        return self.outstanding // self.ledger_entries

    @property
    def events(self) -> int:
        """Messages that a batch is about."""
        return self.released + self.acked + self.nacked


def load() -> list[Workload]:
    """The workloads of the file."""
    file = tomllib.loads(FILE.read_text(encoding="utf-8"))
    common = {key: value for key, value in file.items() if key != "workload"}
    return [Workload(**(common | each)) for each in file["workload"]]


class Contender(Protocol):
    """Holds what is outstanding, and takes batches."""

    name: str

    def release(self, released: Positions) -> None:
        """Take released messages."""

    def batch(self, released: Positions, acked: Positions, nacked: Positions) -> int:
        """Take what happened in a batch; give the bytes that it writes."""


class State:
    """The state of settling, written block by block."""

    name = "delayline"

    def __init__(self) -> None:
        self.state = Outstanding()

    def release(self, released: Positions) -> None:
        """As one version of the table of releases."""
        self.state.handle(Released(released, 0, self.state.version + 1), now=Ms(NOW))

    def batch(self, released: Positions, acked: Positions, nacked: Positions) -> int:
        """Releases first; then the changed blocks are encoded."""
        events = (Released(released, 0, self.state.version + 1), Ack(acked), Nack(nacked, 0))
        self.state.handle(*events, now=Ms(NOW))
        changes = self.state.changes()
        self.state.saved()
        return size(changes)


class PlainDict:
    """Position -> round and redelivery count, one by one."""

    name = "dict"

    def __init__(self) -> None:
        self.outstanding: dict[tuple[int, int], tuple[int, int]] = {}
        self.waiting: dict[tuple[int, int], tuple[int, int]] = {}

    def release(self, released: Positions) -> None:
        """An item a message."""
        for ledger, first, last in released.runs():
            self.outstanding.update(((ledger, entry), (0, 0)) for entry in range(first, last + 1))

    def batch(self, released: Positions, acked: Positions, nacked: Positions) -> int:
        """Nothing is written."""
        self.release(released)
        for ledger, entry, _ in acked.runs():
            if self.outstanding.pop((ledger, entry), None) is None:
                self.waiting.pop((ledger, entry), None)
        for ledger, entry, _ in nacked.runs():
            if (held := self.outstanding.pop((ledger, entry), None)) is not None:
                self.waiting[ledger, entry] = (held[0] + 1, held[1] + 1)
        return 0


def size(cursor: Cursor) -> int:
    """Bytes of a head and of blocks."""
    return len(cursor.head) + sum(len(data or b"") for data in cursor.blocks.values())


def singles(rng: np.random.Generator, workload: Workload, number: int) -> Positions:
    """Single messages of the newest ledgers."""
    low = workload.ledgers - workload.spread if workload.spread else 0
    ledgers: IntArray = rng.integers(max(low, 0), workload.ledgers, number)
    entries: IntArray = rng.integers(0, workload.ledger_entries, number)
    return Positions.of(ledgers, entries, entries)


def filled(contender: Contender, workload: Workload) -> None:
    """Release all that is outstanding, a million at a time."""
    step = max(1, 1_000_000 // workload.ledger_entries)
    for start in range(0, workload.ledgers, step):
        ledgers = np.arange(start, min(start + step, workload.ledgers))
        contender.release(Positions.of(ledgers, 0 * ledgers, 0 * ledgers + workload.ledger_entries - 1))


def batches(contender: Contender, workload: Workload) -> dict[str, float]:
    """Milliseconds and bytes of a batch, and of a message in it."""
    rng, took, wrote = np.random.default_rng(1), list[float](), list[int]()
    for number in range(workload.batches):
        first = number * workload.released
        released = Positions.of([workload.ledgers], [first], [first + workload.released - 1])
        acked, nacked = singles(rng, workload, workload.acked), singles(rng, workload, workload.nacked)
        gc.collect()
        started = time.perf_counter()
        wrote.append(contender.batch(released, acked, nacked))
        took.append(time.perf_counter() - started)
    figures = {"batch_ms": median(took) * 1e3, "batch_bytes": sum(wrote) / len(wrote)}
    return figures | {"us_per_event": median(took) * 1e6 / workload.events}


def holes(state: State, workload: Workload) -> dict[str, float]:
    """Acknowledge half of everything, message by message, and write all blocks."""
    rng, every = np.random.default_rng(1), np.arange(workload.ledger_entries, dtype=np.int64)
    started = time.perf_counter()
    for ledger in range(workload.ledgers):
        entries = every[::2] if workload.holes == "every second" else every[rng.random(len(every)) < 0.5]
        state.state.handle(Ack(Positions.of(np.full(len(entries), ledger), entries, entries)), now=Ms(NOW))
    acked_s = time.perf_counter() - started
    whole = state.state.snapshot()
    started = time.perf_counter()
    again = Outstanding.restore(whole.head, {n: data for n, data in whole.blocks.items() if data is not None})
    again.check_invariants()
    if again.counts != state.state.counts:
        message = f"{again.counts} came back of {state.state.counts}"
        raise RuntimeError(message)
    figures = {"left": again.counts.outstanding, "stored": size(whole), "acked_s": acked_s}
    return figures | {"read_s": time.perf_counter() - started}


def measure(make: Callable[[], Contender], workload: Workload) -> dict[str, Any]:
    """The figures of one contender, measured in a forked process."""
    context = multiprocessing.get_context("fork")
    receive, send = context.Pipe(duplex=False)
    child = context.Process(target=_measure, args=(send, make, workload))
    child.start()
    send.close()
    figures: dict[str, Any] = receive.recv()
    child.join()
    return figures


def _measure(send: Connection, make: Callable[[], Contender], workload: Workload) -> None:
    gc.collect()
    contender, before = make(), resident_bytes()
    filled(contender, workload)
    gc.freeze()  # or a batch would pay for walking through a million tuples of the dict now and then
    figures: dict[str, Any] = {"name": contender.name}
    if isinstance(contender, State) and workload.holes:
        figures |= holes(contender, workload)
    else:
        if isinstance(contender, State):
            figures["stored"] = size(contender.state.snapshot())
        figures |= batches(contender, workload)
    gc.collect()
    send.send(figures | {"resident_mb": max(resident_bytes() - before, 0) / 1e6})


def rows(only: str) -> Iterator[dict[str, Any]]:
    """The figures of each workload, and of a dict where it fits."""
    for workload in load():
        if only not in workload.name:
            continue
        row = {"workload": workload.name, "messages": workload.outstanding, "holes": workload.holes}
        row["anywhere"] = not workload.spread
        row |= {"events": workload.events, "ours": measure(State, workload)}
        fits = workload.outstanding <= DICT_FITS and not workload.holes
        yield row | {"baselines": [measure(PlainDict, workload)] if fits else []}


def show(row: dict[str, Any]) -> Iterator[str]:
    """A row for a person."""
    yield row["workload"]
    for each in (row["ours"], *row["baselines"]):
        lines = [f"  {each['name']:10} {each['resident_mb']:8.1f} MB resident"]
        if "stored" in each:
            lines.append(f"{each['stored']:,} bytes stored")
        if row["holes"]:
            lines.append(
                f"{each['left']:,} left, acknowledged in {each['acked_s']:.2f} s, read in {each['read_s']:.3f} s"
            )
        else:
            cost = f"batch of {row['events']:,}: {each['batch_ms']:.2f} ms, {each['us_per_event']:.2f} us a message"
            lines.append(f"{cost}, {each['batch_bytes']:,.0f} bytes written")
        yield ", ".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.outstanding", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--only", default="", help="workloads whose name holds this text")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    check_only(parser, options.only, [workload.name for workload in load()])
    tell(describe("numpy", "pyroaring"), rows(options.only), show, as_json=options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
