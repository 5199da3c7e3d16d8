"""The command as users start it: processes, signals, exit codes."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from tests.support.modules import ROOT

COMMAND = [sys.executable, "-m", "jobs.cli"]
PATIENCE_S = 240


def call(*words: str, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    variables = {**os.environ, **environment}
    return subprocess.run(  # noqa: S603 - our own command
        [*COMMAND, *words],
        cwd=ROOT,
        env=variables,
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )


def until(look: Callable[[], bool], what: str) -> None:
    """Wait for something that another process does."""
    for _ in range(PATIENCE_S * 5):
        if look():
            return
        time.sleep(0.2)
    pytest.fail(f"waited {PATIENCE_S} s for: {what}")


class Service:
    """A running `delayline run`, and what it has printed."""

    def __init__(self, root: str, log: Path, **environment: str) -> None:
        """Start it and wait until the stages are up."""
        self.root, self._log = root, log
        with log.open("w") as file:
            words, variables = [*COMMAND, "run", "--init", "-w", root], {**os.environ, **environment}
            self.process = subprocess.Popen(words, cwd=ROOT, env=variables, stdout=file, stderr=subprocess.STDOUT)  # noqa: S603
        until(lambda: "Running on" in self.said or self.process.poll() is not None, "the stages to start")
        assert self.process.poll() is None, self.said

    @property
    def said(self) -> str:
        """What it has printed so far."""
        return self._log.read_text()

    def end(self) -> int:
        """Wait for its end; the exit code."""
        return self.process.wait(timeout=PATIENCE_S)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A warehouse with two subscriptions."""
    folder = str(tmp_path_factory.mktemp("warehouse"))
    assert call("init", "-w", folder).returncode == 0
    for name, tick in (("fine", "1ms"), ("coarse", "1s")):
        assert call("subscribe", "-w", folder, "-t", "t", "-s", name, "--tick", tick).returncode == 0
    return folder


