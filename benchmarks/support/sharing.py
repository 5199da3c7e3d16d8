"""What the benchmark of consuming runs with many consumers: they come and go, one is killed, and most is settled."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from itertools import pairwise
from multiprocessing import get_context
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from benchmarks.support.consumed import NAMES, TOPIC, Run, open_of, percentiles
from benchmarks.support.leases import Unowned
from benchmarks.support.processes import usage
from pipeline.client.choices import ConsumerType
from pipeline.client.client import Client
from pipeline.client.consuming.acknowledgingrows import acknowledge
from pipeline.client.exceptions import Timeout
from pipeline.client.producing.inbox import OutgoingMessage, send
from pipeline.delta.deltars import arrow_of, open_table, query
from schemas import CONSUMER_EVENTS, CURSORS, DELIVERIES

LEASE_S, _LEDGER = 10, 1 << 31
_LOOK_MS, _SEND_S, _PIECE, _END_S = 500, 0.25, 1_000_000, 60
_PACE = 10_000
"""So many messages a second are delivered and settled at least, or something is wrong."""
_CURSOR = """
    SELECT bytes FROM cursors c JOIN
        (SELECT block, MAX(batch_id) AS batch_id FROM cursors GROUP BY block) n USING (block, batch_id)
"""
_DELIVERED = "SELECT topic, subscription, life, ledger_id, entry_id, redelivery_count FROM deliveries"
Figures = dict[str, Any]
Seen = npt.NDArray[np.int64]
"""Rows of consumers: key, number within the key, when it was received (us), who received it, when it was sent (us)."""


class Shared(Run):
    """Messages with keys are sent at a rate, due at once; consumers in processes of their own acknowledge them."""

    def __init__(self, workload: dict[str, Any], folder: Path) -> None:
        """Make the warehouse."""
        super().__init__(workload, folder, NAMES[0])
        self.sent = 0

    @contextmanager
    def workers(self) -> Iterator[list[SpawnProcess]]:
        """Consumer processes, until the end of the block; then they close."""
        context = get_context("spawn")
        ended = context.Event()
        words = [(self.root, str(self.folder / f"seen-{n}"), n, self.workload, ended) for n in range(self._processes)]
        started = [context.Process(target=work, args=each) for each in words]
        for each in started:
            each.start()
        try:
            yield started
        finally:
            ended.set()
            for each in started:
                each.join(_END_S)
                each.kill()

    def send(self, seconds: float) -> None:
        """Send for so long; each message says its key, and how many of this key came before."""
        begin, keys = time.monotonic(), self.workload["keys"]
        count = round(self.workload["rate"] * _SEND_S)
        for step in range(round(seconds / _SEND_S)):
            time.sleep(max(0.0, begin + step * _SEND_S - time.monotonic()))
            numbers = range(self.sent, self.sent + count)
            now, said = datetime.now(UTC), ((n % keys, n // keys) for n in numbers)
            messages = [
                OutgoingMessage(TOPIC, f"{key} {n}".encode(), key=str(key), publish_time=now) for key, n in said
            ]
            send(self.root, messages)
            self.sent += count

    def seen(self) -> Seen:
        """What all consumers saw, in the order in which they received it."""
        text = "".join(path.read_text() for path in sorted(self.folder.glob("seen-*")))
        rows = np.array([line.split() for line in text.splitlines()] or np.empty((0, 5)), np.int64)
        return rows[np.argsort(rows[:, 2], kind="stable")]

    def end(self, job: subprocess.Popen[bytes]) -> None:
        """Wait until all that was sent was received, and nothing is open; what never comes is counted as missing."""
        with suppress(TimeoutError):
            self.until(lambda: self._received() >= self.sent and set(open_of(self.root).values()) == {0}, job, _END_S)

    def _received(self) -> int:
        return len(np.unique(self.seen()[:, :2], axis=0))

    @property
    def _processes(self) -> int:
        return int(self.workload["processes"])


class Joining(Shared):
    """Consumers of one key-shared subscription join and leave all the time."""

    def measure(self) -> Figures:
        """Send while they come and go, wait until all is settled, look at the order of each key."""
        with self.job() as job, self.workers():
            self.until(lambda: bool(list(self.folder.glob("seen-*"))), job)
            time.sleep(self.workload["warm_s"])
            watch = Unowned(self.root, (TOPIC, NAMES[0]))
            begun, before = time.monotonic(), open_table(self.root, CONSUMER_EVENTS).version()
            cpu = usage(job.pid).cpu_s
            with watch:
                self.send(self.workload["seconds"])
                self.end(job)
            took, cpu = time.monotonic() - begun, usage(job.pid).cpu_s - cpu
            commits = open_table(self.root, CONSUMER_EVENTS).version() - before
        rows = self.seen()
        return self._order(rows) | {
            "slot without owner, s at most": round(watch.longest, 1),
            "commits of consumers a second": round(commits / took, 1),
            "consumers that joined": len(set(rows[:, 3].tolist())),
            "sent to received, s p50 p99": percentiles((rows[:, 2] - rows[:, 4]) / 1e6),
            "cpu_s_per_minute of the job": round(cpu * 60 / took),
        }

    def _order(self, rows: Seen) -> Figures:
        numbers: dict[int, list[int]] = defaultdict(list)
        for key, number, _, _, _ in rows.tolist():
            numbers[key].append(number)
        broken = sum(b < a for each in numbers.values() for a, b in pairwise(each))
        got = {(key, number) for key, number, _, _, _ in rows.tolist()}
        return {
            "received": len(rows),
            "missing": self.sent - len(got),
            "handed out twice": len(rows) - len(got),
            "out of order in their key": broken,
        }


class Killed(Shared):
    """One of two consumer processes is killed while messages come."""

    def measure(self) -> Figures:
        """Kill it in the middle; how long the messages took that it would have had, or had and did not settle."""
        with self.job() as job, self.workers() as workers:
            self.until(lambda: len(list(self.folder.glob("seen-*"))) == self._processes, job)
            time.sleep(self.workload["warm_s"])
            self.send(self.workload["seconds"])
            os.kill(workers[0].pid or 0, signal.SIGKILL)
            killed = time.time()
            self.send(2 * LEASE_S)
            self.end(job)
        rows = self.seen()
        others = rows[(rows[:, 3] % self._processes != 0) & (rows[:, 2] > killed * 1e6)]
        sent = killed + np.maximum(0, others[:, 1] * self.workload["keys"] + others[:, 0] - self._before) / self._rate
        late = others[:, 2] / 1e6 - sent
        got = {(key, number) for key, number, _, _, _ in rows.tolist()}
        return {
            "missing": self.sent - len(got),
            "with others after the kill, s p50 p99": percentiles(late),
            "with others after the kill, s at most": round(float(late.max(initial=0)), 1),
            "handed out again": len(rows) - len(got),
        }

    @property
    def _rate(self) -> int:
        return int(self.workload["rate"])

    @property
    def _before(self) -> int:
        """How many were sent before the kill."""
        steps: int = round(self._rate * _SEND_S) * round(self.workload["seconds"] / _SEND_S)
        return steps


def work(root: str, file: str, number: int, workload: dict[str, Any], ended: Any) -> None:  # noqa: ANN401 - an event
    """What a consumer process does: its consumers come and go, each in a thread, until they are told to end."""
    notes = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    with Client(root) as client:
        words = [(client, notes, number + workload["processes"] * n, workload, ended) for n in range(_each(workload))]
        threads = [threading.Thread(target=_come_and_go, args=each) for each in words]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def _each(workload: dict[str, Any]) -> int:
    return int(workload["consumers"]) // int(workload["processes"])


def _come_and_go(client: Client, notes: int, name: int, workload: dict[str, Any], ended: Any) -> None:  # noqa: ANN401 - the same
    """Consume for a while as one consumer, then as another one."""
    random = np.random.default_rng(name)
    kind = {"key_shared": ConsumerType.KeyShared, "shared": ConsumerType.Shared}[workload["type"]]
    while not ended.is_set():
        low, high = workload["stays_s"]
        leaves = time.monotonic() + random.uniform(low, high)
        with client.subscribe(TOPIC, NAMES[0], kind) as consumer:
            while not ended.is_set() and time.monotonic() < leaves:
                try:
                    message = consumer.receive(_LOOK_MS)
                except Timeout:
                    continue
                now, sent = time.time_ns() // 1_000, message.publish_timestamp() * 1_000
                said = f"{message.data().decode()} {now} {name} {sent}\n"
                if message.partition_key():
                    os.write(notes, said.encode())
                consumer.acknowledge(message)
        name += workload["consumers"]


class Holes(Run):
    """Every second of the messages that were delivered is acknowledged; then a consumer starts."""

    def __init__(self, workload: dict[str, Any], folder: Path) -> None:
        """Make the warehouse."""
        super().__init__(workload, folder, NAMES[0])

    def measure(self) -> Figures:
        """Deliver, settle every second, start a consumer, take the rest."""
        count = int(self.workload["messages"])
        with self.job() as job:
            self.deliver(count)
            patience_s = _END_S + count / _PACE
            self.until(lambda: open_of(self.root) == {NAMES[0]: count + 1}, job, patience_s)
            # Settle knows what was released before it is visible.
            self.until(lambda: open_table(self.root, DELIVERIES).count() == count + 1, job, patience_s)
            left = self._settle_half()
            self.until(lambda: open_of(self.root) == {NAMES[0]: left}, job, patience_s)
            stored = sum(len(row["bytes"] or b"") for row in query(_CURSOR, cursors=open_table(self.root, CURSORS)))
            first_s, got = self._rest(left)
        return {
            "left": left,
            "bytes of the cursor": stored,
            "first message after, s": first_s,
            "missing": left - len(np.unique(got)),
            "handed out twice": len(got) - len(np.unique(got)),
            "of the settled half": int((got % 2 == 0).sum()),
        }

    def _settle_half(self) -> int:
        """Acknowledge the messages with even entries; how many are left."""
        # Arrow takes no rows of the kind of texts that delta-rs gives.
        rows = _plain(arrow_of(_DELIVERED, deliveries=open_table(self.root, DELIVERIES)))
        even = np.flatnonzero(rows.column("entry_id").to_numpy() % 2 == 0)
        for begin in range(0, len(even), _PIECE):
            acknowledge(self.root, rows.take(pa.array(even[begin : begin + _PIECE])))
        left: int = rows.num_rows - len(even)
        return left

    def _rest(self, count: int) -> tuple[float, npt.NDArray[np.int64]]:
        """After how many seconds the first message comes, and all that come: ledger * 2^31 + entry."""
        begun = time.monotonic()
        with Client(self.root) as client:
            consumer = client.subscribe(TOPIC, NAMES[0], ConsumerType.Shared)
            ledger, entry = consumer.receive(_END_S * 1_000).message_id().position
            first_s = round(time.monotonic() - begun, 2)
            parts = [np.array([ledger * _LEDGER + entry])]
            while sum(map(len, parts)) < count:
                rows = consumer.batch_receive_arrow(timeout_millis=_END_S * 1_000)
                if not rows.num_rows:
                    break
                ledgers, entries = (rows.column(name).to_numpy() for name in ("ledger_id", "entry_id"))
                parts.append(ledgers * _LEDGER + entries)
        return first_s, np.concatenate(parts)


def _plain(rows: pa.Table) -> pa.Table:
    """Rows with texts of Arrow's usual kind."""
    kinds = [pa.string() if pa.types.is_string_view(each.type) else each.type for each in rows.schema]
    return rows.cast(pa.schema(list(zip(rows.column_names, kinds, strict=True))))
