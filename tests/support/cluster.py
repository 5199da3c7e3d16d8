"""A job on a standalone cluster whose nodes have what README asks of them: submitted, fed, looked at."""

from __future__ import annotations

import random
import subprocess
import sys
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from importlib.metadata import distribution, files
from pathlib import Path
from secrets import token_hex
from threading import Event, Thread

from benchmarks.support import standalone
from benchmarks.support.way import appended
from pipeline.client.producing.inbox import OutgoingMessage, send
from pipeline.config.sparkversion import delta_package
from schemas import DELIVERIES
from tests.support.alone import alone
from tests.support.jobs import PROFILE, Process, started
from tests.support.modules import ROOT
from tests.support.pages import block_of, span_of
from tests.support.spark import QUICK_JVM

NODE_PACKAGES = ("numpy", "pandas", "pyarrow", "pyroaring")
"""What README asks of the nodes of a cluster."""
NODE_DEPENDS = ("python-dateutil", "pytz", "six", "tzdata")
"""What pandas brings."""
LONGEST_MS, PAUSE_S, SENT = 4_000, 0.5, 50
"""The longest delay of a producer, the pause between two appends, and messages in one."""
_JVMS = ("driver", "executor")
_COARSE_MS = 10
"""The time of a file is that of the last tick of the kernel's clock."""


def package(folder: Path) -> Path:
    """The zip for --py-files, as `make dist` builds it, with the interpreter that runs the tests."""
    path = folder / "dist" / "delayline.zip"
    settings = [f"PY={sys.executable}", f"DIST={path}", "--old-file=.venv/.core.stamp"]
    with alone("build"):  # it is done in the tree
        subprocess.run(["make", "--silent", "dist", *settings], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)  # noqa: S603, S607
    return path


def node_python(folder: Path) -> Path:
    """The Python of the nodes: an environment with what README asks of them, and nothing else."""
    venv.create(folder, with_pip=False, symlinks=True)
    site = next((folder / "lib").glob("python*")) / "site-packages"
    for name in (*NODE_PACKAGES, *NODE_DEPENDS):
        for file in {each.parts[0] for each in files(name) or ()} - {"..", "__pycache__"}:
            (site / file).symlink_to(Path(str(distribution(name).locate_file(file))))
    return folder / "bin" / "python"


@dataclass(frozen=True)
class Site:
    """A cluster, and what is submitted to it."""

    cluster: standalone.Cluster
    package: Path
    python: Path
    conf: Path

    @contextmanager
    def submitted(self, warehouse: Path, folder: Path, **conf: str) -> Iterator[Process]:
        """`jobs/deliver.py` as README says, with settings of Spark; its driver runs in an empty folder, here."""
        words = ["--py-files", str(self.package), str(self.package.parent / "jobs" / "deliver.py")]
        words += ["--profile", str(PROFILE), "--warehouse", str(warehouse)]
        usual = {"spark.driver.memory": "1g"} | {f"spark.{each}.extraJavaOptions": QUICK_JVM for each in _JVMS}
        command = standalone.submit(self.cluster.url, [delta_package()], usual | conf, words)
        variables = {"PYSPARK_PYTHON": str(self.python), "PYSPARK_DRIVER_PYTHON": sys.executable}
        variables |= {"SPARK_HOME": str(standalone.HOME), "SPARK_LOCAL_IP": standalone.HERE, "PYTHONPATH": ""}
        variables["SPARK_CONF_DIR"] = str(self.conf)
        with started(command, folder, **variables) as process:
            yield process


def secured(folder: Path, private: Path) -> Path:
    """The folder of `conf/spark-defaults.conf`, in which somebody has done what `docs/security.md` says.

    Args:
        folder: where it is made, for this user alone.
        private: a folder on each node, of this user alone.
    """
    values = {line.split()[0]: "" for line in block_of("security.md", "spark.authenticate.secret")}
    values["spark.authenticate.secret"] = token_hex(32)
    values |= {
        span_of("security.md", each): str(private) for each in ("spark.local.dir", "spark.python.unix.domain.socket.d")
    }
    file = folder / "spark-defaults.conf"
    folder.mkdir(mode=0o700)
    file.touch(mode=0o600)
    for line in (ROOT / "conf" / file.name).read_text(encoding="utf-8").splitlines():
        name, *value = line.removeprefix("#").split(" ", 1)
        found = values.pop(name, None) if line.startswith("#spark.") else None
        said = line if found is None else f"{name} {found or value[0]}"
        with file.open("a", encoding="utf-8") as out:
            out.write(f"{said}\n")
    assert not values, values
    return folder


@contextmanager
def site(folder: Path, workers: int, private: Path | None = None) -> Iterator[Site]:
    """A cluster with so many workers of one core, the zip, and the Python of the nodes.

    Args:
        folder: where all of it lies.
        workers: how many.
        private: what the sockets and what is spilled lie in; with it the cluster asks for a secret.
    """
    shipped, python = package(folder), node_python(folder / "env")
    conf = standalone.HOME / "conf" if private is None else secured(folder / "conf", private)
    # Workers hand their environment down: nothing of ours may be found there.
    variables = {"PYTHONPATH": "", "PYSPARK_PYTHON": str(python), "SPARK_DAEMON_JAVA_OPTS": QUICK_JVM}
    variables["SPARK_CONF_DIR"] = str(conf)
    with standalone.cluster(folder / "cluster", workers, environment=variables) as found:
        yield Site(found, shipped, python, conf)


@dataclass
class Stream:
    """A producer in a thread: small appends with delays up to `LONGEST_MS`, from the begin of the block to its end."""

    warehouse: Path
    sent: int = 0
    _over: Event = field(default_factory=Event)
    _thread: Thread = field(default_factory=Thread)

    @contextmanager
    def flowing(self) -> Iterator[Stream]:
        """Send until the block ends."""
        self._over.clear()
        self._thread = Thread(target=self._run)
        self._thread.start()
        try:
            yield self
        finally:
            self.end()

    def end(self) -> None:
        """End it before the block does."""
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        drawn = random.Random(self.sent)  # noqa: S311 - delays
        while not self._over.wait(PAUSE_S):
            numbers = range(self.sent, self.sent + SENT)
            delays = (drawn.randrange(LONGEST_MS) for _ in numbers)
            send(
                str(self.warehouse),
                [OutgoingMessage("t", b"%d" % n, deliver_after_ms=ms) for n, ms in zip(numbers, delays, strict=False)],
            )
            self.sent += SENT


def early(warehouse: Path) -> list[datetime]:
    """Due times of deliveries that were visible before them, by the times of the files of the log."""
    found = []
    for ms, rows in appended(str(warehouse), DELIVERIES, ["due_time", "deliver_at"]):
        dues = [row["deliver_at"] or row["due_time"] for row in rows.to_pylist()]
        found += [due for due in dues if due.timestamp() * 1_000 > ms + _COARSE_MS]
    return found
