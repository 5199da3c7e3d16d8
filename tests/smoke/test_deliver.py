"""The job as a process of its own, on the wall clock: started, used from outside, asked to stop by the last test.

Some of its users are programs in the words of the reference's public documentation of its Python client, of which only
import and address are changed. What the reference does elsewhere (partitions are made by an admin command) is done
before.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from pipeline.client.subscribing.topics import create_partitioned_topic
from pipeline.config.stages import ALL_STAGES
from tests.support.jobs import PATIENCE_S, PROFILE, Process, main, said, signal_all, started, until
from tests.support.modules import ROOT

PRODUCE_AND_CONSUME = """
import time
from datetime import timedelta

import pulsar

client = pulsar.Client('pulsar://localhost:6650')

dead = client.subscribe('my-topic-dlq', 'support', consumer_type=pulsar.ConsumerType.Shared,
                        initial_position=pulsar.InitialPosition.Earliest)
consumer = client.subscribe(
    'my-topic',
    'my-subscription',
    consumer_type=pulsar.ConsumerType.Shared,
    initial_position=pulsar.InitialPosition.Earliest,
    negative_ack_redelivery_delay_ms=1000,
    dead_letter_policy=pulsar.ConsumerDeadLetterPolicy(max_redeliver_count=1, dead_letter_topic='my-topic-dlq'))

producer = client.create_producer('my-topic', block_if_queue_full=True, batching_enabled=True,
                                  batching_max_publish_delay_ms=10)


def send_callback(res, msg_id):
    if res != pulsar.Result.Ok:
        print('Failed: %s' % res)


for i in range(10):
    producer.send_async(('Hello-%d' % i).encode('utf-8'), send_callback)
producer.flush()
begin = time.time()
producer.send('after'.encode('utf-8'), deliver_after=timedelta(seconds=3))
producer.send('at'.encode('utf-8'), deliver_at=int(begin * 1000) + 3000, partition_key='key', properties={'k': 'v'})

handled = 0
while handled < 13:
    msg = consumer.receive()
    handled += 1
    try:
        if msg.data().decode('utf-8') == 'Hello-7':
            raise ValueError('failed to process')
        if msg.data() == b'at':
            print('at', msg.partition_key(), msg.properties(), time.time() - begin >= 3)
        print("Received message '{}' id='{}'".format(msg.data().decode('utf-8'), type(msg.message_id()).__name__))
        # Acknowledge successful processing of the message
        consumer.acknowledge(msg)
    except Exception:
        # Message failed to be processed
        consumer.negative_acknowledge(msg)

msg = dead.receive()
print('Dead letter: %s' % msg.data().decode('utf-8'))
dead.acknowledge(msg)
try:
    consumer.receive(timeout_millis=500)
except pulsar.Timeout:
    print('Nothing more')
consumer.close()
client.close()
"""
READ = """
import pulsar

client = pulsar.Client('pulsar://localhost:6650')
msg_id = pulsar.MessageId.earliest
reader = client.create_reader('my-topic', msg_id)
found = []
while len(found) < 12:
    msg = reader.read_next()
    found.append(msg.data().decode('utf-8'))
print(sorted(found), reader.has_message_available())
client.close()
"""
PARTITIONS_AND_SCHEMA = """
from pulsar import Client, ConsumerType, InitialPosition, schema

client = Client('pulsar://localhost:6650')
consumer = client.subscribe('partitioned', 'test', consumer_type=ConsumerType.KeyShared,
                            schema=schema.StringSchema(), initial_position=InitialPosition.Earliest)
producer = client.create_producer('partitioned', schema=schema.StringSchema())
for i in range(12):
    producer.send_async('hello-%d' % i, callback=None, partition_key=str(i % 4))
producer.flush()
print(sorted(client.get_topic_partitions('partitioned')))
topics = set()
for i in range(12):
    msg = consumer.receive()
    topics.add(msg.topic_name())
    print('receive msg "%s"' % msg.value())
    consumer.acknowledge(msg)
