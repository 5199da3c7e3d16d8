"""Spark Connect: a session that answers clients on the loopback, and a client in a process that has no Java.

`python -m tests.support.connect ADDRESS ROOT DELAY_MS` is the client: a line of its input names a step of `Program`,
and what that gives is a line of JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException

from benchmarks.support.brokers import free_port
from pipeline.client import spark as delayline
from tests.support.modules import ROOT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

TOPIC, SUBSCRIPTION = "orders", "shop"
KEPT, CANCELLED, FAILS = "kept", "cancelled", "fails"
SENT = (KEPT, CANCELLED, FAILS)
ATTEMPTS = 5
_LATER_MS = 3_600_000
_COLUMNS = "topic string, message_key string, payload binary, deliver_after_ms bigint"


@contextmanager
def answering(spark: SparkSession) -> Iterator[str]:
    """Let a session answer Spark Connect, on this machine alone; the address."""
    from pipeline.config.jvm import java_class  # noqa: PLC0415 - the client has no JVM

    port = free_port()
    context = spark.sparkContext._jsc.sc()
    context.conf().set("spark.connect.grpc.binding.address", "127.0.0.1")
    context.conf().set("spark.connect.grpc.binding.port", str(port))
    service = java_class(spark, "org.apache.spark.sql.connect.service.SparkConnectService")
    none = java_class(spark, "scala.Option").empty()
    service.start(context)
    try:
        yield f"sc://127.0.0.1:{port}"
    finally:
        service.stop(none, none)


class Client:
    """The client, which takes one step after the other."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def __call__(self, step: str) -> Any:  # noqa: ANN401 - what JSON can hold
        """Take a step; what it gives."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{step}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, "the client has ended"
        return json.loads(answer)


@contextmanager
def client(address: str, root: str, delay_ms: int) -> Iterator[Client]:
    """A client in a process of its own, which would find no Java if it looked for one.

    What it sends, and what it says has failed, comes after so long.
    """
    variables = {**os.environ, "PATH": "/nowhere", "JAVA_HOME": "/nowhere"}
    command = [sys.executable, "-m", "tests.support.connect", address, root, str(delay_ms)]
    with subprocess.Popen(  # noqa: S603 - our own
        command, cwd=ROOT, env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield Client(process)
        finally:
            process.kill()


@dataclass(frozen=True)
class Program:
    """What the client does.

    Attributes:
        spark: a session by Spark Connect.
        root: the warehouse.
        delay_ms: after so long what it sends comes, and what has failed comes again.
    """

    spark: SparkSession
    root: str
    delay_ms: int

    def append(self) -> int:
        """Send messages, with the columns that they need."""
        # A cancel may come late on a busy machine, and what it is about is not due by then.
        rows = [(TOPIC, key, key.encode(), self.delay_ms + (_LATER_MS if key == CANCELLED else 0)) for key in SENT]
        self.spark.createDataFrame(rows, _COLUMNS).write.format("delta").mode("append").save(f"{self.root}/inbox")
        return len(rows)

    def accepted(self) -> int:
        """How many of them wait."""
        return self._table("messages").count()

    def cancel(self) -> int:
        """Cancel what a query of Spark has chosen."""
        chosen = self._table("messages").where(f"message_key = '{CANCELLED}'")
        return delayline.cancel(chosen, self.root, TOPIC).selection.count

    def take(self) -> list[str]:
        """Take what is new in `deliveries`, and acknowledge it in this process."""
        found = self.keys()
        delayline.acknowledge(self._table("deliveries").where(f"message_key = '{KEPT}'"), self.root)
        return found

    def follow(self) -> list[str]:
        """Take what is new in `deliveries` as a stream, and acknowledge it where the server runs the function."""
        root, kept = self.root, f"message_key = '{KEPT}'"

        def settle(batch: DataFrame, _: int) -> None:
            delayline.acknowledge(batch.where(kept), root)

        deliveries = self.spark.readStream.format("delta").load(f"{root}/deliveries")
        with TemporaryDirectory() as checkpoint:
            writing = deliveries.writeStream.foreachBatch(settle).option("checkpointLocation", checkpoint)
            started(writing.trigger(availableNow=True)).awaitTermination()
        return self.keys()

    def fail(self) -> int:
        """Say in this process that a delivery failed: it comes again."""
        failed = self._table("deliveries").where(f"message_key = '{FAILS}'")
        return delayline.negative_acknowledge(failed, self.root, self.delay_ms)

    def keys(self) -> list[str]:
        """The keys of what was delivered, each as often as it came."""
        return sorted(row.message_key for row in self._table("deliveries").select("message_key").collect())

    def _table(self, name: str) -> DataFrame:
        return self.spark.read.format("delta").load(f"{self.root}/{name}")


def started(writing: DataStreamWriter) -> StreamingQuery:
    """A query, begun. The Python of its function has ten seconds to come up, which a busy machine may not give it."""
    for _ in range(ATTEMPTS - 1):
        with suppress(PySparkException):
            return writing.start()
    return writing.start()


def main(address: str, root: str, delay_ms: str) -> None:
    """Take the steps that are asked for, until there are no more."""
    from pyspark.sql.connect.session import SparkSession as Remote  # noqa: PLC0415 - only the client has it

    session: Any = Remote.builder.remote(address).getOrCreate()
    program = Program(session, root, int(delay_ms))
    for line in sys.stdin:
        sys.stdout.write(f"{json.dumps(getattr(program, line.strip())())}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
