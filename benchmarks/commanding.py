"""Benchmark of commands: half a million of ten million pending messages are cancelled or shifted, and taken back.

    python -m benchmarks.commanding [--messages 10000000] [--json]

The tables are made first, by delta-rs; no stage runs. What is timed is the client: from the call to the commit, from
which on dispatch leaves out what is cancelled; `cancel by key` includes a look at what became of it. `fold` is what
dispatch does with the rows, once for each new version. `put in the index` is a batch of settle, after which what was
shifted is on its way: then the command is applied.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
from deltalake import write_deltalake

from benchmarks.support.machine import describe
from benchmarks.support.report import tell
from pipeline.client.client import Client
from pipeline.client.create import create_all
from pipeline.client.insight.pending import pending
from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from pipeline.config.options import nobody
from pipeline.config.session import Machine, local_session
from pipeline.delta.deltars import append, arrow_of, open_table, rows_of
from pipeline.delta.warehouse import Warehouse
from pipeline.dispatch.withdrawnlog import WithdrawnLog
from pipeline.settle.stage import Settle
from pipeline.storage.arrays import arrow_schema
from pipeline.subscriptions.commands import READ, withdrawals
from schemas import COMMANDS, MESSAGES, SEGMENTS
from state.units import Ms

PER_FILE, PER_LEDGER, SHARES = 500_000, 50_000, 20
TOPIC, SUBSCRIPTION = "flights", "mail"
WHERE = "properties['airline'] = 'A7'"
START_MS, _WEEK_MS = 1_900_000_000_000, 7 * 86_400_000


def fill(root: str, count: int, span_ms: int = _WEEK_MS) -> None:
    """Make a warehouse with so many messages that wait, due within a span of time, one in `SHARES` of each airline."""
    listener = Subscription(TOPIC, SUBSCRIPTION, tick_ms=1)
    create_all(root)
    subscribe(root, listener)
    lay_down(root, listener, count, span_ms)


def lay_down(root: str, listener: Subscription, count: int, span_ms: int) -> None:
    """Put so many messages into a warehouse, as if ingest had taken them for a subscription; no stage has begun yet."""
    joined = {"name": listener.name, "life": 0, "tick_ms": listener.tick_ms}
    marker = {"topic": listener.topic, "count": 0, "kind": "marker", "batch_id": 0, "first_ledger": 0, "marker": 1}
    append(root, SEGMENTS, rows_of(SEGMENTS, [marker | {"subscriptions": [joined]}]))
    draw = np.random.default_rng(20_261_125)
    for first in range(0, count, PER_FILE):
        rows = messages(draw, first, min(PER_FILE, count - first), listener.topic, span_ms)
        write_deltalake(open_table(root, MESSAGES), rows, mode="append")


def messages(
    draw: np.random.Generator, first: int, count: int, topic: str = TOPIC, span_ms: int = _WEEK_MS
) -> pa.Table:
    """Messages of one batch, numbered by due time as ingest does."""
    schema, place = arrow_schema(MESSAGES.columns), np.arange(count)
    due = np.sort(START_MS + draw.integers(0, span_ms, count)) * 1_000
    airlines = [[("airline", f"A{each}")] for each in draw.integers(0, SHARES, count).tolist()]
    columns = {
        "topic": pa.repeat(topic, count),
        "ledger_id": pa.array((first + place) // PER_LEDGER),
        "entry_id": pa.array((first + place) % PER_LEDGER),
        "message_key": pa.array([f"flight-{first + each}" for each in place.tolist()]),
        "properties": pa.array(airlines, schema.field("properties").type),
        "publish_time": pa.array(np.full(count, (START_MS - 1) * 1_000)),
        "deliver_at": pa.array(due),
        "due_time": pa.array(due),
        "parked": pa.repeat(pa.scalar(value=True), count),
        "batch_id": pa.repeat(first // PER_FILE, count),
        "payload": pa.array([b"x" * 100] * count, pa.binary()),
    }
    made = (columns.get(field.name, pa.nulls(count)).cast(field.type) for field in schema)
    return pa.Table.from_arrays(list(made), schema=schema)


@dataclass(frozen=True)
class Stages:
    """What stages do with commands.

    Attributes:
        settle: lets settle take a batch; how many positions wait for another time then.
        look: lets dispatch look at what was commanded; how many positions it leaves out.
    """

    settle: Callable[[], int]
    look: Callable[[], int]


def rows(count: int, begun: Callable[[str], Stages] | None = None) -> Iterator[dict[str, Any]]:
    """What each command took, and how many messages it named.

    Args:
        count: so many messages wait.
        begun: gives the stages of a warehouse; None: they are left out.
    """
    with TemporaryDirectory() as folder:
        root = str(Path(folder) / "warehouse")
        fill(root, count)
        with Client(root) as client:
            middle = f"flight-{count // 2}"
            yield _timed("pending", lambda: pending(root).backlogs[0].count)
            yield _timed("dry run", lambda: client.cancel(TOPIC, where=WHERE, dry_run=True).selection.count)
            yield _timed("dry run by key", lambda: client.cancel(TOPIC, key=middle, dry_run=True).selection.count)
            yield _timed("cancel by key", lambda: _applied(client, middle))
            done = client.commands(limit=1)[0]
            yield _timed("cancel", lambda: client.cancel(TOPIC, where=WHERE).selection.count)
            yield _timed("fold", lambda: _fold(root))
            yield _timed("pending again", lambda: pending(root).backlogs[0].count)
            found = client.commands()
            yield _timed("commands", lambda: sum(each.applied for each in client.commands()))
            last = next(each.command_id for each in found if each.command_id != done.command_id)
            yield _timed("undo", lambda: client.undo(last).selection.count)
            stages = None if begun is None else begun(root)
            later = partial(client.shift, TOPIC, span=timedelta(hours=2), where=WHERE)
            yield _timed("dry run of shift", lambda: later(dry_run=True).selection.count)
            yield _timed("shift", lambda: later().selection.count)
            yield from [] if stages is None else [_timed("put in the index", stages.settle)]
            yield _timed("fold with shift", lambda: _fold(root))
            yield _timed("pending shifted", lambda: pending(root).backlogs[0].count)
            shifted = client.commands(limit=1)[0].command_id
            yield _timed("undo of shift", lambda: client.undo(shifted).selection.count)
            if stages is not None:
                yield _timed("put in the index", stages.settle)
                stages.look()
                client.cancel(TOPIC, key=f"flight-{count // 3}")
                yield _timed("fold of one more", stages.look)


def _applied(client: Client, key: str) -> int:
    """Cancel what has a key, and look what became of that: so many will come to nobody for sure."""
    command = client.cancel(TOPIC, key=key).command_id
    return next(each.applied for each in client.commands(limit=1) if each.command_id == command)


def _fold(root: str) -> int:
    said = arrow_of(f"SELECT {', '.join(READ)} FROM t", t=open_table(root, COMMANDS))  # noqa: S608 - our own words
    schema = arrow_schema(COMMANDS.columns)
    typed = said.cast(pa.schema([schema.field(name) for name in READ]))
    return sum(len(each) for each in withdrawals(typed).left_out().values())


def stages_of(root: str) -> Stages:
    """Stages on a warehouse, which are begun when nobody measures."""
    spark = local_session("delayline bench", Machine(memory="4g"))
    settle, log = Settle(Warehouse(root, spark), nobody), WithdrawnLog(Warehouse(root, spark))

    def step() -> int:
        held = 0
        while settle.step(Ms(START_MS), patient=False):
            held = sum(each.outstanding.counts.waiting for each in settle._opened.values())  # noqa: SLF001 - to count
        return held

    def look() -> int:
        return sum(len(each) for each in log.look().parts.values())

    step()
    return Stages(step, look)


def _timed(name: str, call: Callable[[], int]) -> dict[str, Any]:
    begun = time.perf_counter()
    count = call()
    return {"what": name, "messages": count, "seconds": time.perf_counter() - begun}


def show(row: dict[str, Any]) -> Iterator[str]:
    """A row for a person."""
    yield f"  {row['what']:17} {row['messages']:>10,} messages {row['seconds']:8.2f} s"


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.commanding", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--messages", type=int, default=10_000_000, help="so many wait")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    tell(describe("deltalake", "pyarrow"), rows(options.messages, stages_of), show, as_json=options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
