"""A Kafka broker on this machine: one node, from packages alone.

The JARs come from Maven Central by the Ivy that Spark brings. `Broker` can be killed and started again at its port,
with what it had on its disk.
"""

from __future__ import annotations

import subprocess
from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path
from typing import Any

import confluent_kafka
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from benchmarks.support.brokers import QUICK_START, Server, fetched, free_port, java, running

VERSION = "4.2.0"
_PATIENCE_S = 60
_CLUSTER = "delaylinedelaylinedelQ"
_PROPERTIES = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{control}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{control}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={folder}/logs
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
"""


class Broker(Server):
    """A process with its folder."""

    def __init__(self, folder: Path, jars: str) -> None:
        """Choose ports, and make an empty disk."""
        super().__init__(folder)
        self._jars = jars
        self.port, control = free_port(), free_port()
        self._properties = folder / "server.properties"
        self._properties.write_text(_PROPERTIES.format(port=self.port, control=control, folder=folder))
        words = ["format", "-t", _CLUSTER, "-c", str(self._properties)]
        subprocess.run(self._java("kafka.tools.StorageTool", *words), check=True, capture_output=True, cwd=folder)  # noqa: S603

    @property
    def servers(self) -> str:
        """How clients name it."""
        return f"127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        """See `Server`."""
        return self._java("kafka.Kafka", str(self._properties))

    def is_up(self) -> bool:
        """Whether it answers, and knows the places of consumer groups, which takes it longer."""
        consumer = confluent_kafka.Consumer({"bootstrap.servers": self.servers, "group.id": "up", **_QUIET})
        try:
            (place,) = consumer.committed([confluent_kafka.TopicPartition("any", 0)], timeout=1)
        except confluent_kafka.KafkaException:
            return False
        finally:
            consumer.close()
        return place.error is None

    def create(self, topic: str, partitions: int = 1, **settings: str) -> None:
        """Make a topic; the settings are named with `_` for `.`."""
        admin, options = self._admin(), {name.replace("_", "."): text for name, text in settings.items()}
        admin.create_topics([NewTopic(topic, partitions, 1, config=options)])[topic].result(_PATIENCE_S)

    def delete(self, topic: str) -> None:
        """Remove a topic."""
        admin = self._admin()
        admin.delete_topics([topic])[topic].result(_PATIENCE_S)

    def divide(self, topic: str, partitions: int) -> None:
        """Give a topic more partitions."""
        admin = self._admin()
        admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(_PATIENCE_S)

    def set(self, topic: str, **settings: str) -> None:
        """Give a topic other settings; they are named with `_` for `.`."""
        entries = [
            ConfigEntry(name.replace("_", "."), text, incremental_operation=AlterConfigOpType.SET)
            for name, text in settings.items()
        ]
        admin, wanted = self._admin(), ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        admin.incremental_alter_configs([wanted])[wanted].result(_PATIENCE_S)

    def forget(self, topic: str, partition: int, before: int) -> None:
        """Delete the records of a partition before an offset, as retention does."""
        admin, wanted = self._admin(), confluent_kafka.TopicPartition(topic, partition, before)
        admin.delete_records([wanted])[wanted].result(_PATIENCE_S)

    def send(self, topic: str, *records: dict[str, Any]) -> None:
        """Append records, and wait until the broker has them."""
        producer = confluent_kafka.Producer({"bootstrap.servers": self.servers, **_QUIET})
        for record in records:
            producer.produce(topic, **record)
        if producer.flush(_PATIENCE_S):
            raise TimeoutError("the broker does not answer")

    def read(self, topic: str, partitions: int = 1) -> list[Any]:
        """All committed messages of a topic, partition by partition."""
        options = {"bootstrap.servers": self.servers, "group.id": "reader", "isolation.level": "read_committed"}
        consumer = confluent_kafka.Consumer(
            {**options, "enable.partition.eof": True, "enable.auto.commit": False, **_QUIET}
        )
        consumer.assign([confluent_kafka.TopicPartition(topic, number, 0) for number in range(partitions)])
        found, ends = list[Any](), 0
        while ends < partitions:
            message = consumer.poll(_PATIENCE_S)
            if message is None:
                raise TimeoutError("the broker does not answer")
            if message.error() is None:
                found.append(message)
            elif message.error().code() == _END:
                ends += 1
            else:
                raise confluent_kafka.KafkaException(message.error())
        consumer.close()
        return sorted(found, key=lambda each: (each.partition(), each.offset()))

    def _admin(self) -> Any:  # noqa: ANN401 - an extra
        return AdminClient({"bootstrap.servers": self.servers, **_QUIET})

    def _java(self, main: str, *words: str) -> list[str]:
        return [java(), "-Xmx512m", *QUICK_START, "-cp", self._jars, main, *words]


_QUIET = {"log_level": 0}
_TO_THE_END = {"enable.partition.eof": True, "enable.auto.commit": False}
_END = confluent_kafka.KafkaError._PARTITION_EOF  # noqa: SLF001 - its public name


def broker(folder: Path) -> AbstractContextManager[Broker]:
    """A broker that runs, and is ended.

    Raises:
        NoJava: there is no Java.
    """
    return running(Broker(folder, jars()))


@cache
def jars() -> str:
    """The class path of a broker; the first call on a machine downloads it."""
    return fetched(f"kafka-{VERSION}", "-dependency", "org.apache.kafka", "kafka_2.13", VERSION)
