"""Lateness as a reader of `deliveries` sees it, taken by a process of its own that knows nothing of plans and of Spark.

A thread looks every few milliseconds whether the log has its next version, and notes the wall time at which it is
there. What the version added is read afterwards, so reading delays no look. Lateness is that time less the row's own:
it can only be overstated, by the pause between two looks, whose longest is reported.

Another thread looks as often for notes on the shelf: they name files that are written and not visible yet. So it is
known when a row was prepared, and how long it took from its producer to there. What is due already may never be seen on
the shelf; it was prepared when it became visible, at the latest.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, Queue
from threading import Event, Thread
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
_LOOK_S, _MINUTE_MS, _SECOND_MS = 0.005, 60_000, 1_000
_COLUMNS = ["due_time", "deliver_at", "publish_time"]
SHELF = "_prepared"
"""The folder in the table with a note for each batch that is prepared (`pipeline.dispatch.prepared.PreparedStore`)."""


@dataclass(frozen=True)
class Rows:
    """What one version made visible; an element of each array is a row, times in ms UTC.

    Attributes:
        version: of the table.
        seen: when the version was there.
        due: `due_time`: the delivery time, rounded up to the tick of the subscription.
        asked: `deliver_at` to the microsecond; `due` where none was asked for.
        published: `publish_time`.
        prepared: when its file was on the shelf, or visible, whichever was seen first.
    """

    version: int
    seen: float
    due: Numbers
    asked: Numbers
    published: Numbers
    prepared: Numbers

    def __len__(self) -> int:
        """How many."""
        return len(self.due)


class Watch(Thread):
    """Notes when each version of a table appears, in a queue of (version, ms UTC)."""

    def __init__(self, table: Path, first: int) -> None:
        """Wait for this version and those after it."""
        super().__init__(daemon=True)
        self._log, self._version = table / "_delta_log", first
        self.ended, self.seen, self.longest_pause_s = Event(), Queue[tuple[int, float]](), 0.0

    def run(self) -> None:
        """Look until the end."""
        last = time.monotonic()
        while not self.ended.is_set():
            now = time.monotonic()
            self.longest_pause_s, last = max(self.longest_pause_s, now - last), now
            if (self._log / f"{self._version:020d}.json").exists():
                self.seen.put((self._version, time.time() * 1_000))
                self._version += 1
            else:
                self.ended.wait(_LOOK_S)


class PreparedStore(Thread):
    """Notes when each file that is prepared was first seen to be, ms UTC, by its path in the table."""

    def __init__(self, table: Path) -> None:
        """Notes that are there already count from now."""
        super().__init__(daemon=True)
        self._folder, self._known = table / SHELF, set[Path]()
        self.ended, self.seen = Event(), dict[str, float]()

    def run(self) -> None:
        """Look until the end."""
        while not self.ended.wait(_LOOK_S):
            self.look()

    def look(self) -> None:
        """Look once. A note whose parts are all visible is taken away, maybe before it can be read."""
        if not self._folder.is_dir():
            return
        for note in set(self._folder.iterdir()) - self._known:
            now = time.time() * 1_000
            if note.suffix == ".json":
                self._known.add(note)
                with suppress(FileNotFoundError):
                    state = json.loads(note.read_text(encoding="utf-8"))
                    for file in (file for part in state["parts"] for file in part["files"]):
                        self.seen.setdefault(file["path"], now)


def read(table: Path, version: int, seen: float, prepared: Mapping[str, float]) -> Rows:
    """The rows that a version added. Files that only were rearranged (no data change) are no news.

    `prepared` are the files that were seen on the shelf, and when.
    """
    entry = table / "_delta_log" / f"{version:020d}.json"
    actions = (json.loads(line) for line in entry.read_text(encoding="utf-8").splitlines() if line)
    adds = [each["add"] for each in actions if "add" in each]
    paths = [unquote(add["path"]) for add in adds if add["dataChange"]]
    parts = [pq.ParquetFile(table / path).read(columns=_COLUMNS) for path in paths]
    if not parts:
        nothing = np.empty(0)
        return Rows(version, seen, nothing, nothing, nothing, nothing)
    due, asked, published = (_ms(pa.concat_tables(parts).column(name)) for name in _COLUMNS)
    times = [min(seen, prepared.get(path, seen)) for path in paths]
    noted = np.repeat(np.array(times), [part.num_rows for part in parts])
    return Rows(version, seen, due, np.where(np.isnan(asked), due, asked), published, noted)


def _ms(column: pa.ChunkedArray) -> Numbers:
    """Timestamps as ms, NULL as NaN."""
    micros = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
    numbers: Numbers = micros.cast(pa.float64(), safe=False).to_numpy() / 1_000
    return numbers


@dataclass(frozen=True)
class Until:
    """When to end: after so many rows, at a time (`time.monotonic`, s), or when a file appears."""

    rows: int
    at: float
    stop: Path | None = None

    def over(self) -> bool:
        """Whether to end without the rows."""
        return time.monotonic() >= self.at or (self.stop is not None and self.stop.exists())


def observe(table: Path, first: int, until: Until) -> tuple[list[Rows], float]:
    """Watch a table until the end; give what was seen and the longest pause between two looks, s."""
    watch, shelf, found, count = Watch(table, first), PreparedStore(table), list[Rows](), 0
    watch.start()
    shelf.start()
    while count < until.rows:
        try:
            found.append(read(table, *watch.seen.get(timeout=_LOOK_S), shelf.seen))
            count += len(found[-1])
        except Empty:
            if until.over():
                break
    for thread in (watch, shelf):
        thread.ended.set()
        thread.join()
    return found, watch.longest_pause_s


def report(found: list[Rows], measured_from: float, lookahead_ms: float = 0) -> dict[str, Any]:
    """What was seen, as figures; ms throughout.

    Rows that were due when they were published (`deliver_at <= publish_time`) have no lateness: they show how long a
    message takes from its producer to a reader, and so which delays can be on time. What was due before `measured_from`
    is `cold`, the rest `warm`. Rows that were published within the lookahead before they were due, or later, show how
    long it takes to prepare them; some wait for the next step of the schedule's clock, for half a lookahead at most.
    """
    rows = [each for each in found if len(each)]
    if not rows:
        return {"count": 0, "early": 0, "versions": len(found)}
    seen = np.concatenate([np.full(len(each), each.seen) for each in rows])
    due, asked, published, prepared = (
        np.concatenate([getattr(each, name) for each in rows]) for name in ("due", "asked", "published", "prepared")
    )
    at_once, soon = asked <= published, asked - published <= lookahead_ms
    row: dict[str, Any] = {
        "count": len(due),
        "early": int(np.sum((seen < due) | (seen < asked))),
        "versions": len(found),
        "first_version": found[0].version,
        "last_version": found[-1].version,
        "first_seen_ms": round(rows[0].seen),
        "last_seen_ms": round(rows[-1].seen),
        "last_due_ms": round(float(due.max())),
        "most_in_a_second": int(np.unique(seen // _SECOND_MS, return_inverse=False, return_counts=True)[1].max()),
        "by_minute": list(_by_minute(seen[~at_once], (seen - due)[~at_once])),
        "at_once_by_minute": list(_by_minute(seen[at_once], (seen - published)[at_once])),
    }
    for name, phase in {"cold": due < measured_from, "warm": due >= measured_from}.items():
        waited = phase & ~at_once
        row[name] = {"late": spread_of((seen - due)[waited]), "after_deliver_at": spread_of((seen - asked)[waited])}
        row[name]["at_once"] = spread_of((seen - published)[phase & at_once])
        row[name]["to_prepared"] = spread_of((prepared - published)[phase & soon])
    return row


def spread_of(values: Numbers) -> dict[str, float | int]:
    """Count, median, 99th and 99.9th percentile and maximum; only the count where there is nothing."""
    if not len(values):
        return {"count": 0}
    p50, p99, p999 = np.percentile(values, [50, 99, 99.9])
    figures = {"p50": p50, "p99": p99, "p999": p999, "max": values.max()}
    return {"count": len(values)} | {name: round(float(value), 1) for name, value in figures.items()}


def _by_minute(seen: Numbers, late: Numbers) -> Iterator[Mapping[str, float | int]]:
    """Lateness of what became visible in each minute of the run: drift shows here."""
    if not len(seen):
        return
    minutes = ((seen - seen[0]) // _MINUTE_MS).astype(int)
    for minute in np.unique(minutes).tolist():
        yield {"minute": minute, **spread_of(late[minutes == minute])}


def main(arguments: list[str] | None = None) -> int:
    """Observe, and write the report as JSON to standard output."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.support.observer", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--table", type=Path, required=True, help="the folder of deliveries")
    parser.add_argument("--first", type=int, required=True, help="the first version that is awaited")
    parser.add_argument("--rows", type=int, default=sys.maxsize, help="end when so many were seen")
    parser.add_argument("--stop", type=Path, help="end when this file is there")
    parser.add_argument("--timeout", type=float, default=float("inf"), help="end after so many seconds")
    parser.add_argument("--measured-from", type=float, default=0.0, help="what is due from here on is warm (ms UTC)")
    parser.add_argument("--lookahead-ms", type=float, default=0.0, help="of the job that is observed")
    task = parser.parse_args(arguments)
    until = Until(task.rows, time.monotonic() + task.timeout, task.stop)
    found, pause = observe(task.table, task.first, until)
    figures = report(found, task.measured_from, task.lookahead_ms)
    print(json.dumps(figures | {"longest_pause_ms": round(pause * 1_000, 1)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
