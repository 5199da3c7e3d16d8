"""The process of the sinks starts when a subscription has one, and again when it dies. It ends with its parent."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")
pytest.importorskip("pulsar", reason="the sink needs requirements/all.lock")

from pipeline.client.subscribing.subscriptions import Subscription, set_policies, subscribe
from pipeline.sinks.apart import Keeper, publishing_apart
from pipeline.subscriptions.policies import Policies
from tests.support.client import new_warehouse
from tests.support.sinks import delivered, places
from tests.unit.sinks.test_running import Late, errors, until

REFUSED = "pulsar://127.0.0.1:1/public/default/out?compression_type=none_such"
"""The sink stands still, as its client has no such setting; it does not look for the broker first."""
_TREE = Path(__file__).resolve().parents[3]


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A new warehouse, whose subscription has no sink yet."""
    new_warehouse(str(tmp_path))
    subscribe(str(tmp_path), Subscription("t", "s"))
    return str(tmp_path)


def lives(pid: int) -> bool:
    """Whether a process is there."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_it_starts_when_there_is_a_sink_and_again_when_it_dies(root: str, caplog: pytest.LogCaptureFixture) -> None:
    """What it logs and how late its sinks are is told here."""
    watch = Late()
    keeper = Keeper(root, watch)
    keeper.start()
    try:
        assert keeper.pid is None
        set_policies(root, "t", "s", Policies(sink=REFUSED))
        delivered(root, "a")
        until(lambda: any("NONE_SUCH" in str(each) for each in errors(root)))
        until(lambda: (watch.seconds.get("s") or 0) > 0)
        until(lambda: "sink of t/s stands still" in caplog.text)
        first = keeper.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        until(lambda: keeper.pid not in (None, first))
        assert "the process of the sinks has ended with -9" in caplog.text
        until(lambda: (watch.seconds.get("s") or 0) > 0)
    finally:
        keeper.stop()
    assert keeper.pid is not None
    assert not lives(keeper.pid)
    assert watch.seconds == {"s": None}
    assert [each.levelno for each in caplog.records if "stands still" in each.message][:1] == [logging.WARNING]


def test_notes_of_a_sink_that_was_taken_away_meanwhile_are_dropped(root: str) -> None:
    """Else the log of deliveries would be kept for ever."""
    set_policies(root, "t", "s", Policies(sink=REFUSED))
    with publishing_apart(root):
        until(lambda: bool(places(root).names()))
    set_policies(root, "t", "s", Policies())
    with publishing_apart(root):
        until(lambda: not places(root).names())


def test_it_ends_when_its_parent_dies(root: str) -> None:
    """Else two processes would publish after the next start."""
    set_policies(root, "t", "s", Policies(sink=REFUSED))
    program = f"""
from pipeline.sinks.apart import Keeper
from pipeline.config.watching import Watch
keeper = Keeper({root!r}, Watch())
keeper.start()
while keeper.pid is None:
    pass
print(keeper.pid, flush=True)
input()
"""
    with subprocess.Popen(  # noqa: S603 - our own
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=_TREE
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        until(lambda: bool(errors(root)))
        for number in (signal.SIGTERM, signal.SIGINT):
            os.kill(pid, number)
        assert lives(pid)
        parent.kill()
    until(lambda: not lives(pid))
