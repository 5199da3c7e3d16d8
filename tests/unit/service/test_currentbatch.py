"""The error that a user sees when memory ends: which files, which setting, and not what fails in its wake."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

pytest.importorskip("pyspark", reason="batches are Spark's")
from py4j.protocol import Py4JError  # type: ignore[import-untyped]

from jobs.commands.failures import explain
from pipeline.config.errors import MemoryEnded, StageRunning
from pipeline.delta.checkpoints import Position
from pipeline.delta.warehouse import Warehouse
from pipeline.service.currentbatch import AtWork, memory_ended
from pipeline.service.process import serve
from pipeline.service.run import Stage
from pipeline.service.stopfile import StopFile
from pipeline.storage.files import Files
from schemas import INBOX
from state.units import EPOCH


class Log:
    """A batch that begins at the first version of a table, and ends behind the second."""

    owner, path = "o", "/checkpoint"

    def __init__(self, last: int = 2) -> None:
        """A log that has batches up to this one."""
        self.last = last

    def batches(self) -> range:
        """Those that it has."""
        return range(self.last + 1)

    def start(self, _: int) -> Position:
        """Where it begins."""
        return Position(EPOCH, 0, -1)

    def position(self, _: int) -> Position:
        """Where it ends."""
        return Position(EPOCH, 2, -1)


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AtWork:
    """Ingest, at a batch of two versions of one file and four."""
    monkeypatch.setattr(Warehouse, "files", Files())
    log = tmp_path / INBOX.name / "_delta_log"
    log.mkdir(parents=True)
    for version, sizes in enumerate(([54_000_000], [1_000_000, 3_000_000, 2_000_000, 4_000_000])):
        files = ({"path": f"{size}.parquet", "size": size, "dataChange": True} for size in sizes)
        (log / f"{version:020d}.json").write_text("\n".join(json.dumps({"add": file}) for file in files))

    def body(*_: object) -> None:
        raise MemoryError

    spark: Any = SimpleNamespace(conf={"spark.driver.memory": "2g"})
    found = AtWork(Warehouse(str(tmp_path), spark), "ingest", body, cast("Any", Log()))
    assert found.files is None
    with pytest.raises(MemoryError):
        found(cast("Any", None), 3)
    return found


NAMED = "inbox: 54000000.parquet (54 MB), 4000000.parquet (4 MB), 3000000.parquet (3 MB), 2 more"


def test_the_largest_files_of_the_batch_are_named(work: AtWork) -> None:
    """Who appended them knows what is in them; the log is read without the JVM, which may be gone."""
    assert work.files == NAMED


@pytest.mark.parametrize("first", [ConnectionRefusedError(), Py4JError("An error occurred while calling o1.isActive")])
def test_a_jvm_that_is_gone_is_told_with_what_the_stage_was_at(work: AtWork, tmp_path: Path, first: Exception) -> None:
    """Every call into it is refused from then on: that is no news, and not what the user is told."""

    class Query:
        @property
        def isActive(self) -> bool:  # noqa: N802 - Spark's name
            raise first

    stage = Stage(
        "ingest", cast("Any", Query()), cast("Any", None), None, work, again=lambda: pytest.fail("started again")
    )
    asked: Any = SimpleNamespace(wait=lambda _: False)
    with pytest.raises(MemoryEnded) as ended:
        serve([stage], asked, StopFile(str(tmp_path)))
    assert (ended.value.stage, ended.value.files, ended.value.memory) == ("ingest", NAMED, "2g")
    try:
        try:
            raise ended.value
        finally:
            stage.query.isActive  # noqa: B018 - what a session does on its way out
    except (ConnectionRefusedError, Py4JError) as error:
        code, said = explain(error)
    assert (code, said) == (1, str(ended.value))
    assert "session.memory = 2g" in said


@pytest.mark.parametrize(
    ("text", "ended"),
    [
        ("java.lang.OutOfMemoryError: Java heap space", True),
        ("SparkException: Python worker exited unexpectedly (crashed)", True),
        ("pyarrow.lib.ArrowMemoryError: malloc of size 9 failed", True),
        ("java.io.FileNotFoundException: gone.parquet", False),
    ],
)
def test_errors_of_memory_are_known_by_their_names(text: str, ended: bool) -> None:  # noqa: FBT001 - a case
    """Of the JVM, of a worker, and of this process."""
    assert memory_ended(text) is ended


def test_a_stage_is_not_started_again_when_another_process_has_gone_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """While this one was cut off from the store. What Spark has logged for the next batch is still its own."""
    monkeypatch.setattr(Warehouse, "files", Files())
    spark: Any = SimpleNamespace(conf={})
    log = Log(last=4)
    work = AtWork(Warehouse("/warehouse", spark), "ingest", lambda *_: None, cast("Any", log))
    work(cast("Any", None), 5)
    log.last = 6
    work.check_alone()
    log.last = 7
    with pytest.raises(StageRunning, match="at batch 7, and was left at 5"):
        work.check_alone()