print(len(topics) > 1)
client.close()
"""
HELLOS = [f"Hello-{number}" for number in range(10)]


@dataclass(frozen=True)
class Service:
    """A service that runs, with the folder in which it was started, and its warehouse."""

    job: Process
    folder: Path
    warehouse: Path

    def rows(self, table: str) -> list[dict[str, Any]]:
        """A table's rows."""
        found: list[dict[str, Any]] = DeltaTable(self.warehouse / table).to_pyarrow_table().to_pylist()
        return found

    def delivered(self, topic: str) -> list[dict[str, Any]]:
        """What was delivered of a topic so far."""
        return [row for row in self.rows("deliveries") if row["topic"] == topic]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One for all tests of this file: to start a JVM, and to bring the first message through it, takes half a minute.

    It makes its warehouse.
    """
    within = tmp_path_factory.mktemp("deliver")
    warehouse, folder, profile = within / "warehouse", within / "empty", within / "profile.toml"
    local = PROFILE.read_text(encoding="utf-8")
    profile.write_text(local.replace("[run]", '[run]\nprogress_log = "progress.jsonl"'), encoding="utf-8")
    # The second start with a cache would keep the classes, which takes its JVM a quarter of a minute at its end.
    variables = {"PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(within / "cache")}
    with started(main("deliver", warehouse, profile), folder, **variables) as job:
        until((warehouse / "_checkpoints/dispatch/offsets").exists, job, folder)
        yield Service(job, folder, warehouse)


def printed(program: str, warehouse: Path) -> list[str]:
    """The lines that a program printed, with its import and its address changed."""
    door = "from pipeline.client import public as pulsar"
    text = program.replace("import pulsar\n", f"{door}\n").replace("from pulsar import", "from delayline import")
    text = text.replace("pulsar://localhost:6650", f"file://{warehouse}")
    # Where nothing is installed, the door of the client has another name.
    words = "import sys\nfrom pipeline.client import public\nsys.modules['delayline'] = public\n"
    done = subprocess.run(  # noqa: S603 - our own words
        [sys.executable, "-c", words + text], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_program_for_the_reference_produces_consumes_fails_and_reads(service: Service) -> None:
    """With delays, a negative acknowledgement, a dead letter and a reader."""
    lines = printed(PRODUCE_AND_CONSUME, service.warehouse)
    received = [line for line in lines if line.startswith("Received")]
    good = [text for text in [*HELLOS, "after", "at"] if text != "Hello-7"]
    assert sorted(received) == sorted(f"Received message '{text}' id='MessageId'" for text in good)
    assert [line for line in lines if line not in received] == [
        "at key {'k': 'v'} True",
        "Dead letter: Hello-7",
        "Nothing more",
    ]
    assert printed(READ, service.warehouse) == [f"{sorted([*HELLOS, 'after', 'at'])} False"]


def test_a_program_for_the_reference_works_with_partitions_and_a_schema(service: Service) -> None:
    """One producer and one consumer of all partitions; content is text on both sides."""
    create_partitioned_topic(str(service.warehouse), "partitioned", 3)
    lines = printed(PARTITIONS_AND_SCHEMA, service.warehouse)
    assert lines[0] == str([f"partitioned-partition-{number}" for number in range(3)])
    assert sorted(lines[1:-1]) == sorted(f'receive msg "hello-{number}"' for number in range(12))
    assert lines[-1] == "True"


def test_messages_arrive_on_the_wall_clock_and_a_signal_ends_the_job_well(service: Service) -> None:
    """Sent by delta-rs with delays of seconds: each comes once, none is shown early, and SIGTERM gives exit code 0.

    The signal goes to Python, the JVM and the workers at once, as systemd sends it, and nobody complains. Who watches
    has heard of every batch meanwhile, and none lost a row behind its watermark.
    """
    job, folder, warehouse = service.job, service.folder, service.warehouse
    who = {"topic": ["t"], "subscription": ["s"], "type": ["shared"], "start": ["earliest"], "tick_ms": [100]}
    registered = pa.table({**who, "policies": pa.nulls(1, pa.map_(pa.string(), pa.string())), "active": [True]})
    write_deltalake(warehouse / "subscriptions", registered, mode="append")
    delays = pa.table({"topic": ["t"] * 10, "deliver_after_ms": [i * 500 for i in range(10)]})
    sent = delays.append_column("payload", pa.array([b"%d" % i for i in range(10)]))
    write_deltalake(warehouse / "inbox", sent, mode="append", schema_mode="merge")
    until(lambda: len(service.delivered("t")) >= 10, job, folder)
    seen_at = datetime.now(UTC)
    signal_all(job.pid, signal.SIGTERM)
    assert job.wait(timeout=PATIENCE_S) == 0, said(folder)
    assert "Traceback" not in said(folder)
    deliveries = service.delivered("t")
    assert sorted(int(row["payload"]) for row in deliveries) == list(range(10))
    # The schedule runs ahead of the wall clock; what it released is shown when it is due.
    assert all(row["deliver_at"] <= row["due_time"] <= min(row["released_at"], seen_at) for row in deliveries)
    published = service.rows("publications")
    assert sum(row["count"] for row in published) == len(service.rows("deliveries"))
    assert all(row["last_due"] <= row["committed_at"] for row in published)
    batches = [json.loads(line) for line in (folder / "progress.jsonl").read_text(encoding="utf-8").splitlines()]
    assert {batch["stage"] for batch in batches} == set(ALL_STAGES)
    assert sum(batch["rows"] for batch in batches if batch["stage"] == "ingest") == len(service.rows("inbox"))
    assert all(batch["dropped"] == 0 for batch in batches)
