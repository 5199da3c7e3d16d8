"""What `run`, `replay` and `stop` decide before Spark starts or beside it. No Java."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import pytest

pytest.importorskip("typer", reason="the command needs requirements/all.lock")
pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the stages need requirements/all.lock")

from jobs.commands import replay, run
from jobs.commands.demo import Choices, FolderTaken
from jobs.commands.demo import run as demo
from jobs.commands.failures import explain, storage
from jobs.commands.java import NoJava
from jobs.commands.profiles import PROFILE, profile_from
from jobs.commands.run import Counts, StageFailed
from pipeline.client.create import create_all
from pipeline.client.producing.inbox import OutgoingMessage, send
from pipeline.config.errors import StageRunning
from pipeline.config.profiles import read_profile
from pipeline.config.settings import Upkeep
from pipeline.config.stages import STAGES
from pipeline.delta.warehouse import Warehouse
from pipeline.service.stopfile import StopFile
from pipeline.storage.locks import StageLock
from schemas import DELIVERIES, INBOX, MESSAGES, SUBSCRIPTIONS, TABLES, Table
from tests.support.client import new_warehouse
from tests.support.invoked import invoke

TRACE = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: [FOREACH_BATCH] SQLSTATE: 38000
=== Streaming Query ===
Identifier: delayline-ingest [id = 1, runId = 2]
py4j.Py4JException: An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):
  File "somewhere.py", line 617, in _call_proxy
    raise BadThing(f"a: b")
pipeline.errors.ClockJumped: wall clock jumped by 70000 ms, allowed: 60000 ms

	at py4j.Protocol.getReturnValue(Protocol.java:476)
"""
LOST = """An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):
  File "somewhere.py", line 327, in get_return_value
py4j.protocol.Py4JJavaError: An error occurred while calling o764.collectToPython.
: org.apache.spark.SparkException: [FAILED_READ_FILE.FILE_NOT_EXIST] Encountered error while reading file a.parquet.
	at org.apache.spark.Somewhere(Somewhere.scala:1)
Caused by: java.io.FileNotFoundException: File a.parquet does not exist
	... 34 more
"""


def test_the_reason_of_a_failed_stage_is_one_line() -> None:
    """Two languages' stack traces hold one sentence that somebody can act on."""
    text = str(StageFailed(TRACE))
    assert "\n" not in text
    assert text.startswith("[STREAM_FAILED] Query")
    assert text.endswith("... pipeline.errors.ClockJumped: wall clock jumped by 70000 ms, allowed: 60000 ms")
    assert "Identifier" not in text
    said = (
        "An exception was raised by the Python Proxy. ... java.io.FileNotFoundException: File a.parquet does not exist"
    )
    assert str(StageFailed(LOST)) == said
    assert str(StageFailed("first\n\npy4j.Py4JException: x")) == "first ... py4j.Py4JException: x"
    assert str(StageFailed("stage x: the query ended")) == "stage x: the query ended"
    plain = "first\n  File x\nKeyError: 'start'\n"
    assert str(StageFailed(plain)) == "first ... KeyError: 'start'"


def test_the_profile_of_run_is_one_that_can_be_read() -> None:
    """`run` needs no other option than the warehouse."""
    assert read_profile(PROFILE).machine.cores >= 1


def test_counts_follow_the_tables(tmp_path: Path) -> None:
    """The last line of a run reads the logs, and no data."""
    root = str(tmp_path)
    create_all(root)
    assert run.counts(root) == Counts(0, 0, 0, 0)
    send(root, [OutgoingMessage("t", b"")] * 3)
    assert run.counts(root) == Counts(3, 0, 0, 0)
    assert str(Counts(1_000, 2, 3, 4)) == "sent 1,000  accepted 2  rejected 3  delivered 4"


def test_a_warehouse_in_use_is_refused_before_spark_starts(tmp_path: Path) -> None:
    """Spark takes seconds to start; the answer is known before."""
    root = str(tmp_path)
    create_all(root)
    lock = StageLock(STAGES[1], f"{root}/_checkpoints")
    lock.take()
    with pytest.raises(StageRunning) as refused:
        run.run(root, profile_from(None), print)
    assert refused.value.stage == STAGES[1]
    assert f"(process {os.getpid()}); stop it with: delayline stop --warehouse {root}" in str(refused.value)
    lock.release()
    run._check_free(root)
    lock.take()
    lock.release()


