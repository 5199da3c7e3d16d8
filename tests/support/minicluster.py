"""YARN on this machine, as Hadoop's own tests have it (`hadoop-client-minicluster`)."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.support.standalone import HOME
from pipeline.config.sparkversion import hadoop
from tests.support.jars import fetch, place_of
from tests.support.jobs import signal_all
from tests.support.modules import ROOT

PACKAGES = (
    f"org.apache.hadoop:hadoop-client-minicluster:{hadoop()}",
    "org.junit.jupiter:junit-jupiter-api:5.11.4",
    "org.junit.platform:junit-platform-commons:1.11.4",
    "org.opentest4j:opentest4j:1.3.0",
    *(f"org.bouncycastle:{name}-jdk18on:1.78.1" for name in ("bcprov", "bcpkix", "bcutil")),
)
"""The cluster, and what it does not start without: it names no dependency on that."""
PATIENCE_S = 180
_SERVER = "org.apache.hadoop.yarn.server"
_OPENED = ("java.base/java.lang", "java.base/java.util", "java.base/java.util.concurrent", "java.base/java.net")
"""Packages of Java that Hadoop's libraries look into."""
_SETTINGS = {
    # A container may have more virtual memory than Java takes.
    "yarn.nodemanager.vmem-check-enabled": "false",
    "yarn.nodemanager.pmem-check-enabled": "false",
    "yarn.nodemanager.resource.memory-mb": "4096",
    "yarn.scheduler.minimum-allocation-mb": "256",
    "yarn.nodemanager.disk-health-checker.enable": "false",
    # The usual one wants its queues described.
    "yarn.resourcemanager.scheduler.class": f"{_SERVER}.resourcemanager.scheduler.fifo.FifoScheduler",
}


@contextmanager
def yarn(folder: Path, nodes: int) -> Iterator[Path]:
    """A cluster until the block ends; the folder for `HADOOP_CONF_DIR`, by which it is found."""
    fetch(*PACKAGES)
    conf, log = folder / "conf", folder / "log"
    conf.mkdir(parents=True)
    site = conf / "yarn-site.xml"
    with log.open("wb") as out:
        process = subprocess.Popen(  # noqa: S603 - our own
            command(folder, site, nodes),
            cwd=folder,
            stdout=out,
            stderr=out,
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
    try:
        _wait(process, site, log)
        yield conf
    finally:
        signal_all(process.pid, signal.SIGKILL)
        process.communicate()


def command(folder: Path, site: Path, nodes: int) -> list[str]:
    """What starts the cluster, which writes its settings into a file when it is up."""
    jars = os.pathsep.join([*map(str, map(place_of, PACKAGES)), f"{HOME}/jars/*"])
    java = ["java", "-Xmx512m", *(f"--add-opens={each}=ALL-UNNAMED" for each in _OPENED)]
    java += [f"-Dtest.build.data={folder}/data", f"-Dhadoop.log.dir={folder}/logs", "-cp", jars]
    stated = [f"{name}={value}" for name, value in _SETTINGS.items()]
    return [*java, str(ROOT / "tests" / "support" / "MiniYarn.java"), str(nodes), str(site), *stated]


def _wait(process: subprocess.Popen[bytes], site: Path, log: Path) -> None:
    end = time.monotonic() + PATIENCE_S
    while not (site.exists() and site.read_text(encoding="utf-8").rstrip().endswith("</configuration>")):
        if process.poll() is not None or time.monotonic() > end:
            raise ChildProcessError(log.read_text(errors="replace")[-4_000:])
        time.sleep(0.2)
