"""Processes on a store that speaks S3: a minute of producers, stages and maintenance on one inbox; what users type."""

from __future__ import annotations

import os
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from threading import Event, Thread

import pytest

pytest.importorskip("moto", reason="the store needs requirements/all.lock")

from benchmarks.support.s3 import variables
from pipeline.client.create import create_all
from pipeline.client.producing.inbox import OutgoingMessage, send
from pipeline.client.subscribing import subscriptions
from pipeline.client.tables.deliveries import Deliveries
from pipeline.config import s3
from pipeline.service.stopfile import StopFile
from schemas import DELIVERIES
from tests.support import jobs
from tests.support.line import Line
from tests.support.modules import ROOT
from tests.support.racing import Race, payloads
from tests.support.s3 import named, serving

SECONDS = 60
OUTAGES_S = (3, 20, 8, 40, 1, 12)
"""The store is away for so long, in turn cut off and silent."""
BETWEEN_S = 25
REFUSALS = ("was last written by", "Multiple streaming jobs detected", "CONCURRENT_STREAM_LOG_UPDATE")
"""What is said to the second process: by us at its first commit, or by Spark at its first new batch."""


@pytest.fixture
def store() -> Iterator[None]:
    """A store with a bucket, named as a user names it."""
    with named("bucket"):
        yield


@pytest.mark.usefixtures("store")
def test_a_minute_of_everybody_at_once_loses_nothing(tmp_path: Path) -> None:
    """The job is a process of its own, with a round of maintenance each second: 11 of 95 messages were lost so."""
    local = jobs.PROFILE.read_text(encoding="utf-8")
    profile = tmp_path / "profile.toml"
    profile.write_text(local.replace("maintain_ms = 600_000", "maintain_ms = 1_000"), encoding="utf-8")
    race = Race("s3a://bucket/minute")
    create_all(race.root)
    subscriptions.subscribe(race.root, subscriptions.Subscription("t", "s", start="earliest", tick_ms=1))
    command = jobs.module("cli", "run", "--profile", str(profile), "--warehouse", race.root)
    with jobs.started(command, tmp_path / "run", PYTHONPATH=str(ROOT)) as job:
        jobs.until(lambda: "Running on" in jobs.said(tmp_path / "run"), job, tmp_path / "run")
        race.run(SECONDS)
        StopFile(race.root).ask()
        assert job.wait(jobs.PATIENCE_S) == 0
    race.check()
    print(f"{len(race.acknowledged)} messages, none lost, none twice")


@dataclass(frozen=True)
class Typing:
    """Commands on a warehouse in the store, as somebody types them.

    Attributes:
        folder: where they are typed.
        root: the warehouse.
    """

    folder: Path
    root: str

    def __call__(self, *words: str, module: str = "cli") -> str:
        """A command, run to its end; what it prints."""
        command = [*jobs.module(module, *words), "--warehouse", self.root]
        variables = {**os.environ, "PYTHONPATH": str(ROOT)}
        said = subprocess.run(command, cwd=self.folder, env=variables, check=False, capture_output=True, text=True)  # noqa: S603
        assert said.returncode == 0, said.stderr
        return said.stdout

    def run(self, name: str, count: int) -> None:
        """The stages, from their start until so many are delivered, then stopped."""
        folder = self.folder / name
        command = jobs.module("cli", "run", "--init", "--warehouse", self.root)
        with jobs.started(command, folder, PYTHONPATH=str(ROOT)) as job:
            jobs.until(lambda: len(payloads(self.root, DELIVERIES)) >= count, job, folder)
            self("stop")
            assert job.wait(jobs.PATIENCE_S) == 0, jobs.said(folder)


@pytest.mark.usefixtures("store")
def test_a_warehouse_in_a_bucket_is_maintained_and_rebuilt(tmp_path: Path) -> None:
    """What was pending when its checkpoints were left behind is delivered once, by those that the rebuild made."""
    call = Typing(tmp_path, "s3://bucket/typed")
    call("init")
    call("subscribe", "--topic", "t", "--subscription", "s")
    for words in (["soon"], ["later", "--deliver-after", "2m"], ["parked", "--deliver-after", "30d"]):
        call("send", "--topic", "t", *words)
    call.run("first", 1)
    call("--retain", "7d", module="maintain")
    assert call("rebuild", "--stage", "all").count("goes on from version") == 3
    call("send", "--topic", "t", "after")
    call.run("second", 3)
    assert sorted(payloads(call.root, DELIVERIES)) == [b"after", b"later", b"soon"]
    assert call("pending").startswith("t/s  1 pending")
    assert call("doctor").splitlines()[-1] == "Nothing is wrong."
    assert call("receive", "--no-follow").count("\n") == 3


