"""Commands, a pause and a rate beside live load: how late the load is, and how long they take.

    python -m benchmarks.control [commands|pause|rate ...] [--messages 200000 | --full] [--load 1000] [--json]

A job runs on the wall clock, and a producer sends messages to one topic, of which one in each half second is due at
once. Beside that, a second topic has many messages with another subscription:

- `commands`: they wait for days. A twentieth is looked at, cancelled and taken back, shifted by two hours and taken
  back; what an undo or a shift puts into the index is there when settle says so. One is cancelled by its key. Twenty
  that are due within half a minute are cancelled by one command, when dispatch has taken some of them.
- `pause`: they become due within half a minute, while their subscription is paused; then it goes on.
- `rate`: they are due at one instant, and come within 100 seconds by the rate of their subscription; fewer than a
  million within 30.

Lateness of the load is counted to the commit that made it visible, by the log of `deliveries`: from its due time,
rounded up to a tick of a second, or from when it was sent, if it was due at once.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.live import Run
from benchmarks.support.load import Producer, workloads
from benchmarks.support.machine import describe
from benchmarks.support.processes import usage
from benchmarks.support.report import tell
from benchmarks.support.rows import inbox_table
from benchmarks.support.words import check_names
from pipeline.client.client import Client
from pipeline.client.commanding.commands import Command
from pipeline.client.insight.pending import pending
from pipeline.client.subscribing.policysetting import set_policy
from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from pipeline.delta.deltars import append, open_table, path_of, query
from pipeline.delta.logs.entries import appended, entry, info_of
from pipeline.storage.files import Files
from pipeline.subscriptions.cursors import NEWEST, by_name
from schemas import CURSORS, DELIVERIES, INBOX, MESSAGES, REDELIVERY

KINDS = ("commands", "pause", "rate")
TOPIC, NAME, SHARE = "big", "mail", 20
WHERE = f"entry_id % {SHARE} = 7"
_ROWS, _TICK_MS, _DAY_MS, _SPREAD_MS = 100_000, 1_000, 86_400_000, 30_000
_MILLION, _LONG_S, _SHORT_S = 1_000_000, 100, 30
"""A burst of a million takes so long by its rate, a smaller one less."""
_WARM_S, _LOOK_S, _PATIENCE_S, _QUIET_S = 20, 0.2, 900, 12
_CLOSE, _CLOSE_MS, _APART_MS, _TAKEN, _TAKING_S = 20, 15_000, 1_000, 3, 4
"""Messages that are cancelled when some are about to come: so many, the first one due so long after it is sent, the
others a second after another; so many are released by then, and dispatch has got so long to take them, s."""
_RELEASED = """
    SELECT m.message_key FROM messages m JOIN redelivery r
    ON m.ledger_id = r.ledger_id AND m.entry_id BETWEEN r.first_entry AND r.last_entry
    WHERE m.topic = 'big' AND r.topic = 'big' AND m.message_key IS NOT NULL
