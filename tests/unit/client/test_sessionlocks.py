"""Who has died is known by locks that the kernel drops."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")

from pipeline.client.consuming import sessionlocks
from pipeline.client.consuming.sessionlocks import FOLDER, SessionLocks

HOLDS = """
import sys
from pipeline.client.consuming.sessionlocks import SessionLocks
SessionLocks(sys.argv[1]).hold(7)
print("held", flush=True)
sys.stdin.read()
"""


class Watcher:
    """Another process that looks, at times of its own."""

    def __init__(self, root: Path) -> None:
        """A new one."""
        self.locks, self.now = SessionLocks(str(root)), 0

    def sees(self, *sessions: int) -> set[int]:
        """Which of these have ended, after the next look."""
        self.locks.ended(set(sessions))
        self.now += 1_000
        self.locks.look(self.now)
        return set(self.locks.ended(set(sessions)))


def test_a_session_has_ended_when_its_process_was_killed(tmp_path: Path) -> None:
    """Not before, and not one of which there is no file."""
    command = [sys.executable, "-c", HOLDS, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603 - its own text
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        watcher = Watcher(tmp_path)
        assert watcher.sees(7, 8) == set()
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert watcher.sees(7, 8) == {7}
    assert watcher.sees(8) == set()


def test_a_session_that_is_over_leaves_no_file(tmp_path: Path) -> None:
    """Its last row says that it is over."""
    mine, other = SessionLocks(str(tmp_path)), Watcher(tmp_path)
    mine.hold(1)
    assert other.sees(1) == set()
    mine.release(1)
    assert other.sees(1) == set()
    assert list((tmp_path / FOLDER).iterdir()) == []
    mine.release(1)


def test_a_file_of_another_kernel_or_without_one_says_nothing(tmp_path: Path) -> None:
    """Of a machine that shares the folder, of one that was started again, and of a process that died as it began."""
    (tmp_path / FOLDER).mkdir()
    for session, text in enumerate(("", "another", sessionlocks._kernel())):
        (tmp_path / FOLDER / str(session)).write_text(text)
    assert Watcher(tmp_path).sees(0, 1, 2) == {2}


def test_old_files_are_deleted_unless_their_sessions_live(tmp_path: Path) -> None:
    """Those that killed processes left; others may still look at new ones."""
    living = SessionLocks(str(tmp_path))
    living.hold(1)
    for session in (2, 3):
        (tmp_path / FOLDER / str(session)).write_text(sessionlocks._kernel())
    for session in (1, 2):
        os.utime(tmp_path / FOLDER / str(session), (0, 0))
    SessionLocks(str(tmp_path))
    assert sorted(each.name for each in (tmp_path / FOLDER).iterdir()) == ["1", "3"]
    living.release(1)


def test_of_many_sessions_each_is_looked_at_in_turn(tmp_path: Path) -> None:
    """A look opens a file for each, so it is at some of them."""
    (tmp_path / FOLDER).mkdir()
    sessions = range(3 * sessionlocks._MOST)
    for session in sessions:
        (tmp_path / FOLDER / str(session)).write_text(sessionlocks._kernel())
    watcher = Watcher(tmp_path)
    assert [len(watcher.sees(*sessions)) for _ in range(4)] == [32, 64, 96, 96]


def test_where_no_file_can_be_made_consumers_go_by_leases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a store, without locks, and without the name of a kernel."""
    stored = SessionLocks("s3://bucket/warehouse")
    stored.hold(1)
    stored.look(1_000)
    assert stored.ended({1}) == set()

    def refused(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    with monkeypatch.context() as patched:
        patched.setattr("fcntl.flock", refused)
        unlocked = SessionLocks(str(tmp_path))
        unlocked.hold(1)
    assert Watcher(tmp_path).sees(1) == set(), "it lives"
    unlocked.release(1)
    monkeypatch.setattr(sessionlocks, "_kernel", lambda: "")
    nameless = SessionLocks(str(tmp_path))
    nameless.hold(1)
    assert list((tmp_path / FOLDER).iterdir()) == []