@pytest.mark.usefixtures("store")
def test_of_two_jobs_on_one_bucket_one_is_refused_and_nothing_comes_twice(tmp_path: Path) -> None:
    """A store has no locks: versions are put only where none is, and a version of another process ends a stage."""
    call, sent = Typing(tmp_path, "s3://bucket/two"), 0
    call("init")
    call("subscribe", "--topic", "t", "--subscription", "s", "--start", "earliest")
    command, names = jobs.module("cli", "run", "--init", "--warehouse", call.root), ("one", "two")
    with ExitStack() as ending:
        both = []
        for name in names:
            both.append(ending.enter_context(jobs.started(command, tmp_path / name, PYTHONPATH=str(ROOT))))
            jobs.until(lambda name=name: "Running on" in jobs.said(tmp_path / name), both[-1], tmp_path / name)  # type: ignore[misc]
        end = time.monotonic() + jobs.PATIENCE_S
        while all(job.poll() is None for job in both):
            assert time.monotonic() < end, "both go on"
            send(call.root, [OutgoingMessage("t", b"%d" % sent, deliver_after_ms=sent % 7 * 1_000)])
            sent += 1
        assert any(word in jobs.said(tmp_path / name) for name in names for word in REFUSALS)
        call("stop")
        assert max(job.wait(jobs.PATIENCE_S) for job in both) == 1
    call.run("again", sent)
    assert sorted(payloads(call.root, DELIVERIES)) == sorted(b"%d" % number for number in range(sent))


@dataclass
class Producer:
    """Sends until it is stopped, whatever the store does.

    Attributes:
        root: the warehouse.
        acknowledged: the payloads of which `send` came back.
        unsure: those of which it failed: they may be in the inbox.
    """

    root: str
    acknowledged: list[bytes] = field(default_factory=list)
    unsure: list[bytes] = field(default_factory=list)
    stopped: Event = field(default_factory=Event)

    def run(self) -> None:
        """A message each tenth of a second, due within ten seconds."""
        for number in count():
            if self.stopped.wait(0.1):
                return
            payload = b"%d" % number
            try:
                send(self.root, [OutgoingMessage("t", payload, deliver_after_ms=number % 11 * 1_000)])
            except Exception:  # noqa: BLE001 - whatever it is, nobody said that it was taken
                self.unsure.append(payload)
            else:
                self.acknowledged.append(payload)


def test_a_store_that_goes_away_ends_no_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All stages wait for it, and go on by themselves: each acknowledged message is delivered once."""
    with serving("bucket") as store:
        line = Line(int(store["AWS_ENDPOINT_URL"].rpartition(":")[2]))
        for name, value in variables(line.port).items():
            monkeypatch.setenv(name, value)
        s3.files.cache_clear()
        call, producer = Typing(tmp_path, "s3a://bucket/away"), Producer("s3a://bucket/away")
        call("init")
        call("subscribe", "--topic", "t", "--subscription", "s", "--start", "earliest")
        command, folder = jobs.module("cli", "run", "--init", "--warehouse", call.root), tmp_path / "run"
        thread = Thread(target=producer.run)
        with jobs.started(command, folder, PYTHONPATH=str(ROOT)) as job:
            jobs.until(lambda: "Running on" in jobs.said(folder), job, folder)
            thread.start()
            for number, seconds in enumerate(OUTAGES_S):
                time.sleep(BETWEEN_S)
                with line.silent() if number % 2 else line.cut():
                    time.sleep(seconds)
            time.sleep(BETWEEN_S)
            producer.stopped.set()
            thread.join()
            jobs.until(lambda: {*producer.acknowledged} <= {*payloads(call.root, DELIVERIES)}, job, folder)
            call("stop")
            assert job.wait(jobs.PATIENCE_S) == 0, jobs.said(folder)
        found = Counter(payloads(call.root, DELIVERIES))
        line.end()
    again = jobs.said(folder).count("is started again\n")
    print(f"{len(producer.acknowledged)} sent, {len(producer.unsure)} perhaps, {again} starts of stages")
    assert again
    assert max(found.values()) == 1
    assert {*found} <= {*producer.acknowledged, *producer.unsure}


@pytest.mark.usefixtures("store")
def test_a_replay_reads_and_writes_a_bucket(tmp_path: Path) -> None:
    """Input, tables, checkpoints and the virtual clock lie in the store; nothing is left in a folder `s3a:`."""
    source, root = "s3://bucket/source", "s3://bucket/replayed"
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    for each in (source, root):
        create_all(each)
    subscriptions.subscribe(root, subscriptions.Subscription("t", "s", start="earliest", tick_ms=1))
    send(
        source, [OutgoingMessage("t", b"%d" % hour, noon, deliver_at=noon + timedelta(hours=hour)) for hour in range(3)]
    )
    course = ["--from", "2026-01-01T12:00", "--to", "2026-01-01T15:00", "--step", "1h"]
    command = jobs.module("cli", "replay", "--warehouse", root, "--input", f"{source}/inbox", *course)
    with jobs.started(command, tmp_path / "replay", PYTHONPATH=str(ROOT)) as job:
        assert job.wait(jobs.PATIENCE_S) == 0, jobs.said(tmp_path / "replay")
    found = list(Deliveries(root).take())
    assert [each.payload for each in found] == [b"0", b"1", b"2"]
    # The instants of the virtual clock, which `receive` knows by its folder.
    shown = [each.visible_at for each in found if each.visible_at is not None]
    assert [noon <= when <= noon + timedelta(hours=3) for when in shown] == [True] * 3
    assert [each.name for each in (tmp_path / "replay").iterdir()] == ["log"]
