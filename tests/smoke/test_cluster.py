"""A job on a standalone cluster, submitted as README says: what it promises, and what it survives."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from pipeline.client.create import create_all
from pipeline.client.producing.inbox import OutgoingMessage, send
from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from pipeline.config.sparkversion import release
from tests.support.cluster import Site, Stream, early, site
from tests.support.jobs import PATIENCE_S, Process, delivered, said, until, words_of_ours

STORES = "spark.sql.shuffle.partitions"


@pytest.fixture(scope="module")
def private() -> Iterator[Path]:
    """A folder of this user alone. Names of sockets are short, so it does not lie with the others."""
    with TemporaryDirectory(prefix="d-") as found:
        yield Path(found)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory, private: Path) -> Iterator[Site]:
    """A cluster of two workers that asks for a secret, as `docs/security.md` says."""
    with site(tmp_path_factory.mktemp("cluster"), 2, private) as found:
        yield found


def test_a_submitted_job_delivers_in_order_and_ends_well_on_a_signal(tmp_path: Path, two: Site, private: Path) -> None:
    """On a cluster whose nodes have four packages and the zip; supervisors take anything but 0 for a failure.

    Its processes know the secret of the cluster, and the sockets of its Python workers lie where nobody else enters.
    """
    warehouse, folder, sockets = tmp_path / "warehouse", tmp_path / "empty", set[Path]()

    def all_there() -> bool:
        sockets.update(each for each in private.iterdir() if each.is_socket())
        return len(delivered(warehouse)) >= 3

    with two.submitted(warehouse, folder, **{STORES: "3"}) as job:
        until((warehouse / "_checkpoints/dispatch/offsets").exists, job, folder)
        subscribe(str(warehouse), Subscription("t", "s", start="earliest", tick_ms=1))
        send(str(warehouse), [OutgoingMessage("t", b"%d" % i, deliver_after_ms=1_000 * (2 - i)) for i in range(3)])
        until(all_there, job, folder)
        assert len(two.cluster.executors) == 2
        job.send_signal(signal.SIGTERM)
        assert job.wait(timeout=PATIENCE_S) == 0, said(folder)
    assert delivered(warehouse) == ["2", "1", "0"]
    # Before 4.1 Spark and its Python workers talk by TCP, and a secret guards that.
    assert bool(sockets) is (release() >= (4, 1))
    assert (private.stat().st_mode & 0o777, (two.conf / "spark-defaults.conf").stat().st_mode & 0o777) == (0o700, 0o600)
    assert words_of_ours(folder) == []
    assert "Chosen for 1,000 messages a second, segments of 5m, 2 cores" in said(folder)
    # What spark-submit is given wins over what a start would choose.
    assert "session.partitions" not in said(folder)
    assert state_stores(warehouse) == [3]


def state_stores(warehouse: Path) -> list[int]:
    """How many stores the schedule has had, by the offsets of its batches."""
    offsets = (warehouse / "_checkpoints/schedule/offsets").glob("[0-9]*")
    counts = {int(file.read_text().partition(f'"{STORES}":"')[2].partition('"')[0]) for file in offsets}
    return sorted(counts)


def prepared(folder: Path) -> Path:
    """A warehouse with a subscription."""
    warehouse = folder / "warehouse"
    create_all(str(warehouse))
    subscribe(str(warehouse), Subscription("t", "s", tick_ms=1))
    return warehouse


def goes_on(warehouse: Path, job: Process, folder: Path, stream: Stream) -> None:
    """Wait until something is delivered that is sent from now on."""
    until(lambda: stream.sent > 0, job, folder)
    mark = stream.sent
    until(lambda: len(delivered(warehouse)) > mark, job, folder)


def stopped(warehouse: Path, job: Process, folder: Path, stream: Stream) -> None:
    """Let the job deliver the rest, and stop it. Nothing is lost, twice or early."""
    until(lambda: len(delivered(warehouse)) >= stream.sent, job, folder)
    job.send_signal(signal.SIGTERM)
    assert job.wait(timeout=PATIENCE_S) == 0, said(folder)
    assert sorted(map(int, delivered(warehouse))) == list(range(stream.sent))
    assert early(warehouse) == []


@pytest.mark.soak
def test_whoever_does_not_know_the_secret_of_a_cluster_is_not_let_in(tmp_path: Path, two: Site) -> None:
    """It would run what it likes as the user of the cluster."""
    stranger = replace(two, conf=tmp_path)
    with stranger.submitted(tmp_path / "warehouse", tmp_path / "empty") as job:
        assert job.wait(timeout=PATIENCE_S) != 0
    assert not two.cluster.executors
    assert not (tmp_path / "warehouse").exists()


@pytest.mark.soak
def test_an_executor_that_is_killed_is_replaced_and_the_job_goes_on(tmp_path: Path, two: Site) -> None:
    """As when a node's memory ends: its tasks run again, its stores are read from the checkpoint."""
    warehouse, folder = prepared(tmp_path), tmp_path / "empty"
    stream = Stream(warehouse)
    with two.submitted(warehouse, folder) as job:
        with stream.flowing():
            goes_on(warehouse, job, folder, stream)
            killed = random.choice(two.cluster.executors)  # noqa: S311 - either will do
            os.kill(killed, signal.SIGKILL)
            two.cluster.until_there(2, without=killed)
            goes_on(warehouse, job, folder, stream)
        stopped(warehouse, job, folder, stream)


