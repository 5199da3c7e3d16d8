"""What a load asks of delayline, by formula: state, stores, files, batches, commits, memory, and what breaks first.

`python -m benchmarks.scale --pending 10_000_000_000 --rate 1_000_000 --executors 96` prints it. The constants were
measured; docs/scale.md says by which commands, and a test compares the formulas with the tables of that page.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pipeline.config.options import Options
from pipeline.config.profiles import Profile, fitted, read_profile
from pipeline.config.session import Machine
from pipeline.config.settings import SECOND_MS, LiveClock, Settings
from pipeline.config.sizing import SizingInputs, segment_for

POSITION_BYTES, KEY_BYTES = 1.4, 90
"""Of the state: a position in a segment that has many, and a key beside its positions."""
FILE_ROWS, OVERLAP = 500_000, 8
"""Rows of a file of `messages` that maintenance has sorted, and files that hold something of one segment then."""
SLICE_ROWS = 2_000_000
"""Rows that were taken in at once: with fewer batches fewer files overlap."""
INSTANT_S = 1.08
"""An instant of all stages with a few thousand messages."""
LOAD_S, LOAD_FILE_S = 0.033, 0.0015
"""A load of a segment of which little waits, and each file that it opens."""
RELEASE_S, RELEASE_FILE_S = 0.77, 0.02
"""A release of 50 000 messages, and each file in which it looks for them."""
JVM_MB, DRIVER_MB, FILE_KB = 1_060, 280, 1.0
"""The driver: its JVM with a heap of 2 GB, its Python, and what that keeps of a file of `messages`."""
SHARDS_A_STORE = 4


@dataclass(frozen=True)
class Waiting:
    """Messages that wait, with delays uniform over a span.

    Attributes:
        messages: how many.
        spread_ms: the span of their due times.
        segment_ms: of the warehouse.
        horizon_ms: how far ahead positions are kept in the state.
    """

    messages: int
    spread_ms: int
    segment_ms: int
    horizon_ms: int

    @property
    def positions(self) -> float:
        """Positions in the state: what is due within the horizon and the segment at its end."""
        return self.messages * min(1.0, (self.horizon_ms + self.segment_ms) / self.spread_ms)

    @property
    def keys(self) -> int:
        """Segments that the state has, for one topic and one tick."""
        return min(self.horizon_ms, self.spread_ms) // self.segment_ms + 1

    @property
    def state_bytes(self) -> float:
        """Of the state."""
        return self.positions * POSITION_BYTES + self.keys * KEY_BYTES

    @property
    def files(self) -> int:
        """Of `messages`."""
        return -(-self.messages // FILE_ROWS)

    @property
    def opened(self) -> int:
        """Files that hold something of one segment."""
        return min(OVERLAP, self.files, -(-self.messages // SLICE_ROWS))

    @property
    def figures(self) -> dict[str, float]:
        """What `benchmarks.backlog` measures, by the names of the table."""
        return {
            "positions in the state": self.positions,
            "state, bytes": self.state_bytes,
            "an instant, s": INSTANT_S,
            "load of a segment, s": LOAD_S + LOAD_FILE_S * self.opened,
            "release of what is due at once, s": RELEASE_S + RELEASE_FILE_S * self.opened,
            "JVM, MB": JVM_MB,
            "Python driver, MB": DRIVER_MB + self.files * FILE_KB / 1_024,
        }


@dataclass(frozen=True)
class Cost:
    """A part of a batch by Spark, s.

    Attributes:
        fixed_s: what no executor shortens: the driver's time between the jobs, most of all.
        cpu_s: the executors' processor time for a million messages.
    """

    fixed_s: float
    cpu_s: float

    def seconds(self, messages: float, executors: int) -> float:
        """A batch on executors of one core."""
        return self.fixed_s + messages / 1e6 * self.cpu_s / executors


COSTS: Mapping[str, Cost] = {
    "ingest": Cost(1.2, 8.5),
    "encode": Cost(0.3, 1.1),
    "schedule": Cost(1.1, 0.25),
    "release": Cost(1.9, 6.7),
}
"""By part, as `benchmarks.cluster` has them."""
CPU_S = sum(cost.cpu_s for cost in COSTS.values())
"""Of executors, for a million messages on their whole way."""
SORT_ROWS = 900_000
"""Messages a second that one process of maintenance sorts into those that wait."""
MESSAGE_BYTES, WRITTEN = 130, 4
"""Of a message with a payload of 100 bytes, and how often it is written: inbox, messages, sorted, deliveries."""
NOTHING_STATED = Profile(Machine(), Options(LiveClock()))
BUSY = 0.7
"""So much of the executors' time is planned with; the rest is for catching up."""


