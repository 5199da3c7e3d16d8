"""What supervisors, terminals and `timeout` send, to real processes: a clean stop, exit 0, one line, nothing lost."""

from __future__ import annotations

import os
import pty
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.support.processes import tree
from pipeline.client.create import create_all
from pipeline.client.producing.inbox import OutgoingMessage, send
from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from tests.support.jobs import PATIENCE_S, delivered, said, signal_all, until
from tests.support.modules import ROOT
from tests.support.services import RUN, ended_well, gone, in_time, service


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    """A warehouse with a subscription."""
    folder = tmp_path / "warehouse"
    create_all(str(folder))
    subscribe(str(folder), Subscription("t", "s", tick_ms=1))
    return folder


def to_group(pid: int, number: int) -> None:
    """As `timeout`, Ctrl-C and a shell send it."""
    os.killpg(pid, number)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
@pytest.mark.parametrize("deliver", [to_group, signal_all])
def test_a_signal_to_every_process_under_load_is_a_clean_stop(
    warehouse: Path, tmp_path: Path, number: int, deliver: Callable[[int, int], None]
) -> None:
    """Python, the JVM and the workers get it at once, in the middle of batches; the next start loses and repeats none.

    The log of Spark says nothing of a JVM that was ended.
    """
    log = tmp_path / "run"
    sent = 0
    with service([*RUN, str(warehouse)], log) as job:
        until(lambda: "Running on" in said(log), job, log)
        for _ in range(10):
            send(
                str(warehouse), [OutgoingMessage("t", b"%d" % n, deliver_after_ms=500) for n in range(sent, sent + 100)]
            )
            sent += 100
        until(lambda: len(delivered(warehouse)) > 0, job, log)
        send(str(warehouse), [OutgoingMessage("t", b"%d" % n, deliver_after_ms=n) for n in range(sent, sent + 100)])
        sent += 100
        everyone = [int(folder.name) for folder in tree(job.pid)]
        deliver(job.pid, number)
        ended_well(job, log)
    assert in_time(lambda: gone(everyone))
    again = tmp_path / "again"
    with service([*RUN, str(warehouse)], again) as job:
        until(lambda: len(delivered(warehouse)) >= sent, job, again)
        to_group(job.pid, signal.SIGTERM)
        ended_well(job, again)
    assert sorted(map(int, delivered(warehouse))) == list(range(sent))


@pytest.mark.parametrize("pause_s", [0.5, 2.0, 4.0, 6.0, 8.0, 10.0])
@pytest.mark.parametrize("deliver", [to_group, signal_all])
def test_a_signal_while_it_starts_is_a_clean_stop(
    warehouse: Path, tmp_path: Path, pause_s: float, deliver: Callable[[int, int], None]
) -> None:
    """A deployment may be taken back at any moment of a start."""
    log = tmp_path / "run"
    with service([*RUN, str(warehouse)], log) as job:
        until(lambda: "Starting" in said(log), job, log)
        time.sleep(pause_s)
        everyone = [int(folder.name) for folder in tree(job.pid)]
        deliver(job.pid, signal.SIGTERM)
        ended_well(job, log)
    assert in_time(lambda: gone(everyone))


def test_timeout_ends_a_service_well(warehouse: Path, tmp_path: Path) -> None:
    """`timeout` signals its whole process group, and itself."""
    log = tmp_path / "run"
    with service(["timeout", "--preserve-status", "-s", "TERM", "20", *RUN, str(warehouse)], log) as job:
        ended_well(job, log)


def test_a_terminal_that_closes_ends_a_service_well(warehouse: Path) -> None:
    """SIGHUP comes from the system, and what is said afterwards reaches nobody: that is no failure either."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(ROOT)
        os.execv(sys.executable, [*RUN, str(warehouse)])  # noqa: S606 - our own command
    shown = b""
    while b"Running on" not in shown:
        shown += os.read(terminal, 4_096)
    everyone = [int(folder.name) for folder in tree(pid)]
    os.close(terminal)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert in_time(lambda: gone(everyone))


def test_what_nohup_protects_goes_on_when_the_terminal_closes(warehouse: Path, tmp_path: Path) -> None:
    """`nohup` means it: SIGHUP stays ignored, and SIGTERM still stops."""
    log = tmp_path / "run"
    with service(["nohup", *RUN, str(warehouse)], log) as job:
        until(lambda: "Running on" in said(log), job, log)
        signal_all(job.pid, signal.SIGHUP)
        send(str(warehouse), [OutgoingMessage("t", b"after")])
        until(lambda: delivered(warehouse) == ["after"], job, log)
        to_group(job.pid, signal.SIGTERM)
        ended_well(job, log)


def test_the_jvm_does_not_outlive_a_service_that_was_killed(warehouse: Path, tmp_path: Path) -> None:
    """The JVM ignores SIGTERM; it must still end with its parent, or it would hold memory and locks for ever."""
    log = tmp_path / "run"
    with service([*RUN, str(warehouse)], log) as job:
        until(lambda: "Running on" in said(log), job, log)
        everyone = [int(folder.name) for folder in tree(job.pid)]
        assert len(everyone) > 1
        job.kill()
        job.wait(timeout=PATIENCE_S)
        assert in_time(lambda: gone(everyone))
