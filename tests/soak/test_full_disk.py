"""A disk that is full, or that became read-only, under real processes: one line that says so; nothing lost or twice."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.client.create import create_all
from pipeline.client.producing.inbox import OutgoingMessage, send
from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from tests.support.jobs import PATIENCE_S, delivered, said, until
from tests.support.modules import ROOT
from tests.support.services import COMMAND, RUN, ended_well, service

KB = 1 << 10
MARGINS = (0, 8 * KB, 32 * KB, 64 * KB, 128 * KB, 192 * KB, 256 * KB)
"""Bytes that are left when the disk is filled: another stage, or another of its files, is the first without room."""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 16 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(words, check=False, capture_output=True).returncode:  # noqa: S603
        pytest.skip("mounting a tmpfs needs root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)  # noqa: S603, S607


def fill(disk: Path, margin: int) -> None:
    """Leave so many bytes free."""
    free = os.statvfs(disk)
    with (disk / "filler").open("wb") as file:
        file.write(bytes(free.f_bavail * free.f_frsize - margin))


def make_room(disk: Path) -> None:
    """Remove what filled it."""
    (disk / "filler").unlink()


def failed_with_one_line(log: Path, code: int, disk: Path, what: str) -> None:
    """The exit code of a failure; the last line names the disk and what is wrong with it; no stack trace."""
    last = said(log).splitlines()[-1]
    assert code == 1, said(log)
    assert last.startswith("delayline: "), said(log)
    assert what in last
    assert str(disk) in last
    assert "Traceback" not in said(log)


@pytest.mark.parametrize("margin", MARGINS)
def test_a_disk_that_fills_up_under_the_stages_stops_them_with_one_line(
    disk: Path, tmp_path: Path, margin: int
) -> None:
    """Parked, near and due messages wait meanwhile; a start is refused as well; with room everything comes, once."""
    root, log = disk / "warehouse", tmp_path / "run"
    create_all(str(root))
    subscribe(str(root), Subscription("t", "s", tick_ms=1))
    with service([*RUN, str(root)], log) as job:
        until(lambda: "Running on" in said(log), job, log)
        send(str(root), [OutgoingMessage("t", b"%d" % n, deliver_after_ms=300 * n) for n in range(100)])
        until(lambda: len(delivered(root)) > 0, job, log)
        send(str(root), [OutgoingMessage("t", b"%d" % n) for n in range(100, 200)])
        fill(disk, margin)
        failed_with_one_line(log, job.wait(timeout=PATIENCE_S), disk, "full")
    refused = tmp_path / "refused"
    with service([*RUN, str(root)], refused) as job:
        failed_with_one_line(refused, job.wait(timeout=PATIENCE_S), disk, "full")
    command, line = [*COMMAND, "send", "-w", str(root), "-t", "t"], os.urandom(margin + 100_000).hex()
    sent = subprocess.run(command, cwd=ROOT, input=line, capture_output=True, text=True, check=False)  # noqa: S603 - our own
    # delta-rs may complain of a thread of its own before.
    assert sent.returncode == 1
    last = sent.stderr.splitlines()[-1]
    assert last.startswith("delayline: the disk ")
    assert " is full" in last
    make_room(disk)
    everything_comes_once(root, tmp_path / "again", 200)


def test_a_disk_that_is_read_only_is_refused_with_one_line(disk: Path, tmp_path: Path) -> None:
    """As Linux mounts a disk that had errors: the start says so before Spark starts, and so does a sender."""
    root, refused = disk / "warehouse", tmp_path / "refused"
    create_all(str(root))
    subscribe(str(root), Subscription("t", "s", tick_ms=1))
    send(str(root), [OutgoingMessage("t", b"%d" % n) for n in range(10)])
    remount(disk, "ro")
    with service([*RUN, str(root)], refused) as job:
        failed_with_one_line(refused, job.wait(timeout=PATIENCE_S), disk, "read-only")
    assert "Starting Spark" not in said(refused)
    command = [*COMMAND, "send", "-w", str(root), "-t", "t", "x"]
    sent = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603 - our own
    assert sent.returncode == 1
    assert " is read-only; make it writable" in sent.stderr.splitlines()[-1]
    remount(disk, "rw")
    everything_comes_once(root, tmp_path / "again", 10)


def remount(disk: Path, how: str) -> None:
    """Mount it again, to be read only or to be written."""
    subprocess.run(["mount", "-o", f"remount,{how}", str(disk)], check=True)  # noqa: S603, S607


def everything_comes_once(root: Path, log: Path, count: int) -> None:
    """Start again and wait for all."""
    with service([*RUN, str(root)], log) as job:
        until(lambda: len(delivered(root)) >= count, job, log)
        os.killpg(job.pid, signal.SIGTERM)
        ended_well(job, log)
    assert sorted(map(int, delivered(root))) == list(range(count))
