"""A Pulsar broker on this machine: standalone, from packages alone.

The distribution comes from Maven Central by the Ivy that Spark brings. `Broker` can be killed and started again at its
ports, with what it had on its disk.
"""

from __future__ import annotations

import json
import os
import shutil
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from functools import cache
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from uuid import uuid4

import pulsar

from benchmarks.support.brokers import FOLDER, QUICK_START, Server, fetched, free_port, java, running

VERSION = "4.0.8"
_REGISTERED = 20
"""A bookie that comes and stays is noticed four times."""
_IVY = """<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
<info organisation="delayline" module="tests"/>
<dependencies><dependency org="org.apache.pulsar" name="pulsar-server-distribution" rev="{version}" transitive="false">
<artifact name="pulsar-server-distribution" type="tar.gz" ext="tar.gz" m:classifier="bin"/>
</dependency></dependencies></ivy-module>"""
_SETTINGS = """
brokerServicePort={port}
webServicePort={web}
bindAddress=127.0.0.1
advertisedAddress=127.0.0.1
listeningInterface=lo
allowLoopback=true
numIOThreads=2
numHttpServerThreads=8
numOrderedExecutorThreads=2
bookkeeperClientNumWorkerThreads=2
bookkeeperClientNumIoThreads=2
managedLedgerCacheSizeMB=32
dbStorage_writeCacheMaxSizeMb=32
dbStorage_readAheadCacheMaxSizeMb=16
dbStorage_rocksDB_blockCacheSize=8388608
delayedDeliveryTickTimeMillis={tick}
isDelayedDeliveryDeliverAtTimeStrict=true
allowAutoTopicCreation=false
transactionCoordinatorEnabled=false
systemTopicEnabled=true
topicLevelPoliciesEnabled=true
"""
_OPENED = (
    *("java.base/java.io", "java.base/java.util.zip", "java.base/java.nio", "java.base/jdk.internal.misc"),
    *("java.base/jdk.internal.platform", "java.management/sun.management"),
    "jdk.management/com.sun.management.internal",
)
TENANT = "public/default"
DEDUPLICATED = "public/once"
"""A namespace whose topics drop what they have already."""