def test_a_write_that_failed_for_the_disk_names_the_disk_and_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of three folders on two disks nobody can guess which one is full."""

    def disks(folder: str) -> os.statvfs_result:
        free, flags = (0, os.ST_RDONLY) if folder == str(tmp_path) else (1 << 30, 0)
        return os.statvfs_result((4_096, 4_096, 1 << 31, free, free, 1 << 20, 1 << 20, 1 << 20, flags, 255))

    monkeypatch.setattr(os, "statvfs", disks)
    full = storage("first\nCaused by: java.io.IOException: No space left on device", str(tmp_path))
    assert full is not None
    assert full.startswith(f"the disk of {tmp_path} is full (0.0 of ")
    assert "make room" in full
    assert storage("[Errno 30] Read-only file system: 'x'", str(tmp_path)) == (
        f"{tmp_path} is read-only; make it writable and start again, nothing is lost"
    )
    assert storage(TRACE, str(tmp_path)) is None
    code, said = explain(OSError("Generic LocalFileSystem error\n  Caused by: No space left on device (os error 28)"))
    assert (code, said.partition(" (")[0]) == (1, "the disk is full, make room and try again")


def test_stop_leaves_a_request_in_the_warehouse(tmp_path: Path) -> None:
    """For those who cannot send a signal to the process."""
    new_warehouse(str(tmp_path))
    assert invoke(["stop", "-w", str(tmp_path)]).exit_code == 0
    assert (tmp_path / "_control" / "stop").exists()


def test_nobody_looks_for_a_request_on_another_file_system() -> None:
    """Instead of a folder `hdfs:` in the one where the command was called."""
    found = invoke(["stop", "-w", "hdfs://host/warehouse"])
    assert found.exit_code == 2
    assert "warehouse = 'hdfs://host/warehouse', allowed: a folder of this machine, or s3" in found.stderr


@pytest.mark.parametrize(
    "words", [["send", "-t", "t", "hi"], ["pending"], ["doctor"], ["init"]], ids=lambda words: words[0]
)
def test_a_command_without_spark_asks_for_a_folder_that_it_reaches(tmp_path: Path, words: list[str]) -> None:
    """And does what it does on one."""
    refused = invoke([*words, "-w", "hdfs://host/warehouse"])
    assert refused.exit_code != 0
    assert "hdfs://host/warehouse" in refused.stderr
    assert "a folder of this machine" in refused.stderr
    assert invoke([*words, "-w", new_warehouse(tmp_path / "w")]).exit_code == 0


@pytest.mark.parametrize("form", ["{}", "file:{}", "file://{}"])
def test_a_lock_is_the_same_however_its_folder_is_written(tmp_path: Path, form: str) -> None:
    """Who starts a stage with another form of the path must not start it a second time."""
    holder = StageLock("ingest", str(tmp_path))
    holder.take()
    with pytest.raises(StageRunning):
        StageLock("ingest", form.format(tmp_path)).take()
    holder.release()


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EIO])
def test_a_file_system_without_locks_is_named_once_and_the_start_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, number: int
) -> None:
    """Many network disks have none. "Already running" would send the operator to look for a process that is not."""

    def refuse(_file: object, _how: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    for stage in STAGES:
        lock = StageLock(stage, str(tmp_path / str(number)))
        lock.take()
        lock.release()
    (said,) = caplog.messages
    assert str(tmp_path / str(number)) in said
    assert os.strerror(number) in said


@pytest.mark.parametrize("number", [errno.EAGAIN, errno.EACCES])
def test_a_lock_that_somebody_holds_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """File systems say it in one of two ways."""

    def refuse(_file: object, _how: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(StageRunning):
        StageLock(STAGES[0], str(tmp_path)).take()


def test_a_request_to_stop_counts_for_all_who_run_and_for_nobody_who_comes_later(tmp_path: Path) -> None:
    """Each stage may be a process of its own: the first to end takes nothing from the others."""
    warehouse = Warehouse(str(tmp_path))
    running = [StopFile(warehouse.root) for _ in range(3)]
    assert not any(each.asked for each in running)
    StopFile(warehouse.root).ask()
    assert all(each.asked for each in running)
    later = StopFile(warehouse.root)
    assert not later.asked
    StopFile(warehouse.root).ask()
    assert later.asked


@pytest.mark.parametrize(("name", "form"), [("a.parquet", "parquet"), ("a.json", "json"), ("a.jsonl", "json")])
def test_the_form_of_an_input_is_known_by_its_name(tmp_path: Path, name: str, form: str) -> None:
    """A folder with a Delta log is a table; files go by their ending."""
    (tmp_path / name).touch()
    assert replay.form_of(str(tmp_path / name)) == form
    (tmp_path / "table" / "_delta_log").mkdir(parents=True)
    assert replay.form_of(str(tmp_path / "table")) == "delta"


@pytest.mark.parametrize("name", ["a.csv", "missing.parquet", ""])
def test_an_input_that_cannot_be_read_is_refused_before_spark_starts(tmp_path: Path, name: str) -> None:
    """The message names the forms that are taken."""
    (tmp_path / "a.csv").touch()
    with pytest.raises(replay.BadInput) as refused:
        replay.form_of(str(tmp_path / name))
    assert refused.value.field == "input"
    words = ["replay", "-w", str(tmp_path), "--from", "2013-01-01", "--to", "2013-01-02", "--step", "1d"]
    assert invoke([*words, "--input", str(tmp_path / name)]).exit_code == 1


@pytest.mark.parametrize(("last", "step"), [("2012-12-31", "1d"), ("2013-01-02", "0s")])
def test_a_course_that_goes_nowhere_is_wrong_usage(tmp_path: Path, last: str, step: str) -> None:
    """Backwards, or on the spot."""
    words = ["replay", "-w", str(tmp_path), "--input", "a.json", "--from", "2013-01-01", "--to", last, "--step", step]
    assert invoke(words).exit_code == 2


def test_the_demo_writes_into_no_folder_that_holds_something(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It never deletes, so it never mixes either."""
    (tmp_path / "mine").touch()
    with pytest.raises(FolderTaken) as refused:
        demo(Choices(tmp_path, None, 1, live=False), print)
    assert refused.value.folder == tmp_path
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
    # The folder is looked at before Spark starts, of which this environment has no Java.
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(NoJava):
        demo(Choices(tmp_path / "another", None, 1, live=False), print)


