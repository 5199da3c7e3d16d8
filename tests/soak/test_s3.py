"""A minute of producers, stages and maintenance on one inbox in a store that speaks S3."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("moto", reason="the store needs requirements/all.lock")

from pipeline.client import registry, s3
from pipeline.client.create import create_all
from pipeline.service import StopFile
from pipeline.tables import Warehouse
from tests.support import jobs
from tests.support.racing import Race
from tests.support.s3 import serving

SECONDS = 60


def test_a_minute_of_everybody_at_once_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job is a process of its own, with a round of maintenance each second: 11 of 95 messages were lost so."""
    local = jobs.PROFILE.read_text(encoding="utf-8")
    profile = tmp_path / "profile.toml"
    profile.write_text(local.replace("maintain_ms = 600_000", "maintain_ms = 1_000"), encoding="utf-8")
    with serving("bucket") as variables:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        s3.files.cache_clear()
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
