"""Delays between two topics of Pulsar: lateness of delayline beside that of the broker's own delayed delivery.

Broker, job, producer and consumer share the machine. Both systems get the same messages at the same rate, one after
the other, with the same broker.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.support import ROOT, WORKLOADS
from benchmarks.support.machine import describe
from benchmarks.support.processes import apart, started
from benchmarks.support.pulsar import DEDUPLICATED, Broker, broker
from benchmarks.support.pulsarload import SUBSCRIPTION, consume, produce
from benchmarks.support.report import tell
from benchmarks.support.sizes import entries
from benchmarks.support.usual import LOCAL
from pipeline.client.create import create_all
from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from pipeline.subscriptions.policies import Policies

FILE = WORKLOADS / "pulsar.toml"
SYSTEMS = OURS, THEIRS = "delayline", "Pulsar"
_SOURCE = """
[source.orders]
from = "{service}/{topic}"
topic = "'orders'"
deliver_at = "timestamp_millis(CAST(properties['due'] AS BIGINT))"
"""
_PATIENCE_S, _LATE_S = 180, 10


def measured(workload: dict[str, Any], systems: Sequence[str] = SYSTEMS) -> Iterator[dict[str, Any]]:
    """A row for the broker's own delays, and one for ours; or for one of the two."""
    with tempfile.TemporaryDirectory(prefix="delayline-pulsar-") as name:
        folder = Path(name)
        (folder / "broker").mkdir()
        with broker(folder / "broker") as found:
            if THEIRS in systems:
                own = found.create("own")
                yield _stream(workload, folder, found.service, (own, own), THEIRS)
            if OURS in systems:
                taken, given = found.create("in"), found.create("out", namespace=DEDUPLICATED)
                found.admin("PUT", f"persistent/{given}/subscription/s")
                with _job(workload, folder, found, taken, given):
                    yield _stream(workload, folder, found.service, (taken, given), OURS)


def _stream(
    workload: dict[str, Any], folder: Path, service: str, topics: tuple[str, str], system: str
) -> dict[str, Any]:
    """Produce into a topic, consume from one; the figures."""
    context, seen = get_context("spawn"), folder / f"{system}.npy"
    ended, begin = context.Event(), time.time()
    consumer = context.Process(target=consume, args=(service, topics[1], str(seen), ended))
    consumer.start()
    try:
        apart(produce, service, topics[0], workload, delayed=system == THEIRS)
        time.sleep(workload["high_ms"] / 1_000 + _LATE_S)
    finally:
        ended.set()
        consumer.join(_PATIENCE_S)
        consumer.kill()
    return {"workload": workload["name"], "system": system, "parameters": workload, **figures(seen, workload, begin)}


def figures(seen: Path, workload: dict[str, Any], begin: float) -> dict[str, Any]:
    """Lateness of what was due when all was warm, ms, and what did not come once."""
    number, due, at = np.load(seen).T
    late, sent = at - due, workload["rate"] * workload["seconds"]
    warm = late[due >= (begin + workload["warm_s"]) * 1_000]
    p50, p99, most = np.percentile(warm, (50, 99, 100)) if warm.size else (0.0, 0.0, 0.0)
    once = len(set(number.tolist()))
    return {
        "late": {"count": int(warm.size), "p50": float(p50), "p99": float(p99), "max": float(most)},
        "early": int((late < 0).sum()),
        "twice": len(number) - once,
        "missing": sent - once,
    }


@contextmanager
def _job(
    workload: dict[str, Any], folder: Path, found: Broker, taken: str, given: str
) -> Iterator[subprocess.Popen[bytes]]:
    """The stages, the source and the sink; they have passed a message on."""
    root, profile = str(folder / "warehouse"), folder / "profile.toml"
    create_all(root, rate=workload["rate"])
    policies = Policies(sink=f"{found.service}/{given}")
    subscribe(root, Subscription("orders", "s", "shared", tick_ms=workload["tick_ms"], policies=policies))
    profile.write_text(LOCAL.read_text(encoding="utf-8") + _SOURCE.format(service=found.service, topic=taken))
    words = ["-m", "jobs.deliver", "--profile", str(profile), "--warehouse", root]
    environment = {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    with started([sys.executable, *words], folder / "job.log", environment) as process:
        try:
            _passed(found, taken, given, process, folder / "job.log")
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(_PATIENCE_S)


def _passed(found: Broker, taken: str, given: str, process: subprocess.Popen[bytes], log: Path) -> None:
    """Send a message, and wait until it has come out.

    Raises:
        TimeoutError: it did not.
    """
    with found.connected() as client:
        consumer = client.subscribe(f"persistent://{given}", SUBSCRIPTION)
        producer = client.create_producer(f"persistent://{taken}")
        producer.send(b"", properties={"due": str(time.time_ns() // 1_000_000)})
        try:
            consumer.acknowledge(consumer.receive(1_000 * _PATIENCE_S))
        except Exception as error:
            said = log.read_text(errors="replace")[-3_000:]
            raise TimeoutError(f"{process.poll()}: {said}") from error
        consumer.close()


def show(row: dict[str, Any]) -> Iterator[str]:
    """A row for a person."""
    late, parameters = row["late"], row["parameters"]
    yield f"{row['workload']}, {parameters['rate']:,} a second for {parameters['seconds']} s: {row['system']}"
    yield "  late " + ", ".join(f"{name} {late[name] / 1_000:.2f}" for name in ("p50", "p99", "max")) + " s"
    yield "  " + ", ".join(f"{name} {row[name]}" for name in ("early", "twice", "missing"))


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark; 1 when something of ours came early, twice or not at all."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pulsar", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--full", action="store_true", help="the full size")
    parser.add_argument("--system", action="append", choices=SYSTEMS, help="one of the two; without it both")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    machine = describe("pyspark", "delta-spark", "deltalake", "pyarrow")
    systems = options.system or SYSTEMS
    measures = (row for workload in entries(FILE, full=options.full) for row in measured(workload, systems))
    rows = tell(machine, measures, show, as_json=options.json)
    return int(any(row[name] for row in rows if row["system"] == OURS for name in ("early", "twice", "missing")))


if __name__ == "__main__":
    sys.exit(main())
