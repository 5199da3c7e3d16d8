"""A job without Spark, late on purpose: for tests of what measures jobs."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pipeline.delta.deltars import append, open_table, query, rows_of
from schemas import DELIVERIES, INBOX, MESSAGES, Table

Row = dict[str, Any]


class Job:
    """Takes what is in the inbox, and hands each message over so long after it was due."""

    def __init__(self, root: str, late: timedelta) -> None:
        self._root, self._late, self._batch = root, late, 0
        self._waiting, self._known = list[Row](), set[bytes]()

    def step(self, now: datetime) -> None:
        """Take, and hand over what has waited long enough."""
        # Not by `to_pyarrow_table`: its threads ask Python for files, and abort a process that ends meanwhile.
        inbox = query("SELECT * FROM inbox", inbox=open_table(self._root, INBOX))
        fresh = [row for row in inbox if row["payload"] not in self._known]
        if fresh:
            self._known |= {row["payload"] for row in fresh}
            numbered = [
                row | {"ledger_id": self._batch, "entry_id": place, "due_time": row["deliver_at"], "parked": False}
                for place, row in enumerate(fresh)
            ]
            self._append(MESSAGES, numbered, {})
            self._waiting += numbered
        due = [row for row in self._waiting if row["due_time"] + self._late <= now]
        if due:
            self._waiting = [row for row in self._waiting if row["due_time"] + self._late > now]
            columns = {"subscription": "s0", "life": 1, "released_at": now, "redelivery_count": 0, "cause": "due"}
            self._append(DELIVERIES, due, columns | {"sequence": 1})
        self._batch += 1

    def _append(self, table: Table, rows: list[Row], more: Row) -> None:
        append(self._root, table, rows_of(table, [row | more | {"batch_id": self._batch} for row in rows]))


def main() -> int:
    """Run until SIGTERM, and end between two steps."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--late-ms", type=int, required=True)
    parser.add_argument("--profile", required=True)
    parser.add_argument("--warehouse", required=True)
    options = parser.parse_args()
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    job = Job(options.warehouse, timedelta(milliseconds=options.late_ms))
    Path(options.warehouse, "_checkpoints", "plain", "offsets").mkdir(parents=True)
    while not stop.wait(0.02):
        job.step(datetime.now(UTC))
    return 0


if __name__ == "__main__":
    sys.exit(main())
