"""A process to be killed: all stages over a prepared input, under the virtual clock, and a note of each step.

`python -m tests.support.killed ROOT INPUT SETTINGS STEPS [maintain]`: the warehouse, a Parquet file with the columns of
`inbox`, settings as JSON, the file to which each step is noted, and whether tables are maintained at each instant.
Started again, it goes on where it was killed.
"""

from __future__ import annotations

import json
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.client.create import create_all
from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from pipeline.config.options import Options
from pipeline.config.session import Machine, local_session
from pipeline.config.settings import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, Settings, VirtualClock
from pipeline.delta.deltars import arrow_schema
from pipeline.delta.warehouse import Warehouse
from pipeline.service import replay
from pipeline.service.lockstep import reach
from pipeline.service.run import start_all, stop_all
from schemas import INBOX
from tests.support.maintained import sharply

T0 = 1_700_000_000_123
STEP_MS, INSTANTS = 2 * DAY_MS, 13
COUNT, LONGEST_MS, TOO_LONG_MS = 2_000, 20 * DAY_MS, 400 * DAY_MS
SUBSCRIBED = (("a", "fine", 1), ("a", "coarse", HOUR_MS), ("b", "only", MINUTE_MS))
REFUSED = ("negative", "beyond")


def sent(number: int) -> dict[str, Any]:
    """A row of the input, times in ms: published on the way, due at once, soon, weeks later, or refused.

    No two have one publish time: the inbox is written in that order, so it is the same however often that is begun.
    """
    published = T0 + number * 7_919 % COUNT * (STEP_MS * (INSTANTS - 1) // COUNT)
    spread = number * 104_729 % LONGEST_MS
    kinds: tuple[dict[str, int], ...] = (
        {},
        {"deliver_at": published + spread},
        {"deliver_at": (published + spread) // HOUR_MS * HOUR_MS},
        {"deliver_after_ms": spread // 10},
        {"deliver_after_ms": number % 60 * SECOND_MS},
    )
    asked = kinds[number % len(kinds)]
    if number % 50 == 49:
        asked = {"deliver_after_ms": -1} if number % 100 == 49 else {"deliver_after_ms": TOO_LONG_MS}
    return {"topic": "ab"[number % 2], "publish_time": published, "payload": b"%d" % number, **asked}


def accepted(number: int) -> bool:
    """Whether a row of the input is one that is delivered."""
    return number % 50 != 49


def prepare(root: str, source: Path) -> None:
    """Make the warehouse with its subscriptions, and write the input when it is not there."""
    create_all(root, segment_ms=6 * HOUR_MS)
    for topic, name, tick in SUBSCRIBED:
        subscribe(root, Subscription(topic, name, tick_ms=tick, start="latest"))
    if source.exists():
        return
    rows = [sent(number) for number in range(COUNT)]
    for row in rows:
        row |= {name: row[name] * 1_000 for name in ("publish_time", "deliver_at") if name in row}
    pq.write_table(pa.Table.from_pylist(rows, schema=arrow_schema(INBOX)), source)


class Steps:
    """Notes in a file, each on disk before the next thing happens: the process may die at any moment."""

    def __init__(self, path: str) -> None:
        """Append to a file."""
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def __call__(self, step: str, number: int) -> None:
        """Note a step and the number of its batch, or of its instant."""
        os.write(self._file, f"{step} {number}\n".encode())


def reached(path: str) -> int:
    """The number of the first instant that not all stages have reached."""
    lines = Path(path).read_text(encoding="ascii").splitlines()
    return max((int(line.split()[1]) + 1 for line in lines if line.startswith("reached ")), default=0)


def main(root: str, source: str, changes: str, path: str, *more: str) -> None:
    """Go over the course, from where an earlier process was killed."""
    steps = Steps(path)
    steps("started", 0)
    spark = local_session("delayline-killed", Machine(memory="1g"), root)
    warehouse = Warehouse(root, spark)
    spark.sparkContext.setLogLevel("OFF")
    course = replay.ReplayClock(T0, T0 + STEP_MS * (INSTANTS - 1), STEP_MS)
    producer = replay.Producer(warehouse, replay.entering(spark.read.parquet(source), course), course)
    options = Options(VirtualClock(), Settings(**json.loads(changes)), observe=steps)
    running = start_all(warehouse, options)
    steps("up", 0)
    for number, instant in enumerate(course):
        if number >= reached(path):
            reach(running, warehouse, instant, partial(producer.append, number))
            if "maintain" in more:
                sharply(warehouse, STEP_MS, steps)
            steps("reached", number)
    stop_all(running)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
