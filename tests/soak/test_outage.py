"""The job was away for a day: everything that became due meanwhile is delivered in order, within the stated memory.

`DELAYLINE_OUTAGE_COUNT` is another number of messages, `DELAYLINE_OUTAGE_STEP_MS` another step of the clock.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest

from benchmarks.support.processes import KINDS, memory
from pipeline.client.create import create_all
from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from pipeline.config.settings import MINUTE_MS
from pipeline.delta.deltars import append
from schemas import INBOX
from tests.support.killing import Victim
from tests.support.outage import REACHED, arrived, faults, slices

COUNT = int(os.environ.get("DELAYLINE_OUTAGE_COUNT", "10_000_000"))
STEP_MS = int(os.environ.get("DELAYLINE_OUTAGE_STEP_MS", str(15 * MINUTE_MS)))
"""`LiveClock.max_step_ms` of such a job: a day is 96 steps."""
MOST_BYTES = 6 << 30
"""A heap of 2 GB, what a JVM has beside it, and as much for Python: all processes together, each at its highest."""
PATIENCE_S, LOOK_S = 3_600.0, 0.5


@pytest.fixture(autouse=True)
def _nobody_stays() -> Iterator[None]:
    """Whatever a failed test has left running is killed."""
    yield
    Victim.kill_all()


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A warehouse with one subscription."""
    folder = str(tmp_path / "warehouse")
    create_all(folder)
    subscribe(folder, Subscription("t", "s"))
    return folder


def run(root: str, *words: str) -> dict[str, int]:
    """Run a process to its end; the most memory of each kind of its processes, bytes."""
    folder, begun = Path(root).parent, time.monotonic()
    victim = Victim.begin(["tests.support.outage", root, *words], folder / f"{words[0]}.log", folder / "scratch")
    most = dict.fromkeys(KINDS, 0)
    while victim.alive:
        now = memory(victim.process.pid)
        most = {kind: max(known, now[kind].resident) for kind, known in most.items()}
        assert time.monotonic() < begun + PATIENCE_S, said(root, words[0])
        try:
            victim.process.wait(LOOK_S)
        except subprocess.TimeoutExpired:
            continue
    assert victim.process.returncode == 0, said(root, words[0])
    peaks = ", ".join(f"{kind} {peak >> 20:,} MB" for kind, peak in most.items())
    print(
        f"{' '.join(words)}: {time.monotonic() - begun:.0f} s; at most {peaks}, {sum(most.values()) >> 20:,} MB in all"
    )
    return most


def said(root: str, what: str) -> str:
    """The last words of a process."""
    return (Path(root).parent / f"{what}.log").read_text(errors="replace")[-4_000:]


def come_back(root: str, count: int) -> None:
    """Start again, catch up, and look at all that came."""
    most = run(root, "return", str(STEP_MS))
    lines = (Path(root).parent / "return.log").read_text(errors="replace").splitlines()
    seconds = [float(line.split()[2]) for line in lines if line.startswith(REACHED)]
    print(f"{len(seconds)} steps, median {median(seconds)} s, longest {max(seconds)} s")
    found = faults(arrived(root), count)
    print(f"{count:,} overdue messages: {found}")
    assert found == {"missing": 0, "twice": 0, "early": 0, "out of order": 0}
    assert sum(most.values()) <= MOST_BYTES


def test_what_became_due_while_all_stages_were_down_comes_in_order(root: str) -> None:
    """They lie in the log: taken in before the outage, most of them parked."""
    run(root, "take", str(COUNT))
    come_back(root, COUNT)


def test_what_was_sent_while_ingest_was_down_too_comes_in_order(root: str) -> None:
    """They lie in the inbox, and are taken in, overdue or not, when ingest is back."""
    run(root, "take", "0")
    for rows in slices(COUNT // 5):
        append(root, INBOX, rows)
    come_back(root, COUNT // 5)
