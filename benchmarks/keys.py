"""Keys: what it costs to let no two messages with one key wait, and that none do.

    python -m benchmarks.keys [--waiting 10000000] [--messages 200000] [--rounds 5] [--seconds 3600] [--json]

Three things are measured. *index*: so many messages with distinct keys wait; then batches come of 20,000 messages, half
of which have a key that waits. *ingest*: a batch of messages is taken in, without Spark, when as many wait and half of
them are to be replaced; in turn by warehouses with the policy, without it, and where another topic has it. Times are
those of the batch, medians of the rounds. *extend*: a key that is sent each second for so long, to come 30 s later, and
at the latest five minutes after the first.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.support.machine import describe
from benchmarks.support.report import tell
from pipeline.client.create import create_all
from pipeline.client.insight.pending import pending
from pipeline.client.subscribing.policysetting import set_policy
from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from pipeline.config.settings import HOUR_MS, MINUTE_MS, SECOND_MS, Settings
from pipeline.delta.deltars import append, open_table, query
from pipeline.storage.arrays import IntArray, arrow_schema, completed
from pipeline.testing.stages import Stages
from schemas import DELIVERIES, INBOX
from state.buckets import MAX_TIME
from state.keys import NOBODY, KeyHashes, Waiting, WaitingKeys

WAITING, MESSAGES_SENT, ROUNDS = 10_000_000, 200_000, 5
BATCH, BATCHES, PAYLOAD_BYTES = 20_000, 20, 100
LONGEST_MS, QUIET_MS = 5 * MINUTE_MS, 30 * SECOND_MS
USUAL, OTHER, UNIQUE = "no policy", "policy of another topic", "replace"
T0 = 2_000_000_000_000
_SALT = b"of the benchmark"


def index(waiting: int) -> dict[str, Any]:
    """What keys of so many messages take, and how many are looked up and changed in a second."""
    before, keys, place = _resident(), WaitingKeys(), 0
    begun = time.perf_counter()
    while place < waiting:
        count = min(5 * BATCH, waiting - place)
        keys.change(NOBODY, _waiting(np.arange(place, place + count), place), T0)
        place += count
    filled, generator = time.perf_counter() - begun, np.random.default_rng(7)
    looks, changes, met = list[float](), list[float](), 0
    for _ in range(BATCHES):
        own = np.append(generator.choice(waiting, BATCH // 2, replace=False), np.arange(place, place + BATCH // 2))
        new = _waiting(own, place)
        begun = time.perf_counter()
        _, found = keys.find(new.keys)
        looked = time.perf_counter()
        keys.change(found, new, T0)
        looks.append(looked - begun)
        changes.append(time.perf_counter() - looked)
        place, met = place + BATCH, met + len(found.keys)
    return {
        "what": "index",
        "waiting": waiting,
        "bytes": keys.nbytes,
        "resident_bytes": _resident() - before,
        "filled_a_second": round(waiting / filled),
        "looked_up_a_second": round(BATCH / median(looks)),
        "changed_a_second": round(BATCH / median(changes)),
        "met": met,
        "expected": BATCHES * BATCH // 2,
    }


def _waiting(numbers: IntArray, place: int) -> Waiting:
    hashes = KeyHashes.of((b"order-%d" % number for number in numbers.tolist()), _SALT)
    places = np.arange(place, place + len(numbers))
    return Waiting(hashes, places, np.full(len(numbers), T0 + HOUR_MS), np.full(len(numbers), MAX_TIME))


def _resident() -> int:
    """Bytes of memory that the process has at most had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1_024


def rows_of(first: int, count: int, new: int) -> pa.Table:
    """Rows of the inbox with distinct keys, from a number on; the last `new` of them have keys that nobody else has."""
    numbers = np.arange(first, first + count)
    numbers[count - new :] += 1 << 40
    payload = pa.array([b"x" * PAYLOAD_BYTES]).take(pa.array(np.zeros(count, np.int64)))
    due = pa.array((T0 + HOUR_MS + numbers % HOUR_MS) * 1_000).cast(
        arrow_schema(INBOX.columns).field("deliver_at").type
    )
    columns = {"message_key": pc.cast(pa.array(numbers), pa.string()), "deliver_at": due, "payload": payload}
    return completed(arrow_schema(INBOX.columns), columns, {"topic": "t"}, count)