@pytest.mark.parametrize(
    ("table", "command"),
    [
        *[(table, ("run",)) for table in TABLES],
        *[(DELIVERIES, ("receive", "--no-follow")), (DELIVERIES, ("pending",)), (INBOX, ("pending",))],
        *[(MESSAGES, ("pending",)), (INBOX, ("send", "-t", "t", "hi")), (SUBSCRIPTIONS, ("pending",))],
    ],
    ids=lambda value: value.name if isinstance(value, Table) else value[0],
)
def test_a_table_whose_newest_version_a_power_cut_left_broken_is_refused_in_one_line(
    tmp_path: Path, table: Table, command: tuple[str, ...]
) -> None:
    """An empty entry was read as one that did nothing: what it held was missing, and nobody heard of it."""
    root = str(tmp_path / "warehouse")
    create_all(root)
    entry = Path(root, table.name, "_delta_log", f"{1:020d}.json")
    for left in ("", '{"commitInfo":{"timest', "\0" * 512):
        entry.write_text(left)
        result = invoke([command[0], "-w", root, *command[1:]])
        assert result.exit_code == 1
        line = result.output.splitlines()[-1]
    assert line.startswith(
        f"delayline: {table.name}: version 1 is empty or cut short; bring {entry} back from a copy, or"
    )


def test_a_start_says_how_long_followers_may_be_away() -> None:
    """Who was away for longer has to begin anew: that is worth a line before it happens."""
    (line,) = run.followers(read_profile(PROFILE).options.upkeep)
    assert line == (
        "Who follows the log of deliveries may be away for 1h (run.retain_log_ms), "
        "for 1d while that is no more than 20,000 commits"
    )
    (line,) = run.followers(Upkeep())
    assert line == "Who follows the log of deliveries may be away for 7d (run.retain_log_ms)"
    assert list(run.followers(None)) == []
