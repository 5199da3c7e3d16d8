"""Processes on a store that speaks S3: a minute of producers, stages and maintenance on one inbox, and a replay."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

pytest.importorskip("moto", reason="the store needs requirements/all.lock")

from pipeline.client import registry
from pipeline.client.create import create_all
from pipeline.client.deliveries import Deliveries
from pipeline.client.inbox import Message, send
from pipeline.config import s3
from pipeline.delta.warehouse import Warehouse
from pipeline.service.process import StopFile
from tests.support import jobs
from tests.support.racing import Race
from tests.support.s3 import serving

SECONDS = 60


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A store with a bucket, named as a user names it."""
    with serving("bucket") as variables:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        s3.files.cache_clear()
        yield


@pytest.mark.usefixtures("store")
def test_a_minute_of_everybody_at_once_loses_nothing(tmp_path: Path) -> None:
    """The job is a process of its own, with a round of maintenance each second: 11 of 95 messages were lost so."""
    local = jobs.PROFILE.read_text(encoding="utf-8")
    profile = tmp_path / "profile.toml"
    profile.write_text(local.replace("maintain_ms = 600_000", "maintain_ms = 1_000"), encoding="utf-8")
    race = Race("s3a://bucket/minute")
    create_all(race.root)
    registry.subscribe(race.root, registry.Subscription("t", "s", start="earliest", tick_ms=1))
    command = jobs.module("cli", "run", "--profile", str(profile), "--warehouse", race.root)
    with jobs.started(command, tmp_path / "run", PYTHONPATH=str(jobs.ROOT)) as job:
        jobs.until(lambda: "Running on" in jobs.said(tmp_path / "run"), job, tmp_path / "run")
        race.run(SECONDS)
        StopFile(Warehouse(race.root)).ask()
        assert job.wait(jobs.PATIENCE_S) == 0
    race.check()
    print(f"{len(race.acknowledged)} messages, none lost, none twice")


@pytest.mark.usefixtures("store")
def test_a_replay_reads_and_writes_a_bucket(tmp_path: Path) -> None:
    """Input, tables, checkpoints and the virtual clock lie in the store; nothing is left in a folder `s3a:`."""
    source, root = "s3a://bucket/source", "s3a://bucket/replayed"
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    for each in (source, root):
        create_all(each)
    registry.subscribe(root, registry.Subscription("t", "s", start="earliest", tick_ms=1))
    send(source, [Message("t", b"%d" % hour, noon, deliver_at=noon + timedelta(hours=hour)) for hour in range(3)])
    course = ["--from", "2026-01-01T12:00", "--to", "2026-01-01T15:00", "--step", "1h"]
    command = jobs.module("cli", "replay", "--warehouse", root, "--input", f"{source}/inbox", *course)
    with jobs.started(command, tmp_path / "replay", PYTHONPATH=str(jobs.ROOT)) as job:
        assert job.wait(jobs.PATIENCE_S) == 0, jobs.said(tmp_path / "replay")
    found = list(Deliveries(root).take())
    assert [each.payload for each in found] == [b"0", b"1", b"2"]
    # The instants of the virtual clock, which `receive` knows by its folder.
    shown = [each.visible_at for each in found if each.visible_at is not None]
    assert [noon <= when <= noon + timedelta(hours=3) for when in shown] == [True] * 3
    assert [each.name for each in (tmp_path / "replay").iterdir()] == ["log"]
