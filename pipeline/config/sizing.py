"""Sizes that follow from a rate and a machine: what nobody states is chosen here, each with its reason.

The rate is that of the busiest topic, in messages a second. It is stated once, when a warehouse is made.
"""

import os
import sys
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from pipeline.config.cgroups import Limits, limits
from pipeline.config.settings import HOUR_MS, MINUTE_MS, SECOND_MS, Clock, LiveClock, Settings

DEFAULT_RATE = 1_000
"""Messages a second, where nothing is stated."""
MOST_RATE = 10_000_000

# Round ones, which divide an hour: who reads a due time knows its segment.
_SPANS_MS = (*(s * SECOND_MS for s in (1, 2, 5, 10, 15, 30)), *(m * MINUTE_MS for m in (1, 2, 5, 10, 15, 30)), HOUR_MS)
# A position takes 2 to 3 bytes: an index stays under 1 MB, and its positions within the horizon take about 50 MB.
_POSITION_BYTES = 3
_SEGMENT_POSITIONS = 300_000
_HORIZON_POSITIONS = 20_000_000
_STEP_MESSAGES = 1_000_000
_LEAST_STEP_MS = 10_000
# While both come back from an outage, ingest may be so many steps behind the schedule before a load comes too late.
_STEPS_AHEAD = 4
# Far less than a store takes in (docs/performance.md, encode), because their number stays. A batch costs more with
# each of them, whatever is in it.
_STORE_RATE = 10_000
# A small message takes about a kilobyte in the driver: an eighth of the memory.
_BYTES_A_DRIVER_ROW = 8 * 1_000
_MOST_DRIVER_ROWS = 4_000_000
# Half of the memory, where that is less: the other half is for Python, its workers, and what the JVM has beside its
# heap. With less than the least one Spark does not start.
_HEAP, _ROOM, _LEAST_HEAP_MB = "2g", 4 << 30, 512
# Beside a heap of 1 GB Python, its workers and the rest of the JVM held 0.6 GB (docs/where-it-runs.md).
_LEAST_MEMORY = 1_200 << 20
# A message is hardly smaller in a file. A batch of one file more than this is still small enough for the driver.
_LEAST_BYTES_A_ROW = 32


@dataclass(frozen=True)
class Choice:
    """A value that was chosen: the name that a profile has for it, and why, in a few words for people."""

    name: str
    value: int
    why: str


@dataclass(frozen=True)
class SizingInputs:
    """What sizes follow from.

    Attributes:
        rate: messages a second of the busiest topic.
        segment_ms: the span of a segment.
        cores: tasks that run at once.
        memory: of the machine that the driver runs on, or what a container leaves of it, in bytes.
        is_limited: a container leaves less than the machine has, of one or the other.
    """

    rate: int
    segment_ms: int
    cores: int
    memory: int
    is_limited: bool = False


def segment_for(rate: int) -> int:
    """The span of a segment for a rate, in ms: the longest in which an index stays below a megabyte."""
    return _round(_span_of(_SEGMENT_POSITIONS, rate))


def segment_holds(rate: int, segment_ms: int) -> str:
    """What a segment holds, for people."""
    positions = _messages_in(segment_ms, rate)
    size = positions * _POSITION_BYTES / 1_000_000
    return f"{_count(positions)} positions at {rate:,} messages a second, about {size:,.1f} MB of state"


def choose(place: SizingInputs, settings: Settings, clock: Clock, stated: AbstractSet[str]) -> list[Choice]:
    """What is not stated, chosen. A choice that follows from another value takes that as it is stated.

    Args:
        place: what sizes follow from.
        settings: the values of those that are stated.
        clock: the same. Only a live one has steps.
        stated: names that are not to be chosen, as in a profile: `settings.horizon_ms`.
    """
    horizon = _horizon(place)
    rows = _driver_rows(place)
    held = settings.driver_rows if rows.name in stated else rows.value
    choices = [_stores(place), horizon, _tasks(place), rows, _max_bytes(held)]
    if isinstance(clock, LiveClock):
        near = settings.horizon_ms if horizon.name in stated else horizon.value
        choices.append(_step(place, near, clock.resolution_ms))
    return [each for each in choices if each.name not in stated]