class Broker(Server):
    """A process with its folder."""

    def __init__(self, folder: Path, home: Path, tick_ms: int = 1_000) -> None:
        """Choose ports, and make an empty disk."""
        super().__init__(folder)
        self._home = home
        self.port, self.web = free_port(), free_port()
        ours = dict(line.split("=") for line in _SETTINGS.format(port=self.port, web=self.web, tick=tick_ms).split())
        theirs = (home / "conf" / "standalone.conf").read_text().splitlines()
        kept = [line for line in theirs if line.partition("=")[0] not in ours]
        (folder / "standalone.conf").write_text("\n".join([*kept, *(f"{key}={each}" for key, each in ours.items())]))

    @property
    def service(self) -> str:
        """How clients name it."""
        return f"pulsar://127.0.0.1:{self.port}"

    @property
    def admin_url(self) -> str:
        """Where its REST interface is."""
        return f"http://127.0.0.1:{self.web}"

    def is_up(self) -> bool:
        """Whether it takes messages. It answers before it has a namespace, and before its bookie takes a ledger."""
        with suppress(OSError, ValueError):
            if TENANT in self.admin("GET", "namespaces/public", expected=(200, 404, 500, 503)):
                self._namespaces()
                self.admin("DELETE", f"persistent/{self.create(f'up-{uuid4().hex}')}")
                return True
        return False

    def is_stuck(self) -> bool:
        """Whether its bookie comes and goes.

        One that was killed leaves its registration in RocksDB. Now and then the next process takes its own one for it,
        and removes and makes it without an end, many times a second (apache/pulsar#17759). It says this line each time.
        """
        return self.said().count("Failed to resolve network location") > _REGISTERED

    def admin(self, method: str, path: str, body: object = None, expected: tuple[int, ...] = (200, 204)) -> Any:  # noqa: ANN401 - JSON
        """Ask the REST interface; the answer as JSON, or as text where it is none."""
        status, content, _ = self._asked(method, path, body)
        if status not in expected:
            raise ValueError(f"{method} {path}: {status} {content}")
        try:
            return json.loads(content)
        except ValueError:
            return content

    def _asked(self, method: str, path: str, body: object = None) -> tuple[int, str, Mapping[str, str]]:
        text = None if body is None else json.dumps(body)
        with closing(HTTPConnection("127.0.0.1", self.web, timeout=30)) as connection:
            connection.request(method, f"/admin/v2/{path}", text, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, answer.read().decode(errors="replace"), dict(answer.getheaders())

    def create(self, topic: str, partitions: int = 0, namespace: str = TENANT) -> str:
        """Make a topic; give its name with its namespace."""
        where = f"persistent/{namespace}/{topic}"
        if partitions:
            self.admin("PUT", f"{where}/partitions", partitions)
        else:
            self.admin("PUT", where)
        return f"{namespace}/{topic}"

    @contextmanager
    def connected(self) -> Iterator[Any]:
        """A client."""
        found = pulsar.Client(self.service, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull))
        try:
            yield found
        finally:
            found.close()

    def read(self, topic: str) -> list[Any]:
        """All messages of a topic or of a partition, from its beginning, whether they are due or not."""
        with self.connected() as found:
            reader = found.create_reader(f"persistent://{topic}", pulsar.MessageId.earliest)
            messages = list[Any]()
            while reader.has_message_available():
                messages.append(reader.read_next(30_000))
            return messages

    def ids(self, topic: str) -> list[tuple[str, str]]:
        """Who has sent each message, and its sequence id: Java's consumers see both, and the client here does not."""
        found = list[tuple[str, str]]()
        for message in self.read(topic):
            at = message.message_id()
            _, _, known = self._asked("GET", f"persistent/{topic}/ledger/{at.ledger_id()}/entry/{at.entry_id()}")
            found.append((known["X-Pulsar-producer-name"], known["X-Pulsar-sequence-id"]))
        return found

    def _namespaces(self) -> None:
        self.admin("PUT", f"namespaces/{DEDUPLICATED}", expected=(204, 409))
        self.admin("POST", f"namespaces/{DEDUPLICATED}/deduplication", body=True)

    def command(self) -> list[str]:
        """See `Server`."""
        folder, opened = self.folder, [word for each in _OPENED for word in ("--add-opens", f"{each}=ALL-UNNAMED")]
        path = f"{self._home}/conf:{self._home}/lib/*"
        logs = ["-Dpulsar.log.appender=Console", "-Dpulsar.routing.appender.default=Console", "-Dpulsar.log.level=warn"]
        words = ["--config", f"{folder}/standalone.conf", "-nfw", "-nss", "-a", "127.0.0.1"]
        disks = ["--metadata-dir", f"{folder}/metadata", "--bookkeeper-dir", f"{folder}/bookkeeper"]
        memory = ["-Xmx512m", "-XX:MaxDirectMemorySize=256m", *QUICK_START]
        main = [f"-Dpulsar.config.file={folder}/standalone.conf", "org.apache.pulsar.PulsarStandaloneStarter"]
        return [java(), *memory, *logs, "-Dpulsar.log.root.level=warn", *opened, "-cp", path, *main, *words, *disks]


def broker(folder: Path, tick_ms: int = 1_000) -> AbstractContextManager[Broker]:
    """A broker that runs, and is ended.

    Raises:
        NoJava: there is no Java.
    """
    return running(Broker(folder, home(), tick_ms))


@cache
def home() -> Path:
    """The distribution, unpacked; the first call on a machine downloads it."""
    found = FOLDER / f"apache-pulsar-{VERSION}"
    if found.exists():
        return found
    java()
    FOLDER.mkdir(parents=True, exist_ok=True)
    wanted, mine = FOLDER / f"pulsar-{os.getpid()}.xml", FOLDER / f"pulsar-{os.getpid()}"
    wanted.write_text(_IVY.format(version=VERSION))
    try:
        with tarfile.open(fetched(f"pulsar-{VERSION}", "-ivy", str(wanted))) as archive:
            parts = ("conf", "lib")
            archive.extractall(
                mine, [each for each in archive if each.name.split("/")[1:2] in [[p] for p in parts]], filter="data"
            )
        with suppress(OSError):  # another process was faster
            (mine / found.name).rename(found)
    finally:
        wanted.unlink()
        shutil.rmtree(mine, ignore_errors=True)
    return found
