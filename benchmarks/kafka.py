"""Kafka in, a delay, Kafka out; and intake from a topic beside a plain copy of it.

`way`: a producer sends at a rate; each record says its due time in a header. The job takes them by a source, and a sink
publishes them; a consumer that is shown committed records only looks how late they are. The broker is killed once and
started again in the middle: what comes while it is away, and in the seconds after, is told apart.

`intake`: a topic is filled, and read to its end by one session: by a source into `inbox`, and by a stream of Spark from
Kafka to a Delta table; each twice, and the faster one counts.

`release`: messages that are all due at one instant are appended to `inbox` before it, and a sink publishes them. A
consumer that is shown committed records only says when the last one came, and in which order; a few have been
released before, so that all is warm.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.support import ROOT, kafkaburst
from benchmarks.support.kafka import Broker, broker
from benchmarks.support.kafkaload import Load, consume, fill
from benchmarks.support.machine import describe
from benchmarks.support.processes import started
from benchmarks.support.report import tell
from benchmarks.support.usual import LOCAL
from benchmarks.support.words import check_names
from pipeline.client.create import create_all
from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from pipeline.config.options import Options
from pipeline.config.session import Machine, local_session
from pipeline.config.settings import LiveClock
from pipeline.config.sources import Source
from pipeline.config.sparkversion import kafka_connector
from pipeline.delta.deltars import open_table
from pipeline.delta.warehouse import Warehouse
from pipeline.sources.loop import SourceLoop
from pipeline.sources.running import door_of
from pipeline.subscriptions.policies import Policies
from schemas import INBOX

_IN, _OUT, _PARTITIONS = "in", "out", 2
_START_S, _STOP_S, _LOOK_S = 180.0, 60, 0.2
_PROFILE = """
[source.load]
from = "kafka://{servers}/in"
deliver_at = "timestamp_millis(CAST(properties['due'] AS BIGINT))"
"""
WORKLOADS = ["way", "intake", "release"]
RECORDS = {"short": 1_000_000, "full": 5_000_000}
RELEASED = {"short": 200_000, "full": 1_000_000}
SECONDS = {"short": 60, "full": 300}
_FEW, _SOON_S, _LEAD_S, _PER_S = 20_000, 15, 20, 25_000
"""Of `release`: what is released before; from its append to its due time; the same for the others, with so many more
seconds as ingest may take for them."""


def way(folder: Path, seconds: int, rate: int, delays_s: tuple[float, float], restart_s: float) -> dict[str, Any]:
    """The figures of one run of the whole way."""
    with broker(folder) as kafka:
        for topic in (_IN, _OUT):
            kafka.create(topic, _PARTITIONS)
        load = Load(kafka.servers, rate, seconds, delays_s)
        with _job(folder, kafka), consume(load, _OUT, _PARTITIONS) as seen:
            begun = time.monotonic()
            with load.sending(_IN):
                _wait(begun + seconds * restart_s)
                kafka.kill()
                away = time.time()
                kafka.start()
                back = time.time()
            _wait_until(lambda: seen.count >= load.sent, load.last_due_s - time.time() + 60)
            return {
                "workload": "way",
                "rate": rate,
                "seconds": seconds,
                "delays_s": delays_s,
                "away_s": round(back - away, 1),
                **seen.figures(load, away, back),
            }


def intake(folder: Path, records: int) -> dict[str, Any]:
    """Reading a topic to its end: by a source, and by a plain copy."""
    with broker(folder) as kafka:
        kafka.create(_IN, _PARTITIONS)
        fill(kafka.servers, _IN, records)
        spark = local_session("delayline benchmark", Machine(), packages=[kafka_connector()])
        try:
            # The first time of each warms what the second one runs.
            times = {
                name: [read(spark, kafka, folder, f"{name}{n}") for n in (1, 2)] for name, read in _READERS.items()
            }
        finally:
            spark.stop()
    ours, copy = (min(each) for each in times.values())
    row = {"workload": "intake", "records": records, "source_s": round(ours, 1), "copy_s": round(copy, 1)}
    return row | {"per_s": round(records / ours), "ratio": round(copy / ours, 2)}


def release(folder: Path, messages: int) -> dict[str, Any]:
    """Messages that are due at one instant, in a topic."""
    with broker(folder) as kafka:
        for topic in (_IN, _OUT):
            kafka.create(topic, _PARTITIONS)
        root = str(folder / "warehouse")
        with _job(folder, kafka), kafkaburst.consume(kafka.servers, _OUT, _PARTITIONS) as came:
            for begin, count, lead_s in ((0, _FEW, _SOON_S), (_FEW, messages, _LEAD_S + messages / _PER_S)):
                due_ms = round((time.time() + lead_s) * 1_000)
                kafkaburst.send(root, _IN, begin, count, due_ms)
                left_s = due_ms / 1_000 - time.time()
                _wait_until(lambda: came.count >= begin + count, left_s + _START_S)  # noqa: B023 - called at once
        figures = came.figures(root, _FEW, messages, due_ms)
    row = {"workload": "release", "messages": messages, "sent_before_s": round(left_s, 1), **figures}
    return row | {"per_s": round(messages / max(0.1, figures["seconds"]))}


def _by_source(spark: Any, kafka: Broker, folder: Path, name: str) -> float:  # noqa: ANN401 - a session
    root = str(folder / name)
    create_all(root)
    source = Source("load", f"kafka://{kafka.servers}/{_IN}", deliver_at="timestamp + INTERVAL 1 HOUR")
    loop = SourceLoop(Warehouse(root, spark), source, door_of(source), Options(LiveClock()))
    begun = time.monotonic()
    loop.begin()
    try:
        assert loop.query is not None  # noqa: S101 - it has begun
        loop.query.processAllAvailable()
        return time.monotonic() - begun
    finally:
        loop.stop()
        print(f"{name}: {open_table(root, INBOX).count():,} rows", file=sys.stderr)


def _by_copy(spark: Any, kafka: Broker, folder: Path, name: str) -> float:  # noqa: ANN401 - a session
    options = {"kafka.bootstrap.servers": kafka.servers, "subscribe": _IN, "startingOffsets": "earliest"}
    rows = spark.readStream.format("kafka").options(**options, includeHeaders="true").load()
    rows = rows.selectExpr("topic", "CAST(key AS STRING) AS message_key", "headers", "timestamp", "value AS payload")
    writer = rows.writeStream.format("delta").option("checkpointLocation", str(folder / f"{name}-checkpoint"))
    begun = time.monotonic()
    query = writer.trigger(availableNow=True).start(str(folder / name))
    query.awaitTermination()
    return time.monotonic() - begun


_READERS: Mapping[str, Any] = {"source": _by_source, "copy": _by_copy}


@contextmanager
def _job(folder: Path, kafka: Broker) -> Iterator[None]:
    """`delayline run`, up and stopped at the end."""
    root, profile, log = str(folder / "warehouse"), folder / "profile.toml", folder / "job.log"
    create_all(root)
    sink = Policies(sink=f"kafka://{kafka.servers}/{_OUT}", sink_after=0)
    subscribe(root, Subscription(_IN, "out", tick_ms=100, policies=sink))
    profile.write_text(LOCAL.read_text(encoding="utf-8") + _PROFILE.format(servers=kafka.servers), encoding="utf-8")
    command = [sys.executable, "-m", "jobs.cli", "run", "--warehouse", root, "--profile", str(profile)]
    with started(command, log, {"PYTHONPATH": str(ROOT)}) as job:
        _wait_until(lambda: "Running on" in log.read_text(encoding="utf-8") or job.poll() is not None, _START_S)
        if job.poll() is not None:
            raise SystemExit(log.read_text(encoding="utf-8")[-3_000:])
        yield
        job.send_signal(signal.SIGTERM)
        job.wait(_STOP_S)


def _wait(end: float) -> None:
    time.sleep(max(0.0, end - time.monotonic()))


def _wait_until(holds: Callable[[], bool], patience_s: float) -> None:
    end = time.monotonic() + patience_s
    while not holds() and time.monotonic() < end:
        time.sleep(_LOOK_S)


def show(row: dict[str, Any]) -> Iterator[str]:
    """For a person."""
    if row["workload"] == "intake":
        yield f"intake: {row['records']:,} records in {row['source_s']} s, {row['per_s']:,}/s"
        yield f"  a plain copy takes {row['copy_s']} s: {row['ratio']}x its rate"
        return
    if row["workload"] == "release":
        yield f"release: {row['messages']:,} at one instant, the last one {row['seconds']} s after it"
        yield f"  {row['per_s']:,}/s, lost {row['lost']}, twice {row['twice']}, out of order {row['disordered']}"
        return
    yield f"way: {row['rate']:,}/s for {row['seconds']} s, delays {row['delays_s']} s, restart {row['away_s']} s"
    yield f"  late p50 {row['p50_s']} s, p99 {row['p99_s']} s"
    yield f"  lost {row['lost']}, twice {row['twice']}, early {row['early']}"
    yield f"  around the restart ({row['around']:,} of them): p99 {row['around_p99_s']} s"


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark; 1 when something was lost, came early or twice."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kafka", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("workload", nargs="*", metavar="WORKLOAD", default=WORKLOADS, help=", ".join(WORKLOADS))
    parser.add_argument("--full", action="store_true", help="5 minutes, 5 million records, a million at once")
    parser.add_argument("--rate", type=int, default=2_000)
    parser.add_argument("--seconds", type=int)
    parser.add_argument("--records", type=int)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    check_names(parser, "workload", options.workload, WORKLOADS)
    size = "full" if options.full else "short"

    def measured() -> Iterator[dict[str, Any]]:
        for name in options.workload:
            with tempfile.TemporaryDirectory(prefix="delayline-kafka-") as folder:
                if name == "way":
                    yield way(
                        Path(folder),
                        options.seconds or SECONDS[size],
                        options.rate,
                        (5.0, 120.0 if options.full else 40.0),
                        0.5,
                    )
                elif name == "intake":
                    yield intake(Path(folder), options.records or RECORDS[size])
                else:
                    yield release(Path(folder), options.records or RELEASED[size])

    rows = tell(describe("pyspark", "delta-spark", "confluent-kafka"), measured(), show, as_json=options.json)
    return int(any(row.get(wrong) for row in rows for wrong in ("lost", "twice", "early", "disordered")))


if __name__ == "__main__":
    sys.exit(main())