def cores_here(left: Limits | None = None) -> int:
    """Cores of this machine that this process may use. `left` is what a control group leaves; None: it is looked up."""
    there = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return min(there, (left or limits()).cores or there)


def memory_here(left: Limits | None = None) -> int:
    """Memory of this machine that this process may use, bytes. `left` as for `cores_here`."""
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(there, (left or limits()).memory or there)


def is_limited(left: Limits | None = None) -> bool:
    """Whether a control group leaves less than the machine has. `left` as for `cores_here`."""
    left, whole = left or limits(), Limits()
    return memory_here(left) < memory_here(whole) or cores_here(left) < cores_here(whole)


def heap_for(memory: int) -> str:
    """The heap of a JVM beside which Python and its workers find room, as Spark writes it. `memory` in bytes."""
    return _HEAP if memory >= _ROOM else f"{max(_LEAST_HEAP_MB, memory // 2 >> 20)}m"


def short_of_memory(memory: int, heap: str) -> str | None:
    """What a start says where the heap that is chosen leaves too little beside it; None: it leaves enough.

    Args:
        memory: of the machine, or what a container leaves of it, in bytes.
        heap: that of the JVM, as Spark writes it. One that somebody stated is their choice.
    """
    if memory >= _LEAST_MEMORY or heap != heap_for(memory):
        return None
    return (
        f"Memory is short: of {memory / 1e9:.1f} GB session.memory = {heap} is the heap of the JVM, and Python and its "
        f"workers take about 0.6 GB beside it. The system may end the job without a word. "
        f"Give it {_LEAST_MEMORY / 1e9:.1f} GB or more"
    )


def _stores(place: SizingInputs) -> Choice:
    wanted = -(-place.rate // _STORE_RATE)
    why = f"one state store for {_STORE_RATE:,} messages a second, at most one a core; stays as at the first start"
    return Choice("session.partitions", min(wanted, place.cores), why)


def _horizon(place: SizingInputs) -> Choice:
    """An hour, or what the state can hold; it must hold what the clocks ask for next, and be loaded now and then."""
    most = _round(_span_of(_HORIZON_POSITIONS, place.rate))
    value = max(most, MINUTE_MS, 2 * place.segment_ms)
    return Choice("settings.horizon_ms", value, f"{_count(_messages_in(value, place.rate))} positions in the state")


def _tasks(place: SizingInputs) -> Choice:
    return Choice("settings.partitions", place.cores, "one task of a large sort for each core")


def _driver_rows(place: SizingInputs) -> Choice:
    rows = min(_MOST_DRIVER_ROWS, place.memory // (1_000 * _BYTES_A_DRIVER_ROW) * 1_000)
    why = f"small messages take {rows / 1_000_000:.1f} GB of the driver's {place.memory / 1e9:.1f} GB"
    return Choice("settings.driver_rows", rows, why)


def _max_bytes(driver_rows: int) -> Choice:
    """Without a driver that works on batches, as many as if it did."""
    rows = driver_rows or Settings.driver_rows
    why = f"a batch has no more than {_count(rows)} rows of {_LEAST_BYTES_A_ROW} bytes"
    return Choice("settings.max_bytes", rows * _LEAST_BYTES_A_ROW, why)


def _step(place: SizingInputs, horizon_ms: int, resolution_ms: int) -> Choice:
    most = _round(min(_span_of(_STEP_MESSAGES, place.rate), horizon_ms // _STEPS_AHEAD))
    value = max(most, _LEAST_STEP_MS, resolution_ms)
    why = f"{_count(_messages_in(value, place.rate))} messages a release, on the way back after an outage"
    return Choice("clock.max_step_ms", value, why)


def _round(ms: int) -> int:
    """The longest round span that is not longer, or the shortest there is."""
    return max((span for span in _SPANS_MS if span <= ms), default=_SPANS_MS[0])


def _span_of(messages: int, rate: int) -> int:
    """The time in which so many messages come, ms."""
    return messages * SECOND_MS // rate


def _messages_in(span_ms: int, rate: int) -> int:
    """The messages that come in a time."""
    return span_ms * rate // SECOND_MS


def _count(number: int) -> str:
    if number < 1_000_000:
        return f"{number:,}"
    return f"{number / 1_000_000:,.1f}".removesuffix(".0") + " million"
