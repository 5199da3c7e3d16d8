"""The process of the sinks starts when a subscription has one, and again when it dies. It ends with its parent."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")
pytest.importorskip("pulsar", reason="the sink needs requirements/all.lock")

from pipeline.client.subscribing.subscriptions import Subscription, set_policies, subscribe, unsubscribe
from pipeline.sinks.apart import SinkProcess, SinkSupervisor, publishing_apart
from pipeline.sinks.running import Share
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
    keeper = SinkSupervisor(root, watch)
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


CLIENT = """
import json, signal
from pathlib import Path

def known(topic):
    path = Path(__file__).parent / topic
    return json.loads(path.read_text()) if path.exists() else {"sent": [], "place": None}

class KafkaException(Exception): pass

class KafkaError:
    INVALID_RECORD, MSG_SIZE_TOO_LARGE, RECORD_LIST_TOO_LARGE = 87, 10, 18

class TopicPartition:
    error = None
    def __init__(self, topic, partition, offset=-1001, metadata=""):
        self.topic, self.offset, self.metadata = topic, offset, metadata

class Producer:
    def __init__(self, told): pass
    def init_transactions(self, wait): pass
    def begin_transaction(self): self.sent = []
    def poll(self, wait): pass
    def purge(self): pass
    def produce(self, topic, value, key, headers):
        if value == b"deadly":
            signal.raise_signal(signal.SIGSEGV)
        self.sent.append(value.decode())
    def send_offsets_to_transaction(self, offsets, group, wait):
        (self.place,) = offsets
    def commit_transaction(self, wait):
        place, path = self.place, Path(__file__).parent / self.place.topic
        new = {"sent": known(place.topic)["sent"] + self.sent, "place": [place.offset, place.metadata]}
        path.with_suffix(".new").write_text(json.dumps(new))
        path.with_suffix(".new").replace(path)

class Consumer:
    def __init__(self, told): pass
    def committed(self, asked, timeout):
        place = known(asked[0].topic)["place"]
        return [TopicPartition(asked[0].topic, 0, *place)] if place else asked
    def consumer_group_metadata(self): pass
    def close(self): pass
"""
"""A client of Kafka that dies of a message, and writes the others into files beside it."""


def test_a_sink_of_which_the_process_dies_stands_alone_and_the_others_go_on(
    root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One message stopped all sinks of a warehouse, for as long as it was there."""
    monkeypatch.setattr("pipeline.sinks.apart._FIRST_PAUSE_S", 0.01)
    folder = tmp_path / "clients"
    folder.mkdir()
    (folder / "confluent_kafka.py").write_text(CLIENT)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    for name in ("bad", "good", "fine"):
        subscribe(root, Subscription("t", name, policies=Policies(sink=f"kafka://127.0.0.1:1/{name}")))
    for name in ("good", "fine"):
        delivered(root, "a", subscription=name)
    delivered(root, "deadly", subscription="bad")

    def have(*sent: str) -> bool:
        found = [folder / name for name in ("good", "fine")]
        return all(each.exists() and json.loads(each.read_text())["sent"] == list(sent) for each in found)

    with publishing_apart(root):
        until(lambda: caplog.text.count("has ended with -11 (SIGSEGV)") > 1)
        until(lambda: any("ProcessDied: it ended with -11 (SIGSEGV)" in str(each) for each in errors(root)))
        until(lambda: have("a"))
        for name in ("good", "fine"):
            delivered(root, "b", subscription=name)
        until(lambda: have("a", "b"))
        unsubscribe(root, "t", "bad")
        until(lambda: len(places(root).names()) == 2)
    assert "sink of t/bad stands still: ProcessDied" in caplog.text
    assert errors(root) == {None}


@dataclass
class Deaf:
    """A process that does not end; `time` is that of all, and goes on while somebody waits."""

    time: list[float]
    stdin: None = None
    killed: bool = False

    def wait(self, timeout: float) -> None:
        """In vain."""
        self.time[0] += timeout
        raise subprocess.TimeoutExpired("deaf", timeout)

    def kill(self) -> None:
        """End it."""
        self.killed = True


def test_processes_that_do_not_end_are_waited_for_together(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stop took twenty seconds for each sink that had a process for itself."""
    time = [0.0]
    monkeypatch.setattr("pipeline.sinks.apart.monotonic_ms", lambda: round(time[0] * 1_000))
    keeper, deaf = SinkSupervisor(root, Late()), [Deaf(time) for _ in range(4)]
    for number, process in enumerate(deaf):
        child: Any = SinkProcess(root, Share(), Late())
        child.process, keeper._children[str(number)] = process, child
    keeper.stop()
    assert all(process.killed for process in deaf)
    assert time[0] <= 20


def test_it_ends_when_its_parent_dies(root: str) -> None:
    """Else two processes would publish after the next start."""
    set_policies(root, "t", "s", Policies(sink=REFUSED))
    program = f"""
from pipeline.sinks.apart import SinkSupervisor
from pipeline.config.options import StageListener
keeper = SinkSupervisor({root!r}, StageListener())
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
