"""What half of the messages leave behind when they are cancelled, and when they are delivered; after maintenance.

    python -m benchmarks.space [--messages 100000 | --full] [--json]

Two runs on a virtual clock. In both, messages come in four batches, and half of each batch is due within an hour, the
others in three days. In the one run the first half is cancelled by one command, in the other one it is delivered. When
its retention is over, maintenance runs. Sizes are those of the files that belong to each table: maintenance takes the
others off the disk later, by hours of the wall clock. The index is the bytes of indexes in the state of the schedule.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.support.clocked import clocked
from benchmarks.support.held import held
from benchmarks.support.machine import describe
from benchmarks.support.report import tell
from benchmarks.support.rows import inbox_rows
from benchmarks.support.usual import usual_machine
from pipeline.client.client import Client
from pipeline.client.create import create_all
from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from pipeline.config.session import local_session
from pipeline.config.settings import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, Upkeep
from pipeline.config.wallclock import wall_ms
from pipeline.delta.deltars import open_table
from pipeline.delta.warehouse import Warehouse
from pipeline.maintenance.rounds import maintain
from schemas import TABLES

CANCELLED, DELIVERED = KINDS = "cancelled", "delivered"
BEFORE, DECIDED, AFTER = PHASES = "before", "decided", "maintained"
"""All is taken in; the command is given, or the half is delivered; its retention is over and maintenance has run."""
INDEX = "index"
T0, BATCHES, PAYLOAD_BYTES = 1_700_000_000_000, 4, 100
_STEP_MS, _RETAIN_MS, _SOON_MS = 5 * MINUTE_MS, 30 * MINUTE_MS, (30 * MINUTE_MS, HOUR_MS)
_LATER_MS = (3 * DAY_MS, 3 * DAY_MS + HOUR_MS)
_END_MS = BATCHES * _STEP_MS + _SOON_MS[1]
"""After `T0` all of the first half is due by then."""
_MEMORY, _SEED = "2g", 20_261_125


def measured(kind: str, count: int) -> dict[str, Any]:
    """Rows, files and bytes of each table, and bytes of the index, at each of `PHASES`.

    Args:
        kind: one of `KINDS`: what becomes of half of the messages.
        count: messages.
    """
    spark = local_session("delayline bench", usual_machine(_MEMORY))
    spark.sparkContext.setLogLevel("OFF")
    random, found = np.random.default_rng(_SEED), {}
    with tempfile.TemporaryDirectory(prefix="delayline-bench-") as folder:
        root = f"{folder}/warehouse"
        create_all(root)
        subscribe(root, Subscription("t", "s", tick_ms=SECOND_MS))
        with clocked(warehouse := Warehouse(root, spark)) as job:
            for number in range(BATCHES):
                now, half = T0 + number * _STEP_MS, count // BATCHES // 2
                parts = [inbox_rows(random, half, now, delays, PAYLOAD_BYTES) for delays in (_SOON_MS, _LATER_MS)]
                job.reach(now, pa.concat_tables(parts))
            _maintain(warehouse)
            found[BEFORE] = sizes(warehouse)
            if kind == CANCELLED:
                until = datetime.fromtimestamp((T0 + DAY_MS) / 1_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
                with Client(root) as client:
                    client.cancel("t", where=f"due_time < '{until}'")
            else:
                job.reach(T0 + _END_MS)
            found[DECIDED] = sizes(warehouse)
            # Retention counts from what was delivered last; rows of the last batches of a stage stay for its restart.
            # So some messages more come in both runs.
            for number in range(2, 5):
                now = T0 + _END_MS + number * _RETAIN_MS
                job.reach(now, inbox_rows(random, 1, now, (0, 0), PAYLOAD_BYTES))
            _maintain(warehouse)
            found[AFTER] = sizes(warehouse)
    spark.stop()
    return {"kind": kind, "messages": count, "phases": found}


def _maintain(warehouse: Warehouse) -> None:
    """A round of maintenance; another one follows, as it does in a job: it merges what the first one left."""
    kept = Upkeep(retain_ms=_RETAIN_MS, retain_deliveries_ms=_RETAIN_MS, retain_log_ms=0, log_ms=0, files_ms=0)
    for _ in range(2):
        # Times of files have whole seconds on some systems.
        list(maintain(warehouse, kept, wall_ms() + SECOND_MS))


def sizes(warehouse: Warehouse) -> dict[str, dict[str, int]]:
    """Rows, files and bytes of each table that has some, and the bytes of the index."""
    found = {}
    for table in TABLES:
        files = pa.table(open_table(warehouse.root, table).get_add_actions(flatten=True)).select(
            ["num_records", "size_bytes"]
        )
        rows, size = (sum(column.to_pylist()) for column in files.columns)
        if files.num_rows:
            found[table.name] = {"rows": rows, "files": files.num_rows, "bytes": size}
    return found | {INDEX: {"bytes": held(warehouse).size}}


def show(row: dict[str, Any]) -> Iterator[str]:
    """A run for a person."""
    yield f"{row['messages']:,} messages, half of them {row['kind']}"
    phases = row["phases"]
    yield f"  {'':18}" + "".join(f"{f'{name}: rows, files, bytes':>36}" for name in PHASES)
    for name in {name: None for phase in phases.values() for name in phase}:
        cells = [phases[phase].get(name, {}) for phase in PHASES]
        texts = (" ".join(f"{cell.get(kind, 0):>11,}" for kind in ("rows", "files", "bytes")) for cell in cells)
        yield f"  {name:18}" + "".join(f"{text:>36}" for text in texts)


def rows(count: int) -> Iterator[dict[str, Any]]:
    """Both runs."""
    for kind in KINDS:
        yield measured(kind, count)


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.space", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--messages", type=int, default=100_000, help="so many in each run")
    parser.add_argument("--full", action="store_true", help="a million in each run")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    count = 1_000_000 if options.full else options.messages
    tell(describe("pyspark", "delta-spark", "pyarrow"), rows(count), show, as_json=options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
