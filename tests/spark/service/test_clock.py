"""The clock's rules, without Spark: time is an argument."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from threading import Thread

import pytest

from pipeline.config.errors import BadSetting, ClockJumped
from pipeline.config.settings import LiveClock
from pipeline.service import clock
from pipeline.service.clock import (
    Instants,
    LiveInstants,
    VirtualInstants,
    VirtualWorkInstants,
    Wakes,
    advance,
    given,
    next_instant,
)
from pipeline.storage import waiting
from pipeline.storage.waiting import Folders

PACED = LiveClock(lookahead_ms=500, max_step_ms=1_000, resolution_ms=100)


@pytest.mark.parametrize(
    ("last", "wall", "expected"),
    [
        (1_000, 1_000, 1_500),
        (1_500, 1_049, 1_500),
        (1_500, 1_100, 1_600),
        (1_000, 99_000, 2_000),
        (5_000, 1, 5_000),
    ],
)
def test_an_instant_follows_the_wall_clock_ahead_and_paced(last: int, wall: int, expected: int) -> None:
    """It looks ahead, keeps to its resolution, catches up in steps, and never goes back."""
    assert next_instant(last, wall, PACED) == expected


def test_a_running_clock_that_jumps_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wall clock that is set by more than the limit is an error, either way; less is not, however often it comes."""
    now = {"wall": 1_000_000, "elapsed": 5_000}
    monkeypatch.setattr(clock, "wall_ms", lambda: now["wall"])
    monkeypatch.setattr(clock, "elapsed_ms", lambda: now["elapsed"])
    reader = LiveInstants(LiveClock(max_jump_ms=60_000))
    now["wall"] += 60_000
    assert reader.after(1_000_000) == 1_060_000
    for jump in (60_001, -60_001):
        now["wall"] = 1_060_000 + jump
        with pytest.raises(ClockJumped) as raised:
            reader.after(1_000_000)
        assert raised.value.jump_ms == jump


class Wall:
    """A wall clock that a wait moves on, and what happens meanwhile."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """It stands at 1 000 000 ms."""
        self.ms, self.waits, self.meanwhile = 1_000_000, 0, dict[int, Callable[[], object]]()
        monkeypatch.setattr(clock, "wall_ms", lambda: self.ms)
        monkeypatch.setattr(clock, "monotonic_ms", lambda: self.ms)
        monkeypatch.setattr(clock, "elapsed_ms", lambda: self.ms)
        monkeypatch.setattr(Folders, "wait", lambda _, seconds: self.wait(seconds))

    def wait(self, seconds: float) -> None:
        """A part of the time goes by, and somebody may do something."""
        self.ms, self.waits = self.ms + min(10, round(seconds * 1_000)), self.waits + 1
        self.meanwhile.pop(self.waits, lambda: None)()


def test_a_query_waits_for_its_clock_until_something_changes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A commit to its source, a batch of its own, the next instant, or two seconds: whatever comes first."""
    wall, folders = Wall(monkeypatch), [tmp_path / "log", tmp_path / "offsets"]
    reader = LiveInstants(LiveClock(lookahead_ms=0, resolution_ms=10_000), 0, Wakes([str(each) for each in folders]))
    start = 1_000_000

    def waited() -> int:
        before = wall.waits
        assert reader.after(start) == start
        return wall.waits - before

    folders[0].mkdir()
    assert waited() == 0
    # A batch began since the last answer: it may have left something.
    folders[1].mkdir()
    assert waited() == 0
    wall.meanwhile[wall.waits + 7] = lambda: os.utime(folders[0], (5, 5))
    assert waited() == 7
    assert waited() * 10 == 2_000
    wall.ms = 1_009_950
    assert reader.after(start) == 1_010_000
    assert wall.ms == 1_010_000


