"""The mains as processes of their own: on a small cluster, and what they refuse with one line and an exit code."""

from __future__ import annotations

import signal
import subprocess
import sys
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import distribution, files
from pathlib import Path

import pyspark
import pytest

from pipeline.client.inbox import Message, send
from pipeline.client.subscriptions import Subscription, subscribe
from pipeline.delta.warehouse import Warehouse
from pipeline.service.process import StopFile
from schemas import INBOX
from tests.support.jars import DELTA
from tests.support.jobs import (
    PATIENCE_S,
    PROFILE,
    Process,
    delivered,
    main,
    name_a_file_that_is_not_there,
    said,
    started,
    until,
    words_of_ours,
)
from tests.support.modules import ROOT

NODE_PACKAGES = ("numpy", "pandas", "pyarrow", "pyroaring")
"""What README asks of the nodes of a cluster."""
NODE_DEPENDS = ("python-dateutil", "pytz", "six", "tzdata")
"""What pandas brings."""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """The zip for --py-files, as `make dist` builds it, with the interpreter that runs the tests."""
    path = tmp_path / "dist" / "delayline.zip"
    settings = [f"PY={sys.executable}", f"DIST={path}", "--old-file=.venv/.core.stamp"]
    subprocess.run(["make", "--silent", "dist", *settings], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)  # noqa: S603, S607
    return path


@pytest.fixture
def spark_home(tmp_path: Path) -> Path:
    """An installation of Spark of our own, by links: workers of a local cluster write into it."""
    home = tmp_path / "spark"
    home.mkdir()
    for part in Path(pyspark.__file__).parent.iterdir():
        (home / part.name).symlink_to(part)
    return home


@pytest.fixture(scope="session")
def node_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of the nodes: an environment with what README asks of them, and nothing else."""
    folder = tmp_path_factory.mktemp("node") / "env"
    venv.create(folder, with_pip=False, symlinks=True)
    site = next((folder / "lib").glob("python*")) / "site-packages"
    for name in (*NODE_PACKAGES, *NODE_DEPENDS):
        for file in {each.parts[0] for each in files(name) or ()} - {"..", "__pycache__"}:
            (site / file).symlink_to(Path(str(distribution(name).locate_file(file))))
    return folder / "bin" / "python"


@contextmanager
def submitted(
    job: str, warehouse: Path, package: Path, home: Path, folder: Path, python: Path = Path(sys.executable)
) -> Iterator[Process]:
    """A job on two executors with three state stores, which know the project by the zip alone; in an empty folder."""
    cluster = ["--master", "local-cluster[2,1,1024]", "--packages", DELTA, "--py-files", str(package)]
    cluster += ["--conf", "spark.sql.shuffle.partitions=3"]
    words = [str(package.parent / "jobs" / f"{job}.py"), "--profile", str(PROFILE), "--warehouse", str(warehouse)]
    told = {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": str(python), "PYTHONPATH": ""}
    told["PYSPARK_DRIVER_PYTHON"] = sys.executable
    with started([str(home / "bin" / "spark-submit"), *cluster, *words], folder, **told) as process:
        yield process


def test_a_submitted_job_delivers_in_order_and_ends_well_on_a_signal(
    tmp_path: Path, package: Path, spark_home: Path, node_python: Path
) -> None:
    """On a cluster whose nodes have four packages and the zip; supervisors take anything but 0 for a failure."""
    warehouse, folder = tmp_path / "warehouse", tmp_path / "empty"
    with submitted("deliver", warehouse, package, spark_home, folder, node_python) as job:
        until((warehouse / "_checkpoints/dispatch/offsets").exists, job, folder)
        subscribe(str(warehouse), Subscription("t", "s", start="earliest", tick_ms=1))
        send(str(warehouse), [Message("t", b"%d" % i, deliver_after_ms=1_000 * (2 - i)) for i in range(3)])
        until(lambda: len(delivered(warehouse)) >= 3, job, folder)
        job.send_signal(signal.SIGTERM)
        assert job.wait(timeout=PATIENCE_S) == 0, said(folder)
    assert delivered(warehouse) == ["2", "1", "0"]
    assert words_of_ours(folder) == []
    assert "Chosen for 1,000 messages a second, segments of 5m, 2 cores" in said(folder)
    # What spark-submit is given wins over what a start would choose.
    assert "session.partitions" not in said(folder)
    offsets = (warehouse / "_checkpoints/schedule/offsets/0").read_text(encoding="utf-8")
    assert '"spark.sql.shuffle.partitions":"3"' in offsets


def test_a_stop_file_ends_a_stage_well_and_a_lost_file_ends_it_with_the_reason(tmp_path: Path) -> None:
    """Exit codes 0 and 1; a stage alone, without spark-submit. An old request does not stop a new process."""
    warehouse, first, second = (tmp_path / name for name in ("warehouse", "first", "second"))
    with started(main("ingest", warehouse), first, PYTHONPATH=str(ROOT)) as job:
        until((warehouse / "_checkpoints/ingest/commits/0").exists, job, first)
        StopFile(Warehouse(str(warehouse))).ask()
        assert job.wait(timeout=PATIENCE_S) == 0, said(first)
    with started(main("ingest", warehouse), second, PYTHONPATH=str(ROOT)) as job:
        name_a_file_that_is_not_there(warehouse / INBOX.name)
        assert job.wait(timeout=PATIENCE_S) == 1, said(second)
    assert words_of_ours(first) == []
    (reason,) = words_of_ours(second)
    assert reason.startswith("delayline: stage ingest: ")
    assert "gone.parquet" in reason


@pytest.mark.parametrize(
    "profile", ["[settings]\nhorizon_ms = -1", "[settings]\nhorizont_ms = 1", "[clock", '[settings]\npartitions = "2"']
)
def test_a_bad_profile_is_refused_with_one_line(tmp_path: Path, profile: str) -> None:
    """Before anything is started: the exit code is 2, and the line names the file."""
    path = tmp_path / "bad.toml"
    path.write_text(profile, encoding="utf-8")
    with started(main("deliver", tmp_path / "w", path), tmp_path / "empty", PYTHONPATH=str(ROOT)) as job:
        assert job.wait(timeout=PATIENCE_S) == 2
    lines = said(tmp_path / "empty").splitlines()
    assert len(lines) == 1
    assert str(path) in lines[0]
    assert not (tmp_path / "w").exists()


def test_without_java_there_is_one_line_and_no_stack_trace(tmp_path: Path) -> None:
    """Whoever lacks it reads what to install."""
    nowhere = {"JAVA_HOME": str(tmp_path / "nowhere"), "PYTHONPATH": str(ROOT)}
    with started(main("schedule", tmp_path / "w"), tmp_path / "empty", **nowhere) as job:
        assert job.wait(timeout=PATIENCE_S) == 2
    lines = said(tmp_path / "empty").splitlines()
    assert len(lines) == 1
    assert "Java 17" in lines[0]
