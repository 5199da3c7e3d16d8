"""`make demo-kafka`: orders come in by one topic of Kafka, and their timeouts are in another one ten seconds later.

A broker of its own is started from packages; the job is the one that users start. Nothing is left behind.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import confluent_kafka

from benchmarks.support import ROOT
from benchmarks.support.kafka import Broker, broker
from benchmarks.support.processes import started

ORDERS, TIMEOUTS = "orders", "timeouts"
DELAY_S, COUNT = 10, 8
_PAUSE_S, _PATIENCE_S, _STOP_S = 1.0, 120.0, 60
_PROFILE = f"""
[source.orders]
from = "kafka://{{servers}}/{ORDERS}"
deliver_at = "timestamp + INTERVAL {DELAY_S} SECONDS"
"""


class Failed(Exception):
    """A timeout did not come, came early, or came twice; or the job ended."""


def main() -> int:
    """Show it; 1 when something was not as it should be."""
    with tempfile.TemporaryDirectory(prefix="delayline-kafka-") as folder, broker(Path(folder)) as kafka:
        for topic in (ORDERS, TIMEOUTS):
            kafka.create(topic)
        print(f"A broker runs at {kafka.servers}, with the topics {ORDERS} and {TIMEOUTS}.")
        try:
            with _job(Path(folder), kafka) as job:
                print("The job is up. One order goes the whole way first, to warm it.", flush=True)
                _play(kafka, job, 1)
                print(f"Orders come now, one a second; each is due after {DELAY_S} s.", flush=True)
                late = _play(kafka, job, COUNT)
                spread = f"late by {late[0]:.2f} to {late[-1]:.2f} s"
                print(f"{COUNT} of {COUNT} timeouts came, none early, none twice; {spread}.")
        except Failed as error:
            print(f"failed: {error}\n{(Path(folder) / 'job.log').read_text(encoding='utf-8')[-2_000:]}")
            return 1
    return 0


@contextmanager
def _job(folder: Path, kafka: Broker) -> Iterator[subprocess.Popen[bytes]]:
    """`delayline run` on a new warehouse; stopped at the end."""
    root, profile = folder / "warehouse", folder / "orders.toml"
    local = (ROOT / "conf" / "local.toml").read_text(encoding="utf-8")
    profile.write_text(local + _PROFILE.format(servers=kafka.servers), encoding="utf-8")
    command, known = [sys.executable, "-m", "jobs.cli"], {"PYTHONPATH": str(ROOT)}
    sink = ["--tick", "100ms", "--sink", f"kafka://{kafka.servers}/{TIMEOUTS}"]
    for words in (["init"], ["subscribe", "--topic", ORDERS, "--subscription", TIMEOUTS, *sink]):
        line = [*command, *words, "--warehouse", str(root)]
        subprocess.run(line, check=True, capture_output=True, cwd=ROOT, env=os.environ | known)  # noqa: S603 - our own
    run = [*command, "run", "--warehouse", str(root), "--profile", str(profile)]
    with started(run, folder / "job.log", known) as job:
        end = time.monotonic() + _PATIENCE_S
        while "Running on" not in (folder / "job.log").read_text(encoding="utf-8"):
            if job.poll() is not None or time.monotonic() > end:
                raise Failed("the job did not start")
            time.sleep(0.2)
        yield job
        job.send_signal(signal.SIGTERM)
        job.wait(_STOP_S)


def _play(kafka: Broker, job: subprocess.Popen[bytes], count: int) -> list[float]:
    """Send orders and print what comes, until all their timeouts have come; how late each was, in order, s."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": kafka.servers,
            "group.id": f"demo-{count}",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe([TIMEOUTS])
    sent, came = dict[str, float](), dict[str, float]()
    end = time.monotonic() + _PATIENCE_S
    try:
        while len(came) < count:
            if job.poll() is not None or time.monotonic() > end:
                raise Failed(f"{len(came)} of {count} timeouts came")
            if len(sent) < count:
                _send(kafka, sent, count)
            begun = time.monotonic()
            while (left := _PAUSE_S - (time.monotonic() - begun)) > 0:
                message = consumer.poll(left)
                if message is not None and message.error() is None and message.key().decode() in sent:
                    _show(message, sent, came)
    finally:
        consumer.close()
    return sorted(came[order] - sent[order] - DELAY_S for order in came)


def _send(kafka: Broker, sent: dict[str, float], count: int) -> None:
    order = f"order-{len(sent) + 1}" if count > 1 else "order-0"
    # The time of the record, in whole milliseconds, from which the profile counts.
    sent[order] = int(time.time() * 1_000) / 1_000
    kafka.send(ORDERS, {"key": order, "value": f"{order} was not paid", "timestamp": round(sent[order] * 1_000)})
    _say(f"ordered   {order}")


def _show(message: Any, sent: dict[str, float], came: dict[str, float]) -> None:  # noqa: ANN401 - of the client
    order = message.key().decode()
    if order in came or time.time() < sent[order] + DELAY_S:
        raise Failed(f"{order} came early, or twice")
    came[order] = time.time()
    _say(f"timed out {order}: {message.value().decode()!r}, {came[order] - sent[order]:.2f} s after the order")


def _say(text: str) -> None:
    print(f"  {datetime.now(UTC):%H:%M:%S}  {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