@pytest.fixture(scope="module")
def service(root: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """The stages, running."""
    running = Service(root, tmp_path_factory.mktemp("log") / "run.log")
    yield running
    if running.process.poll() is None:
        running.process.kill()
        running.process.wait()


def received(root: str, count: int) -> list[dict[str, Any]]:
    """The first deliveries, waited for."""
    said = call("receive", "-w", root, "--json", "-n", str(count))
    assert said.returncode == 0, said.stderr
    return [json.loads(text) for text in said.stdout.splitlines()]


def test_delayed_messages_arrive_once_for_each_subscription_and_never_early(service: Service) -> None:
    """The promise, through the commands alone: send, run, receive."""
    lines = "".join(f"m{number}\n" for number in range(5))
    assert call("send", "-w", service.root, "-t", "t", "--deliver-after", "2s", stdin=lines).stdout == "5 sent\n"
    assert call("send", "-w", service.root, "-t", "t", "much later", "--deliver-after", "7d").returncode == 0
    deliveries = received(service.root, 10)
    assert all(each["late_ms"] >= 0 for each in deliveries)
    for name in ("fine", "coarse"):
        assert [each["payload"] for each in deliveries if each["subscription"] == name] == [f"m{n}" for n in range(5)]


def frame(root: str, table: str, version: int, columns: list[str]) -> pd.DataFrame:
    """A table at a version."""
    opened = DeltaTable(f"{root}/{table}", version=version)
    found: pd.DataFrame = pa.table(opened.to_pyarrow_table(columns=columns)).to_pandas()
    return found


def test_pending_agrees_with_the_tables_while_the_job_runs(service: Service) -> None:
    """The same count by another way: positions in `messages` that are not in `deliveries`, at the same versions."""
    for number in range(3):
        call("send", "-w", service.root, "-t", "t", f"{number}", "--deliver-after", f"{number}s")
        found = json.loads(call("pending", "-w", service.root, "--json").stdout)
        position = ["ledger_id", "entry_id"]
        messages = frame(service.root, "messages", found["versions"]["messages"], position)
        delivered = frame(service.root, "deliveries", found["versions"]["deliveries"], [*position, "subscription"])
        assert service.process.poll() is None
        for each in found["subscriptions"]:
            mine = delivered[delivered["subscription"] == each["subscription"]]
            left = messages.merge(mine, on=position, how="left", indicator=True)["_merge"] == "left_only"
            assert each["pending"] == left.sum() == sum(count for _, count in each["due_by_minute"])


def test_two_services_on_one_warehouse_are_refused(service: Service) -> None:
    """One writer a table: the second process says who is there, and leaves the first alone."""
    second = call("run", "-w", service.root)
    assert (second.returncode, len(second.stderr.splitlines())) == (1, 1)
    assert str(service.process.pid) in second.stderr
    assert service.process.poll() is None


def test_the_log_of_spark_holds_nothing_but_errors(service: Service) -> None:
    """Spark's warnings on a start fill pages and help nobody; a service writes for weeks."""
    log = Path(tempfile.gettempdir()) / f"delayline-{service.process.pid}.log"
    assert " WARN " not in log.read_text()
    assert "default log4j profile" not in log.read_text()


def test_sigterm_ends_it_in_good_order(service: Service) -> None:
    """A supervisor stops services so, and takes anything but 0 for a failure."""
    service.process.send_signal(signal.SIGTERM)
    assert service.end() == 0
    assert re.search(r"Stopped  sent (\d+)  accepted \1  rejected 0", service.said)
    assert "Traceback" not in service.said


def test_a_stage_that_fails_ends_the_process_with_the_reason(tmp_path: Path) -> None:
    """Nobody reads a service that has stopped working and still runs."""
    folder = tmp_path / "warehouse"
    assert call("init", "-w", str(folder)).returncode == 0
    running = Service(str(folder), tmp_path / "run.log")
    try:
        shutil.rmtree(folder / "messages")
        call("send", "-w", str(folder), "-t", "t", "x")
        assert running.end() == 1
    finally:
        running.process.kill()
    last = running.said.splitlines()[-1]
    assert last.startswith("delayline: stage ingest: ")
    assert "messages" in last
    assert "Traceback (most recent call last):\n" not in running.said


def test_many_senders_at_once_lose_nothing(tmp_path: Path) -> None:
    """Every commit races with the others; each sender retries until its own is in."""
    root = str(tmp_path)
    assert call("init", "-w", root).returncode == 0
    words = [*COMMAND, "send", "-w", root, "-t", "t"]
    senders = [subprocess.Popen([*words, f"m{number}"], cwd=ROOT) for number in range(6)]  # noqa: S603
    assert [sender.wait(timeout=PATIENCE_S) for sender in senders] == [0] * 6
    found = pa.table(DeltaTable(f"{root}/inbox").to_pyarrow_table(columns=["payload"])).column(0).to_pylist()
    assert sorted(found) == [f"m{number}".encode() for number in range(6)]


def test_a_replay_delivers_what_became_due_and_can_be_repeated(tmp_path: Path) -> None:
    """Virtual time, a file as input, the same result when it is called again."""
    root, source = str(tmp_path / "warehouse"), tmp_path / "in.jsonl"
    rows = [
        {"topic": "t", "payload": "b", "publish_time": "2013-01-01T00:00:00Z", "deliver_at": "2013-01-04T00:00:00Z"},
        {"topic": "t", "payload": "a", "publish_time": "2013-01-02T00:00:00Z", "deliver_after_ms": 1},
        {"topic": "t", "payload": "c", "publish_time": "2013-01-02T00:00:00Z", "deliver_at": "2014-01-01T00:00:00Z"},
    ]
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert call("init", "-w", root).returncode == 0
    assert call("subscribe", "-w", root, "-t", "t", "-s", "s").returncode == 0
    words = [
        "replay",
        "-w",
        root,
        "--input",
        str(source),
        "--from",
        "2013-01-01",
        "--until",
        "2013-01-05",
        "--step",
        "2d",
    ]
    done = call(*words, "--json")
    assert done.returncode == 0, done.stderr
    first = json.loads(done.stdout)
    assert (first["sent"], first["accepted"], first["delivered"], first["instants"]) == (3, 3, 2, 3)
    assert [each["payload"] for each in received(root, 2)] == ["a", "b"]
    again = json.loads(call(*words, "--json").stdout)
    assert (again["sent"], again["accepted"], again["delivered"]) == (3, 3, 2)


@pytest.mark.parametrize(
    "words",
    [
        ["run"],
        ["replay", "--input", "in.jsonl", "--from", "2013-01-01", "--to", "2013-01-02", "--step", "1d"],
        ["demo", "--output", "demo"],
    ],
)
def test_without_java_there_is_one_clear_line(tmp_path: Path, words: list[str]) -> None:
    """Spark's own words for it are a page of stack trace."""
    (tmp_path / "in.jsonl").write_text("")
    command = [arg.replace("in.jsonl", str(tmp_path / "in.jsonl")) for arg in words]
    command = [arg if arg != "demo" or words[0] == arg else str(tmp_path / "demo") for arg in command]
    if words[0] != "demo":
        command += ["-w", str(tmp_path / "warehouse")]
    said = call(*command, JAVA_HOME=str(tmp_path / "none"))
    assert said.returncode == 1
    (line,) = said.stderr.splitlines()
    assert "Java 17" in line
    assert str(tmp_path / "none") in line


def test_the_third_start_maps_the_classes_that_the_second_one_kept(tmp_path: Path) -> None:
    """The first start keeps the JARs, the second one the classes when it ends; nothing else is said or done."""
    root, cache = str(tmp_path / "warehouse"), tmp_path / "cache"
    assert call("init", "-w", root).returncode == 0
    mapped, kept = [], list[Path]()
    for number in range(3):
        service = Service(root, tmp_path / f"{number}.log", XDG_CACHE_HOME=str(cache))
        java = next(each for each in _children(service.process.pid) if "java" in each.joinpath("cmdline").read_text())
        mapped.append(f"{cache}/delayline/classes-" in java.joinpath("maps").read_text())
        service.process.terminate()
        assert service.end() == 0
        until(lambda java=java: not java.exists(), "Java to end")  # type: ignore[misc]
        kept = sorted((cache / "delayline").iterdir())
        assert len(service.said.splitlines()) == len((tmp_path / "0.log").read_text().splitlines()), service.said
    assert mapped == [False, False, True]
    assert [each.suffix for each in kept] == [".jsa", ".txt"]


def _children(process: int) -> Iterator[Path]:
    """The folders of the processes that a process has started, as Linux shows them."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if folder.joinpath("stat").read_text().rpartition(")")[2].split()[1] == str(process):
                yield folder