def ingest(case: str, count: int) -> dict[str, Any]:
    """Seconds of a batch that takes so many messages in, half of which have the key of one that waits."""
    with tempfile.TemporaryDirectory(prefix="delayline-bench-") as folder:
        stages = Stages(f"{folder}/warehouse", Settings(driver_rows=4 * count, max_bytes=1 << 40))
        create_all(stages.root)
        subscribe(stages.root, Subscription("t", "s", tick_ms=1))
        if case != USUAL:
            set_policy(stages.root, "t" if case == UNIQUE else "other", unique="replace")
        stages.instant = T0
        append(stages.root, INBOX, rows_of(0, count, 0))
        stages.ingest()
        append(stages.root, INBOX, rows_of(0, count, count // 2))
        stages.instant += MINUTE_MS
        begun, used = time.perf_counter(), time.process_time()
        stages.ingest()
        seconds, cpu = time.perf_counter() - begun, time.process_time() - used
        (backlog,) = pending(stages.root).backlogs
        return {"seconds": seconds, "cpu": cpu, "pending": backlog.count}


def measured(waiting: int, count: int, rounds: int, seconds: int) -> Iterator[dict[str, Any]]:
    """The figures."""
    yield index(waiting)
    cases, found = [USUAL, OTHER, UNIQUE], dict[str, list[dict[str, Any]]]()
    # The first batch of a process pays for what is loaded then.
    ingest(UNIQUE, count)
    for number in range(rounds):
        for case in cases[number % 3 :] + cases[: number % 3]:
            found.setdefault(case, []).append(ingest(case, count))
    usual = {name: median(each[name] for each in found[USUAL]) for name in ("seconds", "cpu")}
    for case in cases:
        own = {name: median(each[name] for each in found[case]) for name in ("seconds", "cpu")}
        by_usual = [round(own[name] / usual[name], 3) for name in own]
        told = {"messages": count, "a_second": round(count / own["seconds"]), "by_usual": by_usual}
        yield {"what": "ingest", "case": case, "pending": found[case][0]["pending"], **told}
    yield extend(seconds)


def extend(seconds: int) -> dict[str, Any]:
    """When a key comes that is sent each second for so long, by a clock that is turned."""
    with tempfile.TemporaryDirectory(prefix="delayline-bench-") as folder:
        stages = Stages(f"{folder}/warehouse")
        create_all(stages.root)
        subscribe(stages.root, Subscription("t", "s", tick_ms=1))
        set_policy(stages.root, "t", unique="extend", unique_max_wait_ms=LONGEST_MS)
        row = completed(
            arrow_schema(INBOX.columns),
            {"deliver_after_ms": pa.array([QUIET_MS])},
            {"topic": "t", "message_key": "page 7"},
            1,
        )
        for instant in range(T0, T0 + seconds * SECOND_MS, SECOND_MS):
            stages.instant = instant
            append(stages.root, INBOX, row)
            stages.work()
        stages.instant = T0 + seconds * SECOND_MS + HOUR_MS
        stages.work()
        text = (
            "SELECT arrow_cast(due_time, 'Int64') / 1000 AS due, arrow_cast(released_at, 'Int64') / 1000 AS at FROM t"
        )
        rows = query(f"{text} ORDER BY 1", t=open_table(stages.root, DELIVERIES))
    due = [each["due"] - T0 for each in rows]
    late = max((each["at"] - each["due"] for each in rows[:-1]), default=0)
    return {
        "what": "extend",
        "sent": seconds,
        "came": len(due),
        "apart_ms": sorted(set(np.diff([0, *due]).tolist())),
        "late_ms": late,
    }


def shown(row: Mapping[str, Any]) -> Iterator[str]:
    """A row for people."""
    match row["what"]:
        case "index":
            yield (
                f"index: {row['waiting']:,} wait in {row['bytes'] / 1e6:.1f} MB (the process grew by "
                f"{row['resident_bytes'] / 1e6:.0f} MB at most); a second {row['filled_a_second']:,} put in, "
                f"{row['looked_up_a_second']:,} looked up, {row['changed_a_second']:,} changed; "
                f"{row['met']:,} of {row['expected']:,} met"
            )
        case "ingest":
            wall, cpu = row["by_usual"]
            yield (
                f"ingest, {row['case']}: {row['messages']:,} at {row['a_second']:,} a second, {wall} and {cpu} times "
                f"the time and the processors of no policy; {row['pending']:,} wait"
            )
        case _:
            came = f"{row['came']} came, {row['apart_ms']} ms apart, {row['late_ms']} ms late"
            yield f"extend: {row['sent']:,} sent, {came}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print machine and figures."""
    parser = argparse.ArgumentParser(description="What keys cost, and that no two messages with one wait.")
    parser.add_argument("--waiting", type=int, default=WAITING, help="so many wait")
    parser.add_argument("--messages", type=int, default=MESSAGES_SENT, help="so many are a batch of ingest")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="so many times each case is measured")
    parser.add_argument("--seconds", type=int, default=HOUR_MS // SECOND_MS, help="so long a key is sent")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    machine = describe("deltalake", "pyarrow", "numpy")
    rows = measured(options.waiting, options.messages, options.rounds, options.seconds)
    tell(machine, rows, shown, as_json=options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
