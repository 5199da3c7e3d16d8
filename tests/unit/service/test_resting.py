"""The clock of a schedule that keeps nothing rests: few instants, and one at once when something comes."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the service needs requirements/all.lock")

from pipeline.config.settings import LiveClock
from pipeline.service import clock
from pipeline.service.clock import LiveInstants, Wakes
from pipeline.storage.waiting import Folders

BEGIN, STEP, AHEAD = 1_000_000, 5_000, 15_000


class Query:
    """A query that asks its clock, one batch after the other. The wall clock moves while it waits.

    Attributes:
        kept: keys in its state behind the last batch.
        batches: when each began and its instant, ms.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path, *, is_held: bool = False, **clock_: int) -> None:
        """The machine has been away for a quarter of a minute."""
        self.ms, self.kept, self.version, self.is_held = BEGIN, 0, 7, is_held
        self.batches, self._later = list[tuple[int, int]](), list[tuple[int, Callable[[], object]]]()
        for name in ("wall_ms", "monotonic_ms", "elapsed_ms"):
            monkeypatch.setattr(clock, name, lambda: self.ms)
        monkeypatch.setattr(Folders, "wait", lambda _, seconds: self._wait(seconds))
        self.segments, self.offsets, self.cursors = (folder / name for name in ("segments", "offsets", "cursors"))
        for each in (self.segments, self.offsets, self.cursors):
            each.mkdir()
        wakes = Wakes([str(self.cursors)], [str(self.segments), str(self.offsets)], gather_ms=1_000)
        settings = LiveClock(lookahead_ms=AHEAD, resolution_ms=STEP, **clock_)
        self.clock = LiveInstants(settings, 0, wakes, lambda: self.is_held, self._let_go)
        self.last = BEGIN - 15_000

    def _let_go(self) -> int | None:
        return None if self.kept else self.version

    def _wait(self, seconds: float) -> None:
        until = self.ms + max(1, round(seconds * 1_000))
        due = [each for each in self._later if each[0] <= until]
        self.ms = min([until, *(at for at, _ in due)])
        for each in due:
            if each[0] <= self.ms:
                self._later.remove(each)
                each[1]()

    def comes(self, after_s: float, folder: Path) -> None:
        """Something to keep will come into a folder."""

        def come() -> None:
            self.kept = 1
            self._touch(folder)

        self._later.append((self.ms + round(after_s * 1_000), come))

    def _touch(self, folder: Path) -> None:
        os.utime(folder, ns=(self.ms, self.ms))

    def runs(self, seconds: float) -> list[int]:
        """What the clock gives for so long: the times of the batches since the beginning, in s."""
        end, known = self.ms + round(seconds * 1_000), len(self.batches)
        while self.ms < end:
            instant = self.clock.after(self.last)
            if instant > self.last:
                self.batches.append((self.ms, instant))
                self.last = instant
                self._touch(self.offsets)
        return [(at - BEGIN) // 1_000 for at, _ in self.batches[known:]]


def test_a_schedule_that_keeps_nothing_has_a_batch_a_minute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Once it is at the present, and its log says what it has let go. One that keeps something steps on."""
    query = Query(monkeypatch, tmp_path)
    assert query.runs(4) == [0, 0]
    assert [instant for _, instant in query.batches] == [BEGIN + AHEAD, BEGIN + AHEAD + 1]
    assert query.clock.note == {"let_go": 7}
    assert query.runs(190) == [60, 120, 180]
    assert [instant - at for at, instant in query.batches[2:]] == [AHEAD] * 3
    query.kept = 1
    assert len(query.runs(60)) >= 12
    query.kept = 0
    query.version = 8
    # One more says so, for those who ask what is let go.
    assert len(query.runs(40)) == 1
    assert query.clock.note == {"let_go": 8}


@pytest.mark.parametrize("name", ["segments", "cursors"])
def test_what_comes_ends_the_rest_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str) -> None:
    """With an instant that is of the present, and one more, since an instant takes effect with the batch after it."""
    query = Query(monkeypatch, tmp_path)
    query.runs(31)
    query.comes(2.5, tmp_path / name)
    begun, known = query.ms, len(query.batches)
    query.runs(4)
    (first, instant), (second, following) = query.batches[known : known + 2]
    assert (first, second) == (begun + 2_500, begun + 2_500)
    assert instant == first + AHEAD - (first + AHEAD) % STEP
    assert following == instant + 1
    assert len(query.runs(30)) == 6


def test_rows_that_nobody_told_of_end_the_rest(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Another process put them into a store: the query finds them when it looks, in a batch without an instant."""
    query = Query(monkeypatch, tmp_path)
    query.runs(31)
    before = query.ms
    query.kept, query.version = 1, 8
    query._touch(query.offsets)
    query.runs(1)
    assert [at for at, _ in query.batches[-2:]] == [before, before]


def test_a_rest_that_ends_by_itself_tells_what_came_meanwhile(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The batch of a minute may find rows: their instant takes effect at once."""
    query = Query(monkeypatch, tmp_path)
    query.runs(31)
    while query.batches[-1][0] < BEGIN + 50_000:
        query.kept = 0
        query.runs(1)
    query.kept = 1
    query.runs(1)
    assert query.batches[-1][1] == query.batches[-2][1] + 1


@pytest.mark.parametrize(("away", "steps"), [(600_000, 11), (25_000, 1)])
def test_a_clock_that_stands_or_comes_from_far_does_not_rest(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, away: int, steps: int
) -> None:
    """Who waits for the present after an outage would wait for a minute more."""
    query = Query(monkeypatch, tmp_path, is_held=True, max_step_ms=60_000)
    query.last = BEGIN - away
    assert query.runs(3) == [0]
    query.is_held = False
    query.runs(1)
    assert [instant for _, instant in query.batches[-2:]] == [BEGIN + AHEAD, BEGIN + AHEAD + 1]
    assert len(query.batches) == 1 + steps + 1


@pytest.mark.parametrize(("most", "pause"), [(STEP, 5), (20_000, 20), (3_600_000, 60)])
def test_a_rest_is_no_longer_than_a_step_of_the_clock(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, most: int, pause: int
) -> None:
    """What it releases behind a rest is bounded as on the way back from an outage; and people see it each minute."""
    query = Query(monkeypatch, tmp_path, max_step_ms=most)
    query.last = BEGIN + AHEAD - STEP
    query.runs(1)
    found = query.runs(125)
    assert {after - before for before, after in pairwise(found)} == {pause}
