"""Programs in processes of their own that end in all sorts of ways, on the stages as they are and the wall clock.

The stages need no JVM here. Some programs are killed while they work (`kill -9`). Each of the others ends in time, with
the exit code that it asks for. In the end each message that was sent is there once, and each subscription has settled
all of them; what a program had settled when it closed is handed to nobody again.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the stages are made for sessions of Spark")

from pipeline.client.choices import ConsumerType
from pipeline.client.client import Client
from pipeline.client.insight.standing import standings
from pipeline.config.wallclock import wall_ms
from pipeline.delta.deltars import open_table, query
from schemas import MESSAGES
from tests.support.modules import ROOT
from tests.support.program_worker import CODES, ending
from tests.support.stages import Stages

KINDS = (ConsumerType.Shared, ConsumerType.KeyShared, ConsumerType.Failover)
PROGRAMS, AT_ONCE, KILLED = 21, 4, 5
"""So many programs, so many of them at once; each one of so many is killed."""
LONGEST_S = 120
GRACE_MS = 10_000
"""So much later what was settled has reached everybody."""


class Service:
    """The stages, at the pace of the wall clock."""

    def __init__(self, root: Path) -> None:
        """Make the warehouse."""
        self.stages = Stages(str(root))

    def round(self) -> None:
        """Each stage does what there is to do."""
        self.stages.instant = wall_ms()
        while self.stages.has_ingest:
            assert self.stages.ingest()
        self.stages.schedule.step(self.stages.instant)
        while self.stages.has_dispatch:
            assert self.stages.dispatch()
        assert self.stages.settle()
        time.sleep(0.05)


@pytest.fixture
def service(tmp_path: Path) -> Service:
    """The stages of a new warehouse, without a JVM."""
    return Service(tmp_path / "warehouse")


def begun(service: Service, notes: Path, seed: int) -> subprocess.Popen[bytes]:
    """A program."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.support.program_worker", service.stages.root]
    return subprocess.Popen([*command, str(notes / str(seed)), str(seed)], cwd=ROOT, start_new_session=True)  # noqa: S603 - ours


def ran(service: Service, notes: Path) -> dict[int, int]:
    """All programs, some at a time; their exit codes."""
    waiting, there, codes = list(range(PROGRAMS)), dict[int, tuple[subprocess.Popen[bytes], float]](), dict[int, int]()
    while waiting or there:
        while waiting and len(there) < AT_ONCE:
            seed = waiting.pop(0)
            there[seed] = begun(service, notes, seed), time.monotonic()
        service.round()
        for seed, (process, since) in list(there.items()):
            took = time.monotonic() - since
            if seed % KILLED == KILLED - 1 and took > 4 + seed % 3:
                os.killpg(process.pid, signal.SIGKILL)
            assert took < LONGEST_S, f"program {seed}, which {ending(seed)}, does not end"
            if process.poll() is not None:
                codes[seed] = process.returncode
                del there[seed]
    return codes


def drained(service: Service) -> None:
    """What is left is settled by consumers that stay."""
    with Client(service.stages.root) as client:
        consumers = []
        for number, kind in enumerate(KINDS):
            consumers.append(client.subscribe("t", f"s{number}", kind))
        ends = time.monotonic() + LONGEST_S
        while time.monotonic() < ends:
            service.round()
            for each in consumers:
                while (message := each.next_message(0)) is not None:
                    each.acknowledge(message)
            if not any(each.outstanding or each.waiting for each in standings(service.stages.root)):
                return
    pytest.fail(str([(each.line.name, each.outstanding, each.waiting) for each in standings(service.stages.root)]))


def test_programs_end_in_time_whatever_they_do_and_nothing_is_lost(service: Service, tmp_path: Path) -> None:
    """Nor settled twice."""
    notes = tmp_path / "notes"
    notes.mkdir()
    codes = ran(service, notes)
    dead = {(seed, -signal.SIGKILL) for seed in codes if seed % KILLED == KILLED - 1}
    wanted = {seed: CODES.get(ending(seed), 0) for seed in codes}
    assert {seed: code for seed, code in codes.items() if code != wanted[seed] and (seed, code) not in dead} == {}
    drained(service)
    lines = [line for path in notes.iterdir() for line in _lines(path)]
    found = query("SELECT payload FROM t WHERE topic = 't'", t=open_table(service.stages.root, MESSAGES))
    there = Counter(bytes(row["payload"]).decode() for row in found)
    assert max(there.values()) == 1
    assert {what for word, _, what, _ in lines if word == "sent"} - there.keys() == set()
    _check_settled(notes)


def _check_settled(notes: Path) -> None:
    """What a program had said when it closed is handed to nobody later."""
    programs = {int(path.name): _lines(path) for path in notes.iterdir()}
    settled: dict[tuple[int, str], int] = {}
    for seed, lines in programs.items():
        closed = [int(at) for word, _, _, at in lines if word == "closed"]
        if closed and ending(seed) != "pool":
            settled |= {(seed % len(KINDS), what): closed[0] for word, _, what, _ in lines if word == "ack"}
    for seed, lines in programs.items():
        for word, _, what, at in lines:
            said = settled.get((seed % len(KINDS), what.partition("/")[0])) if word == "got" else None
            assert said is None or int(at) < said + GRACE_MS, f"{seed} got {what} that was settled at {said}"


def _lines(path: Path) -> list[list[str]]:
    return [line.split() for line in path.read_text("utf-8").splitlines()]
