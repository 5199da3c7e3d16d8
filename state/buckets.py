"""Time in buckets: tick to bits, trimming, segments, the due rules, delay-proportional precision.

All instants are integers, milliseconds since the epoch, UTC. A tick of T ms keeps `b = floor(log2 T)` low bits
out of the index: buckets are `P = 2^b` ms wide and aligned to the epoch, so widths nest: rounding up to a fine
width and then to a coarse one is the same as rounding up to the coarse one at once.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from state.errors import InvalidArgument, OutOfRange

IntArray = npt.NDArray[np.int64]
Times = TypeVar("Times", int, IntArray)

MAX_TIME = 253_402_300_799_999
"""9999-12-31T23:59:59.999Z, the last instant that is accepted (and the last that SQL timestamps can show)."""
MAX_TICK = 1 << 41
"""About 69 years, in ms: a wider bucket serves nobody, and keys stay far from overflow."""
MAX_BITS = 41
"""No two times that a timestamp can hold are so many ms apart."""


def check_range(field: str, value: int, low: int, high: int) -> int:
    """Return `value` as an int.

    Raises:
        InvalidArgument: when it is not an integer.
        OutOfRange: when it lies outside `low..high`.
    """
    try:
        number = operator.index(value)
    except TypeError as error:
        raise InvalidArgument(field, value, "an integer") from error
    if not low <= number <= high:
        raise OutOfRange(field, number, low, high)
    return number


def tick_bits(tick_ms: int) -> int:
    """Bits dropped for a tick: `floor(log2 tick_ms)` (1000 -> 9, 1024 -> 10, 60000 -> 15).

    Raises:
        OutOfRange: when `tick_ms` is not in 1..2^41.
    """
    return check_range("tick_ms", tick_ms, 1, MAX_TICK).bit_length() - 1


def bucket_width(tick_ms: int) -> int:
    """Width in ms of the buckets that a tick gives: the largest power of two that is not above it."""
    return 1 << tick_bits(tick_ms)


def trim_down(at: Times, bits: int) -> Times:
    """The latest multiple of `2^bits` that is not after `at` (ms; an int or an int64 array)."""
    return at >> bits << bits


def trim_up(at: Times, bits: int) -> Times:
    """The earliest multiple of `2^bits` that is not before `at` (ms; an int or an int64 array)."""
    return (at + (1 << bits) - 1) >> bits << bits


def segment_start(at: Times, span_ms: int) -> Times:
    """Start of the segment `[start, start + span_ms)` that holds `at`; segments are aligned to the epoch.

    Raises:
        OutOfRange: when `span_ms` is not positive.
    """
    check_range("span_ms", span_ms, 1, MAX_TIME)
    return at // span_ms * span_ms


@dataclass(frozen=True, slots=True)
class DueRule:
    """When a message is due, for one tick: the table "Rules" of the promises.

    Strict (never early): the key is `deliver_at` rounded up, due when `key <= now`. Tolerant (the reference's
    default): rounded down, due when `key <= now + T - P + 1`, at most one tick early.

    Raises:
        OutOfRange: when `tick_ms` is not in 1..2^41.
    """

    tick_ms: int = 1000
    strict: bool = True

    def __post_init__(self) -> None:
        """Refuse a tick outside its range."""
        tick_bits(self.tick_ms)

    @property
    def bits(self) -> int:
        """Bits dropped from a time."""
        return tick_bits(self.tick_ms)

    def key(self, deliver_at: Times) -> Times:
        """The bucket key of a delivery time (ms)."""
        return trim_up(deliver_at, self.bits) if self.strict else trim_down(deliver_at, self.bits)

    def horizon(self, now: int) -> int:
        """The largest bucket key (ms, a multiple of P) that is due at `now`."""
        slack = 0 if self.strict else self.tick_ms - bucket_width(self.tick_ms) + 1
        return trim_down(int(now) + slack, self.bits)

    def deadline(self, key: int) -> int:
        """The first instant at which `key` is due: the inverse of `horizon`."""
        if self.strict:
            return trim_up(key, self.bits)
        return trim_up(key, self.bits) - (self.tick_ms - bucket_width(self.tick_ms) + 1)

    def refuses(self, deliver_at: int, now: int) -> bool:
        """True when a tracker does not take the message, because it is to be delivered now."""
        return deliver_at <= now + (0 if self.strict else self.tick_ms)


def proportional_tick(delay_ms: int) -> int:
    """The tick (ms) that a delay deserves: about 1 s at a minute and 1 min at a day, `1 s * (delay / 1 min)^(9/16)`.

    The one place where delay-proportional precision is stated. The exponent is the one that joins the two points
    (log 60 / log 1440 = 0.563); nine sixteenths needs square roots only, which IEEE 754 rounds alike everywhere.
    """
    return int(_proportional_ticks(np.asarray([max(int(delay_ms), 0)]))[0])


def proportional_deliver_at(deliver_ats: IntArray, publish_times: IntArray, tick_ms: int = 1) -> IntArray:
    """Round each delivery time up to the width its delay deserves, never finer than `tick_ms` gives.

    Applied to the time before it is added: up of up nests, so an index of any finer tick keeps the result as it is.

    Args:
        deliver_ats: delivery times, ms, shape (n,).
        publish_times: publish times, ms, shape (n,); a delay below zero counts as zero.
        tick_ms: the finest tick to use.

    Returns:
        The rounded times, ms, shape (n,): never earlier, later by less than `proportional_tick(delay)` or `tick_ms`. A
        time that would be rounded past the year 9999 stays as it is.
    """
    ticks = np.maximum(_proportional_ticks(deliver_ats - publish_times), tick_ms)
    bits = np.frexp(ticks.astype(np.float64))[1].astype(np.int64) - 1
    masks: IntArray = (np.int64(1) << bits) - 1
    rounded: IntArray = (deliver_ats + masks) & ~masks
    return np.where(rounded > MAX_TIME, deliver_ats, rounded)


def _proportional_ticks(delays: IntArray) -> IntArray:
    """`proportional_tick`, for an array; at least 1 ms."""
    root = np.sqrt(np.maximum(delays, 0) / 60_000.0)
    ticks: IntArray = np.maximum(1000.0 * root * np.sqrt(np.sqrt(np.sqrt(root))), 1.0).astype(np.int64)
    return ticks
