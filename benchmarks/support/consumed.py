"""What the benchmark of consuming runs: the job, producers, and consumers in processes of their own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from benchmarks.support import ROOT
from benchmarks.support.processes import started, usage
from benchmarks.support.rows import inbox_table
from benchmarks.support.usual import LOCAL
from pipeline.client.choices import ConsumerType
from pipeline.client.client import Client
from pipeline.client.create import create_all
from pipeline.client.exceptions import Timeout
from pipeline.client.producing.inbox import OutgoingMessage, send
from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from pipeline.delta.deltars import append, open_table, query
from pipeline.subscriptions.policies import Policies
from schemas import CONSUMER_EVENTS, CURSORS, INBOX

TOPIC, NAMES = "t", ("s", "arrow")
_APPEND_S, _ROWS, _LOOK_S, _START_S = 0.5, 50_000, 0.2, 180
_LOOK_MS = 500
_STANDING = """
    SELECT subscription, outstanding + waiting AS open FROM cursors c WHERE block = -1
    ORDER BY batch_id
"""
Percentiles = tuple[float, float]


def percentiles(seconds: npt.ArrayLike) -> Percentiles:
    """p50 and p99, rounded."""
    values = np.asarray(seconds)
    found = np.percentile(values, (50, 99)) if values.size else (0.0, 0.0)
    return round(float(found[0]), 3), round(float(found[1]), 3)


def open_of(root: str) -> dict[str, int]:
    """How many messages are open of each subscription."""
    rows = query(_STANDING, cursors=open_table(root, CURSORS))
    return {row["subscription"]: row["open"] for row in rows}


class Run:
    """A warehouse and its job."""

    def __init__(self, workload: dict[str, Any], folder: Path, *names: str) -> None:
        """Make the warehouse, with subscriptions that acknowledge."""
        self.workload, self.folder, self.root = workload, folder, str(folder / "warehouse")
        create_all(self.root, rate=workload.get("rate", 10_000))
        for name in names:
            policies = Policies(ack=True, max_unacked=0, retry_min_ms=workload.get("retry_min_ms", 60_000))
            subscribe(
                self.root, Subscription(TOPIC, name, workload.get("type", "shared"), tick_ms=1, policies=policies)
            )
        self._profile()

    @contextmanager
    def job(self) -> Iterator[subprocess.Popen[bytes]]:
        """The job, which delivers, until the end."""
        words = ["-m", "jobs.deliver", "--profile", str(self.folder / "profile.toml"), "--warehouse", self.root]
        environment = {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
        with started([sys.executable, *words], self.folder / "job.log", environment) as process:
            send(self.root, [OutgoingMessage(TOPIC, b"\0" * 8)])
            self.until(lambda: bool(open_of(self.root)), process)
            try:
                yield process
            finally:
                process.send_signal(signal.SIGTERM)
                process.wait(_START_S)

    def deliver(self, count: int) -> None:
        """Send messages that are due at once."""
        random = np.random.default_rng(self.workload["seed"])
        for _ in range(0, count, _ROWS):
            now, size = time.time_ns() // 1_000, self.workload["payload_bytes"]
            append(self.root, INBOX, inbox_table(random, pa.repeat(TOPIC, _ROWS), now, np.full(_ROWS, now), size))

    def settle_cpu_s(self) -> float:
        """Processor time that settle has taken so far."""
        file = self.folder / "progress.jsonl"
        lines = [json.loads(line) for line in file.read_text().splitlines() if '"settle"' in line]
        spent: float = sum(each["duration_ms"]["cpuTime"] for each in lines) / 1_000
        return spent

    def commits(self) -> dict[str, int]:
        """How many commits the tables have that consuming writes."""
        return {each.name: open_table(self.root, each).version() for each in (CONSUMER_EVENTS, CURSORS)}

    def _profile(self) -> None:
        """What a user gets, with a line for each batch."""
        text = LOCAL.read_text(encoding="utf-8")
        extra = f"[run]\nprogress_log = {json.dumps(str(self.folder / 'progress.jsonl'))}"
        (self.folder / "profile.toml").write_text(text.replace("[run]", extra), encoding="utf-8")

    def until(self, look: Callable[[], bool], job: subprocess.Popen[bytes], patience_s: float = _START_S) -> float:
        """Wait until something is so; how many seconds it took.

        Raises:
            TimeoutError: it is not, or the job has ended.
        """
        begun = time.monotonic()
        while not look():
            if job.poll() is not None or time.monotonic() - begun > patience_s:
                said = (self.folder / "job.log").read_text(errors="replace")[-3_000:]
                raise TimeoutError(f"open: {open_of(self.root)}; {said}")
            time.sleep(_LOOK_S)
        return time.monotonic() - begun


class Streaming(Run):
    """A stream with delays; consumers share it, and acknowledge message by message."""

    def __init__(self, workload: dict[str, Any], folder: Path) -> None:
        """Make the warehouse."""
        super().__init__(workload, folder, NAMES[0])
        self._random = np.random.default_rng(workload["seed"])

    def measure(self) -> dict[str, Any]:
        """Stream, wait until all is settled, put together what consumers saw."""
        context = get_context("spawn")
        with self.job() as job:
            ended = context.Event()
            words = [(self.root, str(self.folder / f"seen-{n}"), self.workload, ended) for n in range(self._processes)]
            workers = [context.Process(target=consume, args=each) for each in words]
            for worker in workers:
                worker.start()
            begin, before = time.time(), usage(job.pid).cpu_s
            settle, commits = self.settle_cpu_s(), self.commits()
            try:
                self._send(begin)
                last_due = time.time() + self.workload["high_ms"] / 1_000
                time.sleep(max(0.0, last_due + self.workload["nack_ms"] / 1_000 - time.time()))
                settled_s = self.until(lambda: open_of(self.root) == {NAMES[0]: 0}, job)
                cpu, settle = usage(job.pid).cpu_s - before, self.settle_cpu_s() - settle
            finally:
                ended.set()
                for worker in workers:
                    worker.join(_START_S / 3)
                    worker.kill()
            took, after = time.time() - begin, self.commits()
        return self._figures(begin) | {
            "settled s after the last was due": round(settled_s + self.workload["nack_ms"] / 1_000, 1),
            "cpu_s_per_minute of the job": round(cpu * 60 / took, 1),
            "cpu_s_per_minute of settle": round(settle * 60 / took, 1),
            "commits a second": {name: round((count - commits[name]) / took, 1) for name, count in after.items()},
        }

    @property
    def _processes(self) -> int:
        return int(self.workload["processes"])

    def _send(self, begin: float) -> None:
        count = round(self.workload["rate"] * _APPEND_S)
        for number in range(round(self.workload["seconds"] / _APPEND_S)):
            time.sleep(max(0.0, begin + number * _APPEND_S - time.time()))
            now = time.time_ns() // 1_000
            delays = self._random.integers(self.workload["low_ms"], self.workload["high_ms"], count, endpoint=True)
            rows = inbox_table(
                self._random, pa.repeat(TOPIC, count), now, now + delays * 1_000, self.workload["payload_bytes"]
            )
            append(self.root, INBOX, rows)

    def _figures(self, begin: float) -> dict[str, Any]:
        rows = np.concatenate([np.load(path) for path in sorted(self.folder.glob("seen-*.npy"))])
        ledger, entry, count, due, at, cpu = rows.T
        key = ledger * (1 << 31) + entry
        first, again = count == 0, count == 1
        sent = round(self.workload["rate"] * _APPEND_S) * round(self.workload["seconds"] / _APPEND_S) + 1
        late = at[first] - due[first]
        warm = late[due[first] >= (begin + self.workload["warm_s"]) * 1_000]
        failed = dict(zip(key[first].tolist(), at[first].tolist(), strict=True))
        asked = self.workload["nack_ms"]
        back = [t - failed[k] - asked for k, t in zip(key[again].tolist(), at[again].tolist(), strict=True)]
        return {
            "received": int(first.sum()),
            "missing": sent - len(set(key.tolist())),
            "handed out twice": int(first.sum()) - len(set(key[first].tolist())),
            "early": int((late < 0).sum()),
            "late until receive, s p50 p99": percentiles(warm / 1_000),
            "failed once": len(back),
            "back after the delay, s p50 p99": percentiles(np.asarray(back) / 1_000),
            "cpu_s of consumers": round(float(cpu.max()), 1) * self._processes,
        }


def consume(root: str, file: str, workload: dict[str, Any], ended: Any) -> None:  # noqa: ANN401 - an event of a context
    """What a consumer process does: its consumers work, each in a thread, until they are told to end."""
    seen: list[list[tuple[float, ...]]] = [[] for _ in range(workload["consumers"])]
    with Client(root) as client:
        threads = [threading.Thread(target=_work, args=(client, each, workload, ended)) for each in seen]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    cpu = time.process_time()
    rows = [(*row, cpu) for each in seen for row in each]
    np.save(f"{file}.npy", np.array(rows or np.empty((0, 6)), np.float64))


def _work(client: Client, seen: list[tuple[float, ...]], workload: dict[str, Any], ended: Any) -> None:  # noqa: ANN401 - as above
    consumer = client.subscribe(TOPIC, NAMES[0], ConsumerType.Shared)
    while not ended.is_set():
        try:
            message = consumer.receive(_LOOK_MS)
        except Timeout:
            continue
        at, (ledger, entry), count = time.time() * 1_000, message.message_id().position, message.redelivery_count()
        due = max(message.deliver_at(), message.publish_timestamp())
        seen.append((ledger, entry, count, due, at))
        if count == 0 and entry % workload["nack_one_in"] == 0:
            consumer.negative_acknowledge(message, workload["nack_ms"])
        else:
            consumer.acknowledge(message)
    consumer.close()


class Draining(Run):
    """Messages that are delivered already, and one consumer."""

    def __init__(self, workload: dict[str, Any], folder: Path) -> None:
        """Make the warehouse."""
        super().__init__(workload, folder, *NAMES)

    def measure(self) -> dict[str, Any]:
        """Deliver all, then take it: one by one, and by another subscription as Arrow."""
        count = self.workload["messages"]
        with self.job() as job:
            self.deliver(count)
            self.until(lambda: open_of(self.root) == dict.fromkeys(NAMES, count + 1), job)
            time.sleep(_START_S / 12)
            singly, first_s = self._timed(count, self._singly)
            arrow, _ = self._timed(count, self._as_arrow)
            settled_s = self.until(lambda: open_of(self.root) == dict.fromkeys(NAMES, 0), job)
        return {
            "receive and acknowledge, 1/s": singly,
            "first message after, s": first_s,
            "batch_receive_arrow, 1/s": arrow,
            "settled after, s": round(settled_s, 1),
        }

    def _timed(self, count: int, take: Callable[[Client, int], float]) -> tuple[int, float]:
        with Client(self.root) as client:
            begun = time.monotonic()
            first = take(client, count + 1)
            ended = time.monotonic()
        return round(count / (ended - first)), round(first - begun, 2)

    def _singly(self, client: Client, count: int) -> float:
        consumer = client.subscribe(TOPIC, NAMES[0], ConsumerType.Shared)
        first = 0.0
        for _ in range(count):
            message = consumer.receive(_START_S * 1_000)
            first = first or time.monotonic()
            consumer.acknowledge(message)
        return first

    def _as_arrow(self, client: Client, count: int) -> float:
        consumer = client.subscribe(TOPIC, NAMES[1], ConsumerType.Shared)
        first, taken = 0.0, 0
        while taken < count:
            rows = consumer.batch_receive_arrow(timeout_millis=_START_S * 1_000)
            first = first or time.monotonic()
            consumer.acknowledge(rows)
            taken += rows.num_rows
        return first


def sending(workload: dict[str, Any], folder: Path) -> dict[str, Any]:
    """One producer: many without waiting, then some one by one."""
    root, content = str(folder / "warehouse"), b"x" * workload["payload_bytes"]
    create_all(root)
    failed: list[object] = []

    def said(result: Any, _message_id: object) -> None:  # noqa: ANN401 - the client's
        if getattr(result, "name", "Ok") != "Ok":
            failed.append(result)

    with Client(root) as client:
        producer = client.create_producer(TOPIC, max_pending_messages=100_000, block_if_queue_full=True)
        begun = time.monotonic()
        for _ in range(workload["messages"]):
            producer.send_async(content, said)
        producer.flush()
        rate = workload["messages"] / (time.monotonic() - begun)
        singly = []
        for _ in range(100):
            begun = time.monotonic()
            producer.send(content)
            singly.append(time.monotonic() - begun)
    sent = open_table(root, INBOX).count()
    p50, p99 = percentiles(singly)
    missing = workload["messages"] + 100 - sent
    return {"send_async, 1/s": round(rate), "send, s p50 p99": (p50, p99), "failed": len(failed), "missing": missing}
