"""Who waits in vain learns that no job runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

from pipeline.client.choices import ConsumerType
from pipeline.client.client import Client
from pipeline.client.consuming.consumer import Consumer
from pipeline.client.exceptions import Timeout
from pipeline.client.message import MessageId
from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from pipeline.client.tables import job
from pipeline.client.tables.job import Job, JobHint, JobWatch
from pipeline.config.stages import INGEST
from pipeline.storage.locks import StageLock
from pipeline.subscriptions.policies import Policies
from pipeline.testing.warehouse import warehouse


def test_it_is_said_when_a_job_was_seen_last(root: str) -> None:
    """Never; long ago, with how to start one; a moment ago nothing, and nothing while a process has the lock."""
    with Client(root) as client:
        reader = client.create_reader("t", MessageId.earliest)
        with pytest.raises(Timeout) as waited:
            reader.read_next(1)
    assert str(waited.value).endswith(f"; no job has run on {root}: delayline run --warehouse {root}")
    offsets = Path(root, "_checkpoints", INGEST, "offsets")
    offsets.mkdir(parents=True)
    (offsets / "0").touch()
    assert str(JobHint(root)) == ""
    os.utime(offsets / "0", (0, 0))
    assert (
        str(JobHint(root))
        == f"; no job was seen since 1970-01-01T00:00:00Z on {root}: delayline run --warehouse {root}"
    )
    hint = JobHint(root)
    first = str(hint)
    with StageLock(INGEST, f"{root}/_checkpoints").held():
        assert str(JobHint(root)) == ""
        assert str(hint) == first


def test_where_nobody_can_tell_nothing_is_claimed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job on another machine may run on a warehouse in a store: a second one would be told to start."""
    monkeypatch.setattr(job, "job_of", lambda _: Job(None, None, None))
    assert str(JobHint("s3://bucket/wh")) == ""


def test_a_warehouse_under_test_needs_no_job() -> None:
    """Its stages work in the process of the test."""
    with warehouse() as world, pytest.raises(Timeout, match=r"^read_next took longer than 1 ms$"):
        world.client().create_reader("t", MessageId.earliest).read_next(1)


def test_who_waits_for_messages_is_told_once_each_time_that_no_job_runs(root: str) -> None:
    """Not while one may still start, nor while something comes; again when one ran meanwhile."""
    notes, now_s = list[str](), [0.0]
    watch = JobWatch(root, notes.append, lambda: now_s[0])
    offsets = Path(root, "_checkpoints", INGEST, "offsets")

    def looked(at_s: float, *, news: bool = False) -> int:
        now_s[0] = at_s
        watch.look(news=news)
        return len(notes)

    assert [looked(at_s) for at_s in (0, 9.9, 10, 11, 40, 70)] == [0, 0, 1, 1, 1, 1]
    assert notes == [f"no job has run on {root}: delayline run --warehouse {root}"]
    assert [looked(100, news=True), looked(109.9), looked(110)] == [1, 1, 2], "something has come, and then nothing"
    offsets.mkdir(parents=True)
    (offsets / "0").touch()
    assert looked(140) == 2
    os.utime(offsets / "0", (0, 0))
    assert looked(170) == 3
    assert "since 1970-01-01T00:00:00Z" in notes[2]


def joined(client: Client) -> Consumer:
    """A consumer of a subscription that is there."""
    return client.subscribe("t", "s", ConsumerType.Shared)


@pytest.mark.parametrize("reads", [True, False])
def test_who_waits_for_ever_finds_in_the_log_that_no_job_runs(
    root: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, *, reads: bool
) -> None:
    """A reader, and a consumer: nothing else would say why nothing comes."""
    monkeypatch.setattr(job, "_QUIET_S", 0.0)
    subscribe(root, Subscription("t", "s", policies=Policies(ack=True)))
    with Client(root) as client:
        wait = client.create_reader("t", MessageId.earliest).read_next if reads else joined(client).receive
        with pytest.raises(Timeout):
            wait(200)
    said = [each.getMessage() for each in caplog.records]
    assert said == [f"no job has run on {root}: delayline run --warehouse {root}"]
