"""A program in the words of the reference's public documentation of its Python client, on a service that runs.

Only its import and its address are changed. What the reference does elsewhere (partitions are made by an admin command)
is done before.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.client.create import create_all
from pipeline.client.subscribing.topics import create_partitioned_topic
from tests.support.jobs import PATIENCE_S, main, started
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


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A warehouse whose service runs."""
    folder = tmp_path_factory.mktemp("reference")
    root = folder / "warehouse"
    create_all(str(root))
    create_partitioned_topic(str(root), "partitioned", 3)
    with started(main("deliver", root), folder / "service", PYTHONPATH=str(ROOT)):
        yield root


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


def test_a_program_for_the_reference_produces_consumes_fails_and_reads(warehouse: Path) -> None:
    """With delays, a negative acknowledgement, a dead letter and a reader."""
    lines = printed(PRODUCE_AND_CONSUME, warehouse)
    received = [line for line in lines if line.startswith("Received")]
    good = [text for text in [*HELLOS, "after", "at"] if text != "Hello-7"]
    assert sorted(received) == sorted(f"Received message '{text}' id='MessageId'" for text in good)
    assert [line for line in lines if line not in received] == [
        "at key {'k': 'v'} True",
        "Dead letter: Hello-7",
        "Nothing more",
    ]
    assert printed(READ, warehouse) == [f"{sorted([*HELLOS, 'after', 'at'])} False"]


def test_a_program_for_the_reference_works_with_partitions_and_a_schema(warehouse: Path) -> None:
    """One producer and one consumer of all partitions; content is text on both sides."""
    lines = printed(PARTITIONS_AND_SCHEMA, warehouse)
    assert lines[0] == str([f"partitioned-partition-{number}" for number in range(3)])
    assert sorted(lines[1:-1]) == sorted(f'receive msg "hello-{number}"' for number in range(12))
    assert lines[-1] == "True"