"""
_CAME = "SELECT message_key FROM deliveries WHERE topic = 'big' AND message_key IS NOT NULL"
_COLUMNS = ["topic", "subscription", "due_time", "deliver_at", "publish_time", "ledger_id", "entry_id"]


@dataclass(frozen=True)
class Seen:
    """Deliveries of a topic in the order in which they became visible; times in ms UTC.

    Attributes:
        shown: when the commit was made that made each visible.
        due: its due time; of what was due when it was sent, when that was.
        at_once: whether it was due when it was sent.
    """

    shown: np.ndarray
    due: np.ndarray
    at_once: np.ndarray

    @classmethod
    def of(cls, root: str, topic: str) -> Seen:
        """By the log of `deliveries`, which nobody has cut."""
        files, path = Files(), path_of(root, DELIVERIES)
        parts: list[tuple[np.ndarray, ...]] = [(np.empty(0), np.empty(0), np.empty(0, bool))]
        for version in range(open_table(root, DELIVERIES).version() + 1):
            actions = entry(files, path, version) or []
            for each in appended(actions):
                rows = pq.read_table(f"{path}/{each['path']}", columns=_COLUMNS)
                rows = rows.filter(pc.equal(rows.column("topic"), topic))
                due, published = (
                    rows.column(n).cast(pa.int64()).to_numpy() / 1_000 for n in ("due_time", "publish_time")
                )
                shown, at_once = (
                    np.full(rows.num_rows, info_of(actions)["timestamp"], float),
                    due - published < _TICK_MS,
                )
                parts.append((shown, np.where(at_once, published, due), at_once))
        return cls(*(np.concatenate(column) for column in zip(*parts, strict=True)))

    def late(self, begin: float, end: float, *, at_once: bool) -> dict[str, float]:
        """p50, p99 and the most, s, of what was due between two times."""
        mine = (self.due >= begin) & (self.due < end) & (self.at_once == at_once)
        late = (self.shown - self.due)[mine] / 1_000
        if not len(late):
            return {"count": 0, "p50_s": 0.0, "p99_s": 0.0, "max_s": 0.0}
        figures = {"p50_s": np.quantile(late, 0.5), "p99_s": np.quantile(late, 0.99), "max_s": late.max()}
        return {"count": len(late), **{name: round(float(value), 2) for name, value in figures.items()}}


class Beside(Run):
    """A job with live load, and what is done beside it."""

    def __init__(self, folder: Path, load: int, count: int) -> None:
        """Make the warehouse; `count` messages are to be of the other topic."""
        steady = replace(workloads(full=False)["steady"], rate=load, seconds=3_600, low_ms=5_000, high_ms=15_000)
        super().__init__(steady, "delayline", folder)
        subscribe(self._root, Subscription(TOPIC, NAME, tick_ms=100))
        self._count, self._sender, self._over = count, Producer(replace(steady, topics=1), self._root), False
        self._random = np.random.default_rng(steady.seed)

    def measured(self, kind: str) -> dict[str, Any]:
        """Do one of `KINDS`, with load before, meanwhile and after."""
        with self._job() as job:
            self._until_up(job)
            doing: dict[str, Callable[[subprocess.Popen[bytes]], dict[str, Any]]]
            doing = {"commands": self._commands, "pause": self._pause, "rate": self._rate}
            if kind == "commands":
                self._fill(_now() + _DAY_MS, 20 * _DAY_MS)
            producer = Thread(target=self._send, daemon=True)
            producer.start()
            time.sleep(_WARM_S)
            begin = _now()
            figures = doing[kind](job)
            end = _now()
            time.sleep(_QUIET_S)
            self._over = True
            producer.join()
            self._stopped(job)
        load = Seen.of(self._root, "t0")
        late = {name: load.late(begin, end, at_once=once) for name, once in (("delayed", False), ("at once", True))}
        before = load.late(begin - _WARM_S * 500, begin, at_once=True)
        return {"kind": kind, "messages": self._count, "seconds": round((end - begin) / 1_000), **figures} | {
            "late": late,
            "at once before": before,
        }

    def _send(self) -> None:
        """Half a second of the load after the other, until it is over."""
        number, begin, count = 0, time.time(), self._workload.rate // 2
        while not self._over:
            time.sleep(max(0.0, begin + number / 2 - time.time()))
            delays = self._random.integers(self._workload.low_ms, self._workload.high_ms, count) * 1_000
            delays[0] = 0
            now = time.time_ns() // 1_000
            append(self._root, INBOX, self._sender.rows(now, now + delays))
            number += 1

    def _fill(self, first_due: int, spread_ms: int) -> None:
        """Send the messages of the other topic, and wait until they are taken in."""
        random = np.random.default_rng(7)
        before = self._accepted()
        for first in range(0, self._count, _ROWS):
            count = min(_ROWS, self._count - first)
            due = (first_due + random.integers(0, spread_ms + 1, count)) * 1_000
            append(self._root, INBOX, inbox_table(random, pa.repeat(TOPIC, count), _now() * 1_000, due, 100))
        self._until(lambda: self._accepted() >= before + self._count)

    def _accepted(self) -> int:
        found = query("SELECT count(*) AS n FROM t WHERE topic = 'big'", t=open_table(self._root, MESSAGES))
        return int(found[0]["n"])

    def _until(self, look: Callable[[], bool]) -> float:
        """Wait; how long that took, s."""
        begun = time.monotonic()
        while not look():
            if time.monotonic() > begun + _PATIENCE_S:
                raise TimeoutError(self._said())
            time.sleep(_LOOK_S)
        return time.monotonic() - begun

    def _commands(self, _: subprocess.Popen[bytes]) -> dict[str, Any]:
        """Seconds of each command, and until what it moves is in the index."""
        times: dict[str, float] = {}
        span = timedelta(hours=2)
        with Client(self._root) as client:

            def last() -> str:
                return client.commands(limit=1)[0].command_id

            steps: tuple[tuple[str, Callable[[], Command], bool], ...] = (
                ("dry run", lambda: client.cancel(TOPIC, where=WHERE, dry_run=True), False),
                ("cancel", lambda: client.cancel(TOPIC, where=WHERE), False),
                ("undo of cancel", lambda: client.undo(last()), False),
                ("shift", lambda: client.shift(TOPIC, span=span, where=WHERE), True),
                ("undo of shift", lambda: client.undo(last()), True),
            )
            for name, step, moves in steps:
                seen, begun = open_table(self._root, CURSORS).version(), time.monotonic()
                found = step()
                if moves:
                    self._until(lambda seen=seen, n=found.selection.count: self._waiting(seen) >= n)  # type: ignore[misc]
                times[name] = round(time.monotonic() - begun, 1)
                times["named"] = found.selection.count
            return {"commands_s": times, "close": self._close(client)}

    def _close(self, client: Client) -> dict[str, Any]:
        """One cancel by a key, s; and one of what is due in seconds: what it says of that, and what came."""
        before, sent = self._accepted(), _now()
        due = [sent + _CLOSE_MS + number * _APART_MS for number in range(_CLOSE)]
        with client.create_producer(TOPIC) as producer:
            for each in (*due, far := sent + _DAY_MS):
                producer.send_async(b"close", None, partition_key=str(each), deliver_at=each)
        self._until(lambda: self._accepted() > before + _CLOSE and len(self._keys(_RELEASED)) >= _TAKEN)
        taken = self._keys(_RELEASED)
        time.sleep(_TAKING_S)
        client.cancel(TOPIC, where=f"message_key <> '{far}'")
        begun = time.monotonic()
        client.cancel(TOPIC, key=str(far))
        (one,) = client.commands(limit=1)
        by_key_s = round(time.monotonic() - begun, 1)
        time.sleep(max(0.0, due[-1] / 1_000 + _QUIET_S - time.time()))
        outcome, came = client.commands(limit=2)[1], self._keys(_CAME)
        return {
            "by_key_s": by_key_s, "by_key_applied": one.applied, "sent": _CLOSE, "named": outcome.count,
            "applied": outcome.applied, "too_late": outcome.too_late, "came": len(came), "taken": len(taken),
            "taken_came": len({*taken} & {*came}),
        }  # fmt: skip

    def _keys(self, text: str) -> list[str]:
        """The keys that a query finds."""
        tables = {table.name: open_table(self._root, table) for table in (REDELIVERY, DELIVERIES, MESSAGES)}
        return [row["message_key"] for row in query(text, **tables)]

    def _waiting(self, seen: int) -> int:
        """How many wait for another time, if settle has made a batch since a version."""
        table = open_table(self._root, CURSORS)
        found = by_name(query(NEWEST.format(rows="t"), t=table)) if table.version() > seen else {}
        return found[TOPIC, NAME].outstanding().counts.waiting if (TOPIC, NAME) in found else 0

    def _pause(self, job: subprocess.Popen[bytes]) -> dict[str, Any]:
        """Seconds from the end of the pause until all is there, and memory before and with all of it held."""
        set_policy(self._root, TOPIC, NAME, paused=True)
        before, due = usage(job.pid).resident, self._soon()
        self._fill(due, _SPREAD_MS)
        self._until(lambda: self._held() >= self._count)
        held = usage(job.pid).resident
        set_policy(self._root, TOPIC, NAME, paused=False)
        took = self._until(lambda: self._came() >= self._count)
        return {"drained_s": round(took, 1), "disordered": self._disordered()} | {
            "resident_mb": [round(each / (1 << 20)) for each in (before, held, usage(job.pid).resident)]
        }

    def _rate(self, _: subprocess.Popen[bytes]) -> dict[str, Any]:
        """Seconds from the due time until all is there, and what `pending` said of that after ten."""
        rate = max(1, self._count // (_LONG_S if self._count >= _MILLION else _SHORT_S))
        set_policy(self._root, TOPIC, NAME, max_rate=rate)
        due = self._soon()
        self._fill(due, 0)
        time.sleep(max(0.0, due / 1_000 + 10 - time.time()))
        (found,) = pending(self._root, TOPIC, NAME).backlogs
        said = _now() + (found.held_ms or 0)
        self._until(lambda: self._came() >= self._count)
        last = float(Seen.of(self._root, TOPIC).shown.max())
        row = {"rate": rate, "took_s": round((last - due) / 1_000, 1), "said_off_s": round((last - said) / 1_000, 1)}
        return row | {"disordered": self._disordered()}

    def _soon(self) -> int:
        """When so many messages will have been sent and taken in for sure; ms UTC."""
        return _now() + 15_000 + self._count // 20

    def _held(self) -> int:
        return sum(each.held for each in pending(self._root, TOPIC, NAME).backlogs)

    def _came(self) -> int:
        found = query("SELECT count(*) AS n FROM t WHERE topic = 'big'", t=open_table(self._root, DELIVERIES))
        return int(found[0]["n"])

    def _disordered(self) -> int:
        """How many became visible before one that was due earlier."""
        due = Seen.of(self._root, TOPIC).due
        return int((np.diff(due) < 0).sum())


def _now() -> int:
    return time.time_ns() // 1_000_000


def rows(kinds: list[str], load: int, count: int) -> Iterator[dict[str, Any]]:
    """What was measured, a kind after the other, each with a warehouse and a job of its own."""
    for kind in kinds:
        with tempfile.TemporaryDirectory(prefix="delayline-control-") as folder:
            yield Beside(Path(folder), load, count).measured(kind) | {"load": load}


def show(row: dict[str, Any]) -> Iterator[str]:
    """A row for a person."""
    yield f"{row['kind']}: {row['messages']:,} messages beside {row['load']:,} a second, {row['seconds']} s"
    for name, value in row.items():
        if name not in ("kind", "messages", "load", "seconds"):
            yield f"  {name}: {value}"


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.control", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("kinds", nargs="*", metavar="KIND", default=list(KINDS), help=", ".join(KINDS))
    parser.add_argument("--messages", type=int, default=200_000, help="so many beside the load")
    parser.add_argument("--load", type=int, default=1_000, help="so many a second")
    parser.add_argument("--full", action="store_true", help="a million beside the load")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    check_names(parser, "kind", options.kinds, KINDS)
    count = 1_000_000 if options.full else options.messages
    machine = describe("pyspark", "delta-spark", "deltalake", "pyarrow")
    tell(machine, rows(options.kinds, options.load, count), show, as_json=options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