@dataclass(frozen=True)
class Plan:
    """One hot topic with one subscription on a cluster, by Spark.

    Attributes:
        pending: messages that wait.
        rate: messages a second that come, and as many that become due.
        executors: of one core each.
        memory: of the driver's machine, bytes.
        stated: a profile; a start chooses what it leaves open.
    """

    pending: int
    rate: int
    executors: int
    memory: int = 32 << 30
    stated: Profile = NOTHING_STATED

    @property
    def profile(self) -> Profile:
        """What a start works with."""
        return fitted(self.stated, SizingInputs(self.rate, segment_for(self.rate), self.executors, self.memory))[0]

    @property
    def waiting(self) -> Waiting:
        """What waits. As many become due as come, so due times are spread over the time in which they came."""
        spread_ms = max(1, self.pending * SECOND_MS // self.rate)
        return Waiting(self.pending, spread_ms, segment_for(self.rate), self.profile.options.settings.horizon_ms)

    @property
    def busy(self) -> float:
        """The part of the executors' time that the load takes."""
        return self.rate / 1e6 * CPU_S / self.executors

    def interval_s(self, part: str) -> float:
        """The time of a batch of a part that takes what came during the one before; infinite when it never does."""
        return COSTS[part].fixed_s / (1 - self.busy) if self.busy < 1 else float("inf")

    @property
    def commits(self) -> float:
        """Commits a second: two for a batch of ingest, one of the schedule and of dispatch, and those that publish."""
        batches = sum(1 / self.interval_s(part) for part in ("ingest", "ingest", "schedule", "release"))
        return batches + SECOND_MS / Settings.publish_ms

    @property
    def limits(self) -> dict[str, float]:
        """Messages a second at which each thing ends, if nothing else does before."""
        ingest, fixed_s = COSTS["ingest"], COSTS["schedule"].fixed_s + COSTS["release"].fixed_s
        options = self.profile.options
        assert isinstance(options.clock, LiveClock)  # noqa: S101 - a profile states no other
        rows = options.settings.max_bytes / MESSAGE_BYTES
        ahead = max(0.0, 1 - fixed_s * SECOND_MS / options.clock.lookahead_ms)
        return {
            "a batch of ingest, with `settings.max_bytes` as chosen": rows / ingest.seconds(rows, self.executors),
            "maintenance sorts in one process": SORT_ROWS,
            "executors": self.executors * BUSY / CPU_S * 1e6,
            "prepared within the lookahead": self.executors / CPU_S * 1e6 * ahead,
        }


def figures(plan: Plan) -> Iterator[str]:
    """A plan for a person."""
    waiting = plan.waiting
    yield f"{plan.pending:,} pending, {plan.rate:,} messages a second, {plan.executors} executors of one core"
    yield f"  segments of {waiting.segment_ms / 1_000:g} s, horizon {waiting.horizon_ms / 1_000:g} s"
    yield f"  state: {waiting.positions:,.0f} positions, {waiting.state_bytes / 1e6:,.0f} MB, {waiting.keys} keys"
    stores = plan.profile.machine.partitions
    yield f"  state stores: {stores}, shards: {stores * SHARDS_A_STORE}"
    yield f"  messages: {waiting.files:,} files, {plan.pending * MESSAGE_BYTES / 1e9:,.0f} GB"
    yield f"  disk: {plan.rate * MESSAGE_BYTES * WRITTEN / 1e6:,.0f} MB written a second"
    yield f"  executors are busy for {plan.busy:.0%} of their time; {CPU_S * plan.rate / 1e6 / BUSY:.0f} are needed"
    yield "  a batch, s: " + ", ".join(f"{part} {plan.interval_s(part):.1f}" for part in COSTS)
    yield f"  commits: {plan.commits:.1f} a second"
    yield f"  driver: {waiting.figures['Python driver, MB']:,.0f} MB of Python, {JVM_MB:,} MB of JVM"
    yield "  what ends first, messages a second:"
    for name, rate in sorted(plan.limits.items(), key=lambda each: each[1]):
        yield f"    {rate:>12,.0f}  {name}"


def main(arguments: list[str] | None = None) -> int:
    """Print the plan of a load."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pending", type=int, default=10_000_000_000, help="messages that wait")
    parser.add_argument("--rate", type=int, default=1_000_000, help="messages a second")
    parser.add_argument("--executors", type=int, default=96, help="executors of one core")
    parser.add_argument("--profile", type=Path, help="the profile of the job; a start chooses what it leaves open")
    words = parser.parse_args(arguments)
    stated = NOTHING_STATED if words.profile is None else read_profile(words.profile)
    print("\n".join(figures(Plan(words.pending, words.rate, words.executors, stated=stated))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
