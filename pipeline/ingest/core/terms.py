"""What a batch of ingest is decided by, and what it comes to."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pipeline.config.settings import LAST_INSTANT_MS, MINUTE_MS, Settings
from pipeline.config.zones import RULES
from pipeline.subscriptions.lines import NO_POLICIES, Topics
from state.units import Ms


@dataclass(frozen=True)
class Terms:
    """What decides the rows of a batch beside the rows themselves; times in ms.

    Attributes:
        now: the instant of the batch.
        max_delay_ms: a longer delay is refused.
        max_payload_bytes: a larger payload is refused.
        topics: the policies of topics.
        ticks: the coarsest tick of those who listen to a topic that has a window.
        express: messages that are due before this time skip the schedule.
        load_until: what is due from here on is parked.
        segment_ms: the span of a segment.
        first_ledger: the ledger that the first accepted row gets; `ledgers` says how many are filled.
        entries: how many rows fill a ledger.
        batch_id: the batch.
        rules: the release of the rules of time zones; an executor may have another one.
    """

    now: Ms
    max_delay_ms: int
    max_payload_bytes: int
    topics: Topics = NO_POLICIES
    ticks: Mapping[str, int] = field(default_factory=dict)
    express: int = 0
    load_until: int = LAST_INSTANT_MS
    segment_ms: int = MINUTE_MS
    first_ledger: int = 0
    entries: int = Settings.entries_per_ledger
    batch_id: int = 0
    rules: str = RULES


@dataclass(frozen=True)
class Counts:
    """What a batch holds; `parked` are the segments (by number) of what is parked, `express` is how many go express.

    `reasons` is how many are rejected, by reason, and `zones` how many accepted ones name a time zone that is none.
    A repeated batch is `unsure` where due times follow windows: other time-zone data may have made others before.
    """

    accepted: int = 0
    reasons: Mapping[str, int] = field(default_factory=dict)
    parked: frozenset[int] = frozenset()
    express: int = 0
    zones: int = 0
    unsure: bool = False

    @property
    def some_express(self) -> bool:
        """Whether something goes express, or may have gone."""
        return self.express > 0 or self.unsure

    @property
    def some_near(self) -> bool:
        """Whether something that was accepted does not go express, or may not have gone."""
        return self.accepted > self.express or self.unsure

    @property
    def rejected(self) -> int:
        """How many are rejected."""
        return sum(self.reasons.values())


def ledgers(count: int, entries: int) -> int:
    """How many ledgers of so many entries `count` messages fill."""
    return -(-count // entries)
