"""Windows of topics: what it costs ingest to move a million messages to the next opening, and how evenly they are due.

    python -m benchmarks.windows [--messages 1000000] [--rounds 5] [--json]

The same rows of the inbox are taken in by ingest, without Spark, by three warehouses in turn: one whose topic has no
window, one whose window is in a zone of the topic, and one where a property says the zone of each recipient. All are
sent at night, and spread over ten minutes. Times are those of the batch, by the wall and of the processor, the least of
the rounds, each of which begins with another warehouse: memory that the system has to find first may cost a batch a
second more. They are compared with a batch without a window, whose messages ask for due times that are spread over ten
minutes; one whose messages are due at once is measured beside it.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.support.machine import describe
from benchmarks.support.report import tell
from pipeline.client.create import create_all
from pipeline.client.subscribing.policysetting import set_policy
from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from pipeline.config.settings import MINUTE_MS, Settings
from pipeline.delta.deltars import append, arrow_of, open_table
from pipeline.storage.arrays import IntArray, arrow_schema, completed
from pipeline.testing.stages import Stages
from schemas import INBOX, MESSAGES
from state.windows import place_hashes

MESSAGES_SENT, ROUNDS, SPREAD_MS, PAYLOAD_BYTES = 1_000_000, 5, 10 * MINUTE_MS, 100
NIGHT = datetime(2026, 7, 1, 23, tzinfo=UTC)
ZONES = ("Europe/Rome", "America/New_York", "Asia/Tokyo", "Australia/Lord_Howe")
"""Of recipients, in turn; in New York the window is open, and nobody there has to wait."""
WINDOW = "08:00-18:00"
USUAL, AT_ONCE = "no window, spread as sent", "no window, due at once"
CASES: Mapping[str, Mapping[str, Any] | None] = {
    USUAL: None,
    AT_ONCE: None,
    "zone of the topic": {"window_zone": ZONES[0]},
    "zones of recipients": {"window_zone": f"property:zone, {ZONES[0]}"},
}
_DUE = "SELECT arrow_cast(due_time, 'Int64') / 1000 AS due, properties['zone'] AS zone FROM messages"
_EPOCH = datetime.fromtimestamp(0, UTC)


def spread(rows: pa.Table) -> pa.Table:
    """The same rows, each with a due time of its own in the next morning."""
    places = place_hashes(np.zeros(rows.num_rows, np.int64), np.arange(rows.num_rows))
    due = _ms(NIGHT) + 7 * 60 * MINUTE_MS + (places * SPREAD_MS >> 32)
    field = rows.schema.field("deliver_at")
    return rows.set_column(rows.schema.get_field_index("deliver_at"), field, pa.array(due * 1_000).cast(field.type))


def rows_of(count: int) -> pa.Table:
    """Rows of the inbox: due at once, with a key and two properties."""
    numbers = np.arange(count)
    zones = pa.array(ZONES).take(pa.array(numbers % len(ZONES)))
    pairs = _turns(pa.repeat("campaign", count), zones)
    names = pa.array(["name", "zone"]).take(pa.array(np.tile([0, 1], count)))
    properties = pa.MapArray.from_arrays(pa.array(np.arange(0, 2 * count + 1, 2), pa.int32()), names, pairs)
    payload = pa.array([b"x" * PAYLOAD_BYTES]).take(pa.array(np.zeros(count, np.int64)))
    columns = {"message_key": pc.cast(pa.array(numbers), pa.string()), "properties": properties, "payload": payload}
    return completed(arrow_schema(INBOX.columns), columns, {"topic": "t"}, count)


def _turns(first: pa.Array, second: pa.Array) -> pa.Array:
    """Values of two arrays in turn."""
    order = np.arange(2 * len(first)).reshape(2, -1).T.ravel()
    return pa.concat_arrays([first, second]).take(pa.array(order))


def once(rows: pa.Table, policies: Mapping[str, Any] | None) -> tuple[float, float, pa.Table]:
    """Seconds of a batch that takes rows in, by the wall and of the processor; when they are due, and their zones."""
    with tempfile.TemporaryDirectory(prefix="delayline-bench-") as folder:
        stages = Stages(f"{folder}/warehouse", Settings(driver_rows=2 * rows.num_rows, max_bytes=1 << 40))
        create_all(stages.root)
        subscribe(stages.root, Subscription("t", "s", tick_ms=1))
        if policies is not None:
            set_policy(stages.root, "t", window=WINDOW, window_spread_ms=SPREAD_MS, **policies)
        stages.instant = _ms(NIGHT)
        stages.ingest()
        append(stages.root, INBOX, rows)
        stages.instant += MINUTE_MS
        begun, used = time.perf_counter(), time.process_time()
        stages.ingest()
        seconds, cpu = time.perf_counter() - begun, time.process_time() - used
        due = arrow_of(_DUE, messages=open_table(stages.root, MESSAGES))
        # DataFusion gives views of texts.
        return seconds, cpu, due.set_column(1, "zone", due.column("zone").cast(pa.string()))


def figures(case: str, due: pa.Table) -> dict[str, Any]:
    """What is told of a case, less its times."""
    sent, found = _ms(NIGHT) + MINUTE_MS, dict[str, Any]({"outside": 0, "uneven": 0.0})
    for zone in ZONES if CASES[case] is not None else ():
        here = due.filter(pc.equal(due.column("zone"), zone)).column("due").to_numpy()
        clock = ZONES[0] if case == "zone of the topic" else zone
        found["outside"] += int((~_inside(here, ZoneInfo(clock))).sum())
    if CASES[case] is not None:
        waits = due.column("due").to_numpy()
        found["uneven"] = round(_uneven(waits[waits > sent]), 4)
        found["moved"] = int((waits > sent).sum())
    return {"case": case, "messages": due.num_rows} | found


def _inside(times: IntArray, zone: ZoneInfo) -> Any:  # noqa: ANN401 - flags
    """Whether a clock shows a time of the window, looked at for each second that there is."""
    seconds, back = np.unique(times // 1_000, return_inverse=True)
    shown = [(_EPOCH + timedelta(seconds=each)).astimezone(zone) for each in seconds.tolist()]
    return np.array([8 <= each.hour < 18 for each in shown])[back]


def _uneven(times: IntArray) -> float:
    """How far the seconds of an opening are from each other: the most by which one differs from the mean."""
    worst = 0.0
    minutes = np.unique(times // MINUTE_MS)
    openings = np.split(minutes, np.flatnonzero(np.diff(minutes) > 1) + 1)
    for each in openings:
        first = int(each[0]) * MINUTE_MS
        here = times[(times >= first) & (times < first + SPREAD_MS)]
        counts = np.bincount((here - first) // 1_000, minlength=SPREAD_MS // 1_000)
        worst = max(worst, float(np.abs(counts / counts.mean() - 1).max()))
    return worst


def measured(count: int, rounds: int) -> Iterator[dict[str, Any]]:
    """The figures of each case."""
    rows, names = rows_of(count), list(CASES)
    asked = spread(rows)
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    due: dict[str, pa.Table] = {}
    # The first batch of a process pays for what is loaded then.
    once(rows, CASES[names[-1]])
    for number in range(rounds):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            *taken, due[name] = once(asked if name == USUAL else rows, CASES[name])
            times[name].append((taken[0], taken[1]))
    usual = _least(times[names[0]])
    for name in names:
        seconds = _least(times[name])
        by_usual = [round(own / other, 3) for own, other in zip(seconds, usual, strict=True)]
        measured = {"seconds": round(seconds[0], 3), "cpu_seconds": round(seconds[1], 3), "by_usual": by_usual}
        yield figures(name, due[name]) | measured


def _least(times: Sequence[tuple[float, float]]) -> tuple[float, float]:
    wall, cpu = zip(*times, strict=True)
    return min(wall), min(cpu)


def _ms(at: datetime) -> int:
    return (at - _EPOCH) // timedelta(milliseconds=1)


def shown(row: Mapping[str, Any]) -> Iterator[str]:
    """A row for people."""
    wall, cpu = row["by_usual"]
    yield (
        f"{row['case']}: {row['messages']:,} in {row['seconds']} s, {row['cpu_seconds']} s of processors; "
        f"{wall} and {cpu} times those of what is spread as sent"
    )
    if "moved" in row:
        yield (
            f"  {row['moved']:,} moved; {row['outside']:,} outside; "
            f"the second that differs most from the mean by {100 * row['uneven']:.2f} %"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Print machine and figures; give the exit status."""
    parser = argparse.ArgumentParser(description="What windows of topics cost ingest, and how even they are.")
    parser.add_argument("--messages", type=int, default=MESSAGES_SENT, help="so many are sent")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="so many times each case is measured")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    machine = describe("deltalake", "pyarrow", "numpy")
    tell(machine, measured(options.messages, options.rounds), shown, as_json=options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
