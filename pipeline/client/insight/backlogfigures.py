"""What backlogs come to over subscriptions: the sums that the overview, the metrics and the line of a job tell."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from pipeline.client.insight.minutecounts import NOTHING, MinuteCounts
from pipeline.client.insight.pending import Backlog, first_due
from pipeline.config.settings import HOUR_MS, MINUTE_MS


@dataclass(frozen=True)
class BacklogFigures:
    """What is pending, at a count of the tables.

    Attributes:
        counted_ms: when it was counted, ms UTC.
        count: messages that were accepted and not delivered, counted for each subscription.
        held: how many of them are due and held by dispatch.
        next_due_ms: when the first of them is due, ms UTC; None: nothing is pending.
        expiring: how many are due and will expire before they are handed over (`expiring`).
        minutes: how many are due in each minute, by its start in ms UTC.
    """

    counted_ms: int
    count: int = 0
    held: int = 0
    next_due_ms: int | None = None
    expiring: int = 0
    minutes: MinuteCounts = field(default_factory=lambda: NOTHING)

    @classmethod
    def of(cls, backlogs: Sequence[Backlog], now_ms: int) -> "BacklogFigures":
        """What backlogs that were counted now (ms UTC) say."""
        return cls(
            counted_ms=now_ms,
            count=sum(each.count for each in backlogs),
            held=sum(each.held for each in backlogs),
            next_due_ms=first_due(backlogs),
            expiring=sum(expiring(each, now_ms) for each in backlogs),
            minutes=MinuteCounts.together([each.minutes for each in backlogs]),
        )

    @property
    def last_due_ms(self) -> int | None:
        """The start of the minute in which the last of them is due, ms UTC; None: nothing is pending."""
        return int(self.minutes.starts[-1]) if self.minutes else None

    @property
    def overdue(self) -> int:
        """How many are due in a minute that had passed at the count: they are held, or late."""
        return self.minutes.within(0, self._minute)

    @property
    def next_hour(self) -> int:
        """How many are due within an hour, from the minute of the count on."""
        return self.minutes.within(self._minute, self._minute + HOUR_MS)

    @property
    def _minute(self) -> int:
        """The start of the minute of the count."""
        return self.counted_ms - self.counted_ms % MINUTE_MS


def expiring(backlog: Backlog, now_ms: int) -> int:
    """How many messages of a subscription are due now (ms UTC) and will expire, if its policies stay as they are.

    What its rate allows in time comes, in the order of due times; nothing does before its hours open, while it is
    paused, or its guard cannot be evaluated. Due times count by whole minutes, so a message is counted up to a minute
    late.
    """
    if backlog.ttl_ms is None:
        return 0
    stopped, come, gone = backlog.paused or backlog.guard_error is not None, 0, 0
    for minute, count in sorted(backlog.minutes.items()):
        ends_ms = minute + MINUTE_MS
        if ends_ms > now_ms:
            break
        left_ms = 0 if stopped else max(0, ends_ms + backlog.ttl_ms - max(now_ms, backlog.closed_until or 0))
        if backlog.max_rate or not left_ms:
            in_time = min(count, max(0, left_ms * (backlog.max_rate or 0) // 1_000 - come))
            come, gone = come + in_time, gone + count - in_time
    return gone