@pytest.mark.soak
def test_a_worker_that_is_lost_is_done_without_and_another_one_takes_part(tmp_path: Path) -> None:
    """A node goes with its executor, the job goes on with what is left, and a node that comes is given work."""
    warehouse, folder = prepared(tmp_path), tmp_path / "empty"
    stream = Stream(warehouse)
    with site(tmp_path / "site", workers=2) as here, here.submitted(warehouse, folder) as job:
        with stream.flowing():
            goes_on(warehouse, job, folder, stream)
            here.cluster.workers[0].kill()
            goes_on(warehouse, job, folder, stream)
            assert len(here.cluster.executors) == 1
            here.cluster.join()
            here.cluster.until_there(2)
            goes_on(warehouse, job, folder, stream)
        stopped(warehouse, job, folder, stream)


@pytest.mark.soak
def test_a_driver_that_is_killed_is_submitted_again_and_delivers_exactly_once(tmp_path: Path, two: Site) -> None:
    """As a supervisor does it: the process that it started is gone, and it starts another one at once."""
    warehouse, first, second = prepared(tmp_path), tmp_path / "first", tmp_path / "second"
    stream = Stream(warehouse)
    with stream.flowing():
        with two.submitted(warehouse, first) as job:
            goes_on(warehouse, job, first, stream)
            job.kill()
        with two.submitted(warehouse, second) as job:
            goes_on(warehouse, job, second, stream)
            stream.end()
            stopped(warehouse, job, second, stream)


@pytest.mark.soak
def test_another_number_of_executors_at_a_restart_keeps_the_state_stores(tmp_path: Path, two: Site) -> None:
    """Executors come and go with the load; the stores stay as at the first start, and what waits in them, too."""
    warehouse = prepared(tmp_path)
    stream = Stream(warehouse)
    for cores, stores in ((1, {STORES: "2"}), (2, {})):
        folder = tmp_path / f"on-{cores}"
        with two.submitted(warehouse, folder, **{"spark.cores.max": str(cores)}, **stores) as job:
            with stream.flowing():
                two.cluster.until_there(cores)
                goes_on(warehouse, job, folder, stream)
            if cores == 1:
                # What was sent last waits while nothing runs.
                job.send_signal(signal.SIGTERM)
                assert job.wait(timeout=PATIENCE_S) == 0, said(folder)
            else:
                stopped(warehouse, job, folder, stream)
    assert state_stores(warehouse) == [2]
