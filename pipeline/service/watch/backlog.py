"""What a count of what is pending says to somebody who watches: figures summed over subscriptions."""

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.client.insight.pending import Backlog, first_due
from pipeline.config.settings import HOUR_MS, MINUTE_MS


@dataclass(frozen=True)
class BacklogFigures:
    """What is pending, at a count of the tables.

    Attributes:
        counted_ms: when it was counted, ms UTC.
        count: messages that were accepted and not delivered.
        held: how many of them are due and held by dispatch.
        next_due_ms: when the first of them is due, ms UTC; None: nothing is pending.
        last_due_ms: the start of the minute in which the last of them is due, ms UTC; None: nothing is pending.
        next_hour: how many are due within an hour, from the minute of the count on.
        expiring: how many are due and will expire before they are handed over (`expiring`).
    """

    counted_ms: int
    count: int = 0
    held: int = 0
    next_due_ms: int | None = None
    last_due_ms: int | None = None
    next_hour: int = 0
    expiring: int = 0

    @classmethod
    def of(cls, backlogs: Sequence[Backlog], now_ms: int) -> "BacklogFigures":
        """What backlogs that were counted now (ms UTC) say."""
        first = now_ms - now_ms % MINUTE_MS
        minutes = (each for backlog in backlogs for each in backlog.minutes.items())
        return cls(
            counted_ms=now_ms,
            count=sum(each.count for each in backlogs),
            held=sum(each.held for each in backlogs),
            next_due_ms=first_due(backlogs),
            last_due_ms=max((minute for each in backlogs for minute in each.minutes), default=None),
            next_hour=sum(count for minute, count in minutes if first <= minute < first + HOUR_MS),
            expiring=sum(expiring(each, now_ms) for each in backlogs),
        )


def expiring(backlog: Backlog, now_ms: int) -> int:
    """How many messages of a subscription are due now (ms UTC) and will expire, if its policies stay as they are.

    What its rate allows in time comes, in the order of due times; nothing does while it is paused, or its guard cannot
    be evaluated. Due times count by whole minutes, so a message is counted up to a minute late.
    """
    if backlog.ttl_ms is None:
        return 0
    stopped, come, gone = backlog.paused or backlog.guard_error is not None, 0, 0
    for minute, count in sorted(backlog.minutes.items()):
        ends_ms = minute + MINUTE_MS
        if ends_ms > now_ms:
            break
        left_ms = 0 if stopped else max(0, ends_ms + backlog.ttl_ms - now_ms)
        if backlog.max_rate or not left_ms:
            in_time = min(count, max(0, left_ms * (backlog.max_rate or 0) // 1_000 - come))
            come, gone = come + in_time, gone + count - in_time
    return gone