def test_news_that_may_wait_is_gathered(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It has its turn a second after the last look; other news, and the next instant, come at once."""
    wall, (patient, urgent) = Wall(monkeypatch), (tmp_path / "log", tmp_path / "cursors")
    wakes = Wakes([str(urgent)], [str(patient)], gather_ms=1_000)
    instants = LiveInstants(LiveClock(lookahead_ms=0, resolution_ms=10_000), 0, wakes)

    def waited_ms() -> int:
        before = wall.ms
        assert instants.after(1_000_000) == 1_000_000
        return wall.ms - before

    patient.mkdir()
    urgent.mkdir()
    assert waited_ms() == 0
    os.utime(patient, (5, 5))
    assert waited_ms() == 1_000
    wall.ms += 1_500
    os.utime(patient, (6, 6))
    assert waited_ms() == 0
    os.utime(patient, (7, 7))
    wall.meanwhile[wall.waits + 3] = lambda: os.utime(urgent, (5, 5))
    assert waited_ms() == 30
    os.utime(patient, (8, 8))
    wall.ms = 1_009_900
    assert waited_ms() == 0
    os.utime(patient, (9, 9))
    assert instants.after(1_000_000) == wall.ms == 1_010_000


def test_a_clock_that_comes_from_far_gives_another_instant_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """An instant takes effect with the batch after it: what became due during an outage waits for no further tick."""
    Wall(monkeypatch)
    reader, start, given_since = LiveInstants(LiveClock(lookahead_ms=0, resolution_ms=10_000)), 900_000, []
    for _ in range(4):
        start = reader.after(start)
        given_since.append(start)
    assert given_since == [960_000, 1_000_000, 1_000_001, 1_000_001]


def test_who_waits_for_a_clock_that_has_ended_waits_no_more(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A query that is to stop waits for its clock; each stage of a service stood so for up to two seconds."""
    wall = Wall(monkeypatch)
    reader = LiveInstants(LiveClock(lookahead_ms=0, resolution_ms=10_000), 0, Wakes([str(tmp_path)]))
    assert reader.after(1_000_000) == 1_000_000
    wall.meanwhile[wall.waits + 3] = reader.end
    assert reader.after(1_000_000) == 1_000_000
    assert wall.waits == 3
    reader.close()
    assert reader.after(1_000_000) == 1_000_000
    wall.ms = 2_000_000
    assert reader.after(1_000_000) == 1_000_000


def test_a_clock_that_watches_nothing_answers_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is nothing to wait for but the next instant, which a query may be asked for at its own pace."""
    wall = Wall(monkeypatch)
    reader = LiveInstants(LiveClock(lookahead_ms=0, resolution_ms=10_000))
    assert reader.after(1_000_000) == 1_000_000
    assert wall.waits == 0


@pytest.mark.parametrize("made", [VirtualInstants, partial(VirtualWorkInstants, has_work=lambda now: now > 0)])
def test_a_held_clock_answers_when_it_is_released_and_names_the_hold(
    tmp_path: Path, made: Callable[[str], Instants]
) -> None:
    """Whoever moves it knows then that the reader's query is between two batches."""
    path = str(tmp_path / "clock" / "stage")
    advance(path, 5)
    first, second = clock.hold(path), clock.hold(path)
    answers: list[int] = []
    asking = Thread(target=lambda: answers.append(made(path).after(5)))
    asking.start()
    while not clock.is_held(path, second):
        assert asking.is_alive()
    assert not clock.is_held(path, first)
    advance(path, 9)
    assert answers == []
    clock.release(path)
    asking.join()
    assert answers == [9]


def test_a_virtual_clock_gives_each_instant_once_and_in_order(tmp_path: Path) -> None:
    """Instants come one by one; one that is not later is not given; a line cut by a crash is not read."""
    path = tmp_path / "clock" / "stage"
    for instant in (5, 9, 9, 3, 12):
        advance(str(path), instant)
    assert given(str(path)) == [5, 9, 12]
    path.write_text(path.read_text() + "99")
    reader, last, found = VirtualInstants(str(path)), 0, []
    while (following := reader.after(last)) != last:
        found.append(following)
        last = following
    assert found == [5, 9, 12]


def test_a_virtual_clock_that_is_held_and_ended_gives_nothing(tmp_path: Path) -> None:
    """A replay that dies while it holds its clocks stops its stages; they waited for their parent to be gone."""
    path = str(tmp_path / "clock" / "stage")
    advance(path, 5)
    clock.hold(path)
    reader = VirtualInstants(path)
    reader.end()
    assert reader.after(0) == 0


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "inotify_init1"), reason="only Linux says what happens in a folder")
@pytest.mark.parametrize(("let_go", "answer"), [(True, 5), (False, 0)])
def test_whoever_waits_for_a_held_clock_is_woken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, let_go: bool, answer: int
) -> None:
    """By the one who lets it go, or ends it. Three stages that look again and again take a tenth of a core."""
    for module, name in ((clock, "_LOOK_S"), (waiting, "_LOOK_S"), (waiting, "_QUIET_LOOK_S")):
        monkeypatch.setattr(module, name, 600)
    path = str(tmp_path / "clock" / "stage")
    advance(path, 5)
    held, reader, answers = clock.hold(path), VirtualInstants(path), list[int]()
    asking = Thread(target=lambda: answers.append(reader.after(0)), daemon=True)
    asking.start()
    while not clock.is_held(path, held):
        assert asking.is_alive()
    if let_go:
        clock.release(path)
    else:
        reader.end()
    asking.join(60)
    assert answers == [answer]
    reader.close()


@pytest.mark.parametrize("wrong", [{"max_step_ms": 1}, {"lookahead_ms": -1}, {"max_jump_ms": 0}, {"resolution_ms": 0}])
def test_a_clock_that_could_not_work_is_refused(wrong: dict[str, int]) -> None:
    """The error names the setting."""
    with pytest.raises(BadSetting) as raised:
        LiveClock(**wrong)
    assert raised.value.field in wrong


def test_a_clock_that_is_held_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    """But for a millisecond, so that there is a batch meanwhile; then it goes on in its steps."""
    wall, holds = Wall(monkeypatch), [True, True, True]
    clock = LiveClock(lookahead_ms=0, resolution_ms=1_000, max_step_ms=60_000)
    reader = LiveInstants(clock, is_held=lambda: bool(holds and holds.pop()))
    assert [reader.after(last) for last in (900_000, 900_001, 900_001)] == [900_001] * 3
    assert reader.after(900_001) == 960_001
    assert wall.waits == 0
