"""Sizes that follow from the rate and the machine: each rule at its edges, and what is stated."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from itertools import product

import pytest

from pipeline.config.settings import DAY_MS, HOUR_MS, MINUTE_MS, Clock, LiveClock, Settings, VirtualClock
from pipeline.config.sizing import (
    DEFAULT_RATE,
    MOST_RATE,
    SizingInputs,
    choose,
    cores_here,
    memory_here,
    segment_for,
    segment_holds,
)
from tests.support.modules import ROOT

GB = 1_000_000_000
USUAL = SizingInputs(DEFAULT_RATE, segment_for(DEFAULT_RATE), cores=8, memory=16 * GB)


def place(rate: int) -> SizingInputs:
    """The usual machine with another rate, and the segments that go with it."""
    return replace(USUAL, rate=rate, segment_ms=segment_for(rate))


def chosen(
    where: SizingInputs, *stated: str, settings: Settings | None = None, clock: Clock | None = None
) -> dict[str, int]:
    """The values that are chosen, by name."""
    choices = choose(where, settings or Settings(), clock or LiveClock(), set(stated))
    return {each.name: each.value for each in choices}


@pytest.mark.parametrize(
    ("rate", "seconds"),
    [
        (1, 3_600),
        (83, 3_600),
        (84, 1_800),
        (DEFAULT_RATE, 300),
        (1_001, 120),
        (30_000, 10),
        (30_001, 5),
        (150_001, 1),
        (MOST_RATE, 1),
    ],
)
def test_a_segment_is_the_longest_round_span_that_stays_below_a_megabyte(rate: int, seconds: int) -> None:
    """Some 300 000 positions of 3 bytes. An hour is the most; a second, which tables take, is the least."""
    assert segment_for(rate) == seconds * 1_000


def test_segments_divide_an_hour() -> None:
    """Who reads a due time knows where its segment begins."""
    spans = {segment_for(rate) for rate in (*range(1, 10_000), *range(10_000, 400_000, 1_000))}
    assert len(spans) == 13
    assert [span for span in spans if HOUR_MS % span] == []


def test_what_a_segment_holds_is_told_in_figures() -> None:
    """Whoever overrides the span sees what it costs."""
    assert segment_holds(1_000, 5 * MINUTE_MS) == "300,000 positions at 1,000 messages a second, about 0.9 MB of state"
    assert segment_holds(2_000, HOUR_MS).startswith("7.2 million positions at 2,000 ")
    assert segment_holds(MOST_RATE, DAY_MS).startswith("864,000 million positions ")


@pytest.mark.parametrize(
    ("rate", "horizon"),
    [
        (DEFAULT_RATE, HOUR_MS),
        (5_555, HOUR_MS),
        (5_556, 30 * MINUTE_MS),
        (333_334, MINUTE_MS),
        (MOST_RATE, MINUTE_MS),
    ],
)
def test_the_horizon_is_an_hour_or_what_the_state_can_hold(rate: int, horizon: int) -> None:
    """Some 20 million positions; a minute is the least that clocks and batches need."""
    assert chosen(place(rate))["settings.horizon_ms"] == horizon


@pytest.mark.parametrize(("span", "horizon"), [(30 * MINUTE_MS, HOUR_MS), (HOUR_MS, 2 * HOUR_MS), (DAY_MS, 2 * DAY_MS)])
def test_the_horizon_has_two_segments_at_least(span: int, horizon: int) -> None:
    """Also when somebody stated their span: one is loaded while another one is due."""
    assert chosen(replace(USUAL, segment_ms=span))["settings.horizon_ms"] == horizon


@pytest.mark.parametrize(
    ("rate", "step"),
    [
        (1, 30 * MINUTE_MS),
        (DEFAULT_RATE, 15 * MINUTE_MS),
        (1_112, 10 * MINUTE_MS),
        (10_000, MINUTE_MS),
        (100_000, 10_000),
        (MOST_RATE, 10_000),
    ],
)
def test_a_step_of_the_clock_is_a_million_messages_or_a_quarter_of_the_horizon(rate: int, step: int) -> None:
    """A day of outage takes hundreds of releases, not thousands; loads keep ahead; ten seconds is the least."""
    assert chosen(place(rate))["clock.max_step_ms"] == step


def test_a_step_follows_the_horizon_that_is_stated() -> None:
    """A choice may not contradict what somebody decided."""
    near = chosen(USUAL, "settings.horizon_ms", settings=Settings(horizon_ms=4 * MINUTE_MS))
    assert near["clock.max_step_ms"] == MINUTE_MS
    assert "settings.horizon_ms" not in near
    none = chosen(USUAL, "settings.horizon_ms", settings=Settings(horizon_ms=0))
    assert none["clock.max_step_ms"] == 10_000
    far = chosen(place(1), "settings.horizon_ms", settings=Settings(horizon_ms=DAY_MS))
    assert far["clock.max_step_ms"] == HOUR_MS


def test_a_step_is_never_shorter_than_the_grid_of_the_clock() -> None:
    """A clock refuses that, and nobody stated the step."""
    assert chosen(place(MOST_RATE), clock=LiveClock(resolution_ms=MINUTE_MS))["clock.max_step_ms"] == MINUTE_MS


@pytest.mark.parametrize(("rate", "stores"), [(DEFAULT_RATE, 1), (10_000, 1), (10_001, 2), (80_000, 8), (80_001, 8)])
def test_state_stores_go_with_the_rate_up_to_the_cores(rate: int, stores: int) -> None:
    """A store that has little to do costs each batch as much as one that has; sorts may use all cores."""
    found = chosen(place(rate))
    assert (found["session.partitions"], found["settings.partitions"]) == (stores, 8)


@pytest.mark.parametrize(
    ("memory", "rows"), [(64 * GB, 4_000_000), (16 * GB, 2_000_000), (8 * GB - 1, 999_000), (GB, 125_000), (1_000, 0)]
)
def test_the_driver_takes_an_eighth_of_the_memory_at_most(memory: int, rows: int) -> None:
    """A small machine leaves large batches to Spark, which can spill."""
    assert chosen(replace(USUAL, memory=memory))["settings.driver_rows"] == rows


@pytest.mark.parametrize(("rows", "size"), [(1_000_000, 32_000_000), (0, 32_000_000)])
def test_a_batch_of_the_inbox_fits_the_driver_that_is_stated(rows: int, size: int) -> None:
    """Without one, batches are as large as if there was."""
    assert chosen(USUAL, "settings.driver_rows", settings=Settings(driver_rows=rows))["settings.max_bytes"] == size


def test_what_is_stated_is_not_chosen() -> None:
    """Each name by itself, and no other."""
    everything = chosen(USUAL)
    for name in everything:
        assert set(chosen(USUAL, name)) == set(everything) - {name}
    assert chosen(USUAL, *everything) == {}


def test_a_virtual_clock_has_no_steps_to_choose() -> None:
    """A replay is given its instants."""
    assert set(chosen(USUAL)) - set(chosen(USUAL, clock=VirtualClock())) == {"clock.max_step_ms"}


def test_a_reason_has_the_figure_that_decided() -> None:
    """Whoever disagrees sees which one to doubt."""
    why = {each.name: each.why for each in choose(USUAL, Settings(), LiveClock(), set())}
    assert why["settings.horizon_ms"] == "3.6 million positions in the state"
    assert why["clock.max_step_ms"] == "900,000 messages a release, on the way back after an outage"
    assert why["settings.driver_rows"] == "small messages take 2.0 GB of the driver's 16.0 GB"


def test_whatever_is_chosen_is_within_its_range() -> None:
    """Settings and clocks refuse what could not work; a choice must never end a start."""
    edges = product((1, DEFAULT_RATE, MOST_RATE), (1_000, MINUTE_MS, DAY_MS), (1, 100_000), (0, 1 << 50))
    for rate, span, cores, memory in edges:
        found = chosen(SizingInputs(rate, span, cores, memory))
        for name, value in found.items():
            section, _, field = name.partition(".")
            {"session": dict, "settings": Settings, "clock": LiveClock}[section](**{field: value})
        assert 1 <= found["session.partitions"] <= cores


def test_this_machine_has_cores_and_memory() -> None:
    """In cores and bytes, not in pages or kilobytes."""
    assert 1 <= cores_here() <= 10_000
    assert 1 << 27 < memory_here() < 1 << 50


def test_sizes_are_chosen_without_spark() -> None:
    """A table is made, and a rule looked up, where there is none."""
    probe = "import pipeline.config.sizing, sys; print(*({'pyspark', 'pandas', 'deltalake'} & set(sys.modules)))"
    said = subprocess.run([sys.executable, "-c", probe], cwd=ROOT, check=True, capture_output=True, text=True)  # noqa: S603
    assert said.stdout.split() == []
