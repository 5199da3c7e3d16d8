"""Time in buckets: the table of the promises, trimming, nesting, due rules, proportional precision."""

from __future__ import annotations

import numpy as np
import pytest

from state import (
    DueRule,
    InvalidArgument,
    OutOfRange,
    TimeBucketIndex,
    bucket_width,
    proportional_deliver_at,
    proportional_tick,
    segment_start,
    tick_bits,
    trim_down,
    trim_up,
)

SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000
LAST_MS = 253_402_300_799_999


@pytest.mark.parametrize(
    ("tick", "bits", "width"),
    [
        (1000, 9, 512),
        (1024, 10, 1024),
        (60_000, 15, 32_768),
        (1, 0, 1),
        (2, 1, 2),
        (3, 1, 2),
        (1023, 9, 512),
        (1025, 10, 1024),
        (2**41 - 1, 40, 2**40),
        (2**41, 41, 2**41),
    ],
)
def test_a_tick_drops_the_bits_that_the_table_states(tick: int, bits: int, width: int) -> None:
    """The first three rows are the table; the others are its edges."""
    assert tick_bits(tick) == bits
    assert bucket_width(tick) == width
    assert DueRule(tick).bits == bits


@pytest.mark.parametrize(
    ("at", "bits", "down", "up"),
    [
        (0, 9, 0, 0),
        (1, 9, 0, 512),
        (511, 9, 0, 512),
        (512, 9, 512, 512),
        (513, 9, 512, 1024),
        (60_400, 9, 59_904, 60_416),
        (61_000, 9, 60_928, 61_440),
        (7, 0, 7, 7),
        (-1, 9, -512, 0),
        (-512, 9, -512, -512),
        (LAST_MS, 41, LAST_MS // 2**41 * 2**41, (LAST_MS // 2**41 + 1) * 2**41),
    ],
)
def test_trimming_goes_to_the_multiple_at_or_before_and_at_or_after(at: int, bits: int, down: int, up: int) -> None:
    """A multiple stays where it is, and arrays are trimmed as their elements are."""
    assert (trim_down(at, bits), trim_up(at, bits)) == (down, up)
    both = np.asarray([at, at], dtype=np.int64)
    assert trim_down(both, bits).tolist() == [down, down]
    assert trim_up(both, bits).tolist() == [up, up]
    assert both.tolist() == [at, at]


@pytest.mark.parametrize(("fine", "coarse"), [(0, 9), (9, 10), (9, 15), (3, 3), (14, 41)])
def test_rounding_up_to_a_fine_and_then_to_a_coarse_width_is_rounding_up_at_once(fine: int, coarse: int) -> None:
    """Up of up nests, and down of down, for times around every kind of edge."""
    for at in (0, 1, 511, 512, 513, 2**15 - 1, 2**15, 2**15 + 1, 1_700_000_000_123, LAST_MS):
        assert trim_up(trim_up(at, fine), coarse) == trim_up(at, coarse)
        assert trim_down(trim_down(at, fine), coarse) == trim_down(at, coarse)


@pytest.mark.parametrize(
    ("at", "span", "start"),
    [(0, HOUR, 0), (HOUR - 1, HOUR, 0), (HOUR, HOUR, HOUR), (HOUR + 1, HOUR, HOUR), (7, 1, 7), (99, 50, 50)],
)
def test_a_segment_starts_at_the_multiple_of_its_span(at: int, span: int, start: int) -> None:
    """A time lies in [start, start + span), ints and arrays alike."""
    assert segment_start(at, span) == start
    assert segment_start(np.asarray([at], dtype=np.int64), span).tolist() == [start]


# ---- the due rules


@pytest.mark.parametrize(
    ("tick", "strict", "deliver_at", "key", "due_from"),
    [
        (1000, True, 60_400, 60_416, 60_416),
        (1000, True, 61_000, 61_440, 61_440),
        (1000, True, 61_440, 61_440, 61_440),
        (1, True, 60_400, 60_400, 60_400),
        (1000, False, 60_400, 59_904, 59_415),
        (1024, False, 60_400, 59_392, 59_391),
        (1, False, 60_400, 60_400, 60_399),
    ],
)
def test_a_key_is_rounded_and_due_as_the_table_states(
    tick: int, *, strict: bool, deliver_at: int, key: int, due_from: int
) -> None:
    """Strict: up, due when key <= now. Tolerant: down, due when key <= now + T - P + 1."""
    rule = DueRule(tick, strict)
    assert rule.key(deliver_at) == key
    assert rule.key(np.asarray([deliver_at], dtype=np.int64)).tolist() == [key]
    assert rule.deadline(key) == due_from
    assert rule.horizon(due_from - 1) < key <= rule.horizon(due_from)


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("tick", [1, 2, 100, 1000, 1024, 60_000])
def test_the_deadline_is_the_inverse_of_the_horizon(tick: int, *, strict: bool) -> None:
    """The first instant at which a key is due is the first whose horizon reaches it, for 50 keys in a row."""
    rule = DueRule(tick, strict)
    width = bucket_width(tick)
    for key in range(width * 20, width * 70, width):
        deadline = rule.deadline(key)
        assert rule.horizon(deadline) == key
        assert rule.horizon(deadline - 1) == key - width


@pytest.mark.parametrize("tick", [1, 100, 1000, 1024])
def test_strict_is_never_early_and_late_by_less_than_a_bucket(tick: int) -> None:
    """The deadline of each of 3 000 times lies in [time, time + P)."""
    rule = DueRule(tick, strict=True)
    for at in range(5_000, 8_000):
        assert 0 <= rule.deadline(rule.key(at)) - at < bucket_width(tick)


@pytest.mark.parametrize("tick", [1, 100, 1000, 1024])
def test_tolerant_is_never_late_and_early_by_at_most_a_tick(tick: int) -> None:
    """The deadline of each of 3 000 times lies in [time - T, time), and some are a whole tick early."""
    rule = DueRule(tick, strict=False)
    early = [at - rule.deadline(rule.key(at)) for at in range(5_000, 8_000)]
    assert min(early) > 0
    assert max(early) == tick


def test_a_key_finer_than_the_rule_is_due_when_its_bucket_is() -> None:
    """A coarser reader rounds a finer key up before it asks."""
    rule = DueRule(60_000)
    assert rule.deadline(512) == 32_768
    assert rule.deadline(32_768) == 32_768
    assert rule.deadline(32_769) == 65_536


@pytest.mark.parametrize(
    ("tick", "strict", "now", "last_refused"),
    [(1000, True, 500, 500), (1, True, 10, 10), (1000, False, 500, 1500), (100, False, 0, 100)],
)
def test_a_rule_refuses_what_is_to_be_delivered_now(tick: int, *, strict: bool, now: int, last_refused: int) -> None:
    """Strict refuses up to now, tolerant up to now + T."""
    rule = DueRule(tick, strict)
    assert rule.refuses(last_refused, now)
    assert not rule.refuses(last_refused + 1, now)


def test_rules_are_values() -> None:
    """Two rules with the same settings are equal, and the default is a strict second."""
    assert DueRule() == DueRule(1000, strict=True)
    assert DueRule(1000) != DueRule(1000, strict=False)


# ---- delay-proportional precision


def test_precision_is_about_a_second_at_a_minute_and_a_minute_at_a_day() -> None:
    """The two points that the rule joins, within one percent."""
    assert proportional_tick(MINUTE) == SECOND
    assert proportional_tick(DAY) == pytest.approx(MINUTE, rel=0.01)


@pytest.mark.parametrize(("delay", "tick"), [(-5, 1), (0, 1), (1, 2), (SECOND, 99), (HOUR, 10_004), (7 * DAY, 178_626)])
def test_precision_at_other_delays_is_what_it_always_was(delay: int, tick: int) -> None:
    """Figures that persisted times depend on: a change of the rule shows here."""
    assert proportional_tick(delay) == tick


def test_precision_never_gets_finer_as_the_delay_grows() -> None:
    """Monotone over eleven orders of magnitude, and never below 1 ms."""
    ticks = [proportional_tick(int(1.1**i)) for i in range(1, 270)]
    assert ticks == sorted(ticks)
    assert ticks[0] >= 1


def delays() -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Delays from none to a year, each a little off a round number."""
    steps = [0, 1, 99, SECOND, 59_999, MINUTE, HOUR, DAY - 1, DAY, 30 * DAY, 365 * DAY]
    return np.asarray([step + extra for step in steps for extra in (0, 3, 501)], dtype=np.int64)


def test_a_proportional_time_is_never_early_and_late_by_less_than_its_tick() -> None:
    """Each rounded time lies in [time, time + the width its delay deserves)."""
    publish = np.full(len(delays()), 1_700_000_000_123, dtype=np.int64)
    rounded = proportional_deliver_at(publish + delays(), publish)
    for delay, late in zip(delays().tolist(), (rounded - publish - delays()).tolist(), strict=True):
        assert 0 <= late < bucket_width(proportional_tick(delay))


def test_a_proportional_time_is_a_multiple_of_the_width_that_its_delay_deserves() -> None:
    """Rounding is not merely small: it puts the times of like delays into few buckets."""
    publish = np.full(len(delays()), 1_700_000_000_123, dtype=np.int64)
    rounded = proportional_deliver_at(publish + delays(), publish)
    for delay, at in zip(delays().tolist(), rounded.tolist(), strict=True):
        assert at % bucket_width(proportional_tick(delay)) == 0


def test_a_proportional_time_nests_into_the_index_of_a_finer_tick() -> None:
    """An index whose tick was the floor keeps each rounded time as it is."""
    publish = np.full(len(delays()), 1_700_000_000_123, dtype=np.int64)
    rounded = proportional_deliver_at(publish + delays(), publish, tick_ms=1000)
    assert (DueRule(1000).key(rounded) == rounded).all()
    index = TimeBucketIndex(1000)
    index.add(np.zeros(len(rounded), dtype=np.int64), np.arange(len(rounded)), rounded)
    assert index.pop_due(LAST_MS).due.tolist() == sorted(rounded.tolist())


def test_a_proportional_time_is_not_finer_than_the_tick_that_is_asked_for() -> None:
    """Short delays are rounded up to the tick, and their publish time, when it is later, counts as no delay."""
    rounded = proportional_deliver_at(np.asarray([10_001, 10_001]), np.asarray([10_000, 20_000]), tick_ms=1000)
    assert rounded.tolist() == [10_240, 10_240]
    assert proportional_deliver_at(np.asarray([10_001]), np.asarray([20_000])).tolist() == [10_001]


# ---- errors


@pytest.mark.parametrize("tick", [0, -1000, 2**41 + 1])
def test_a_tick_outside_its_range_names_field_value_and_range(tick: int) -> None:
    """Everything that takes a tick refuses it alike."""
    for call in (tick_bits, bucket_width, DueRule, TimeBucketIndex):
        with pytest.raises(OutOfRange) as caught:
            call(tick)
        error = caught.value
        assert (error.field, error.value, error.low, error.high) == ("tick_ms", tick, 1, 2**41)


@pytest.mark.parametrize("span", [0, -1])
def test_a_segment_span_that_is_not_positive_names_field_value_and_range(span: int) -> None:
    """A segment is at least 1 ms long."""
    with pytest.raises(OutOfRange) as caught:
        segment_start(5, span)
    assert (caught.value.field, caught.value.value, caught.value.low) == ("span_ms", span, 1)


@pytest.mark.parametrize("tick", [1000.0, "1000", None])
def test_a_tick_that_is_no_integer_names_the_field(tick: object) -> None:
    """A fraction is refused, not cut: half a ms is early."""
    with pytest.raises(InvalidArgument) as caught:
        tick_bits(tick)  # type: ignore[arg-type]
    assert (caught.value.field, caught.value.value) == ("tick_ms", tick)


def test_an_error_says_what_is_allowed() -> None:
    """The text that an operator reads holds field, value and range; programs read the attributes."""
    with pytest.raises(OutOfRange) as caught:
        tick_bits(0)
    for word in ("tick_ms", "0", "1", str(2**41)):
        assert word in str(caught.value)
