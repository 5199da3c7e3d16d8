"""What recurs in the year: a briefing at nine on weekdays in New York, and a notice of the night that comes at eight.

Both are schedules of the warehouse in which the year is replayed, over both changes of clocks. Their check is by the
standard library alone, and knows nothing of schedules and windows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from pipeline.client.subscribing.policysetting import set_policy
from pipeline.client.subscribing.schedules import set_schedule
from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from pipeline.delta.deltars import open_table, query
from schemas import DELIVERIES

BRIEFINGS, NOTICES = "briefings", "notices"
_ZONE, _QUIET = "America/New_York", "08:00-21:00"
_TICK_MS = 60_000
_DUE = "SELECT topic, deliver_at, due_time FROM t WHERE topic IN ('{}', '{}')"
_SATURDAY = 5


@dataclass(frozen=True)
class Recurred:
    """What came.

    Attributes:
        briefings: how many.
        notices: how many.
        wrong: times at which something came that should not, or did not come that should.
    """

    briefings: int
    notices: int
    wrong: int

    def lines(self) -> Iterator[str]:
        """The commands as somebody would type them, and what came."""
        yield f'delayline schedule set briefing "Good morning" --topic {BRIEFINGS} --cron "0 9 * * 1-5" --zone {_ZONE}'
        yield f'delayline policy set --topic {NOTICES} --window "{_QUIET}" --window-zone {_ZONE}'
        yield f'delayline schedule set notice "Gates have changed" --topic {NOTICES} --cron "0 3 * * *" --zone {_ZONE}'
        told = f"{self.briefings} briefings at nine, {self.notices} notices of three o'clock at eight"
        yield f"  {told}; wrong {self.wrong}"


def begin(root: str) -> None:
    """Subscribe, and set the schedules."""
    for topic in (BRIEFINGS, NOTICES):
        subscribe(root, Subscription(topic, "crew", tick_ms=_TICK_MS))
    set_policy(root, NOTICES, window=_QUIET, window_zone=_ZONE)
    set_schedule(root, "briefing", BRIEFINGS, cron="0 9 * * 1-5", zone=_ZONE, payload="Good morning")
    set_schedule(root, "notice", NOTICES, cron="0 3 * * *", zone=_ZONE, payload="Gates have changed")


def recurred(root: str, first: datetime, last: datetime) -> Recurred:
    """Compare what came in a year with what clocks on the wall call for, from one time (UTC) to another one."""
    came: dict[str, list[datetime]] = {BRIEFINGS: [], NOTICES: []}
    for row in query(_DUE.format(BRIEFINGS, NOTICES), t=open_table(root, DELIVERIES)):
        # A release comes at the end of its tick.
        came[row["topic"]].append(row["due_time"] - (row["due_time"] - _EPOCH) % timedelta(milliseconds=_TICK_MS))
    wanted = {BRIEFINGS: [*_at(9, first, last, weekdays=True)], NOTICES: [*_at(8, first, last, weekdays=False)]}
    wrong = sum(len(_differing(came[topic], wanted[topic])) for topic in wanted)
    return Recurred(len(came[BRIEFINGS]), len(came[NOTICES]), wrong)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _at(hour: int, first: datetime, last: datetime, *, weekdays: bool) -> Iterator[datetime]:
    """When a clock in New York shows an hour, from one time to another one; of each day, or of each weekday."""
    day = first.astimezone(ZoneInfo(_ZONE)).replace(hour=hour, minute=0, second=0, microsecond=0)
    while day <= last:
        if day >= first and not (weekdays and day.weekday() >= _SATURDAY):
            yield day.astimezone(UTC)
        day += timedelta(days=1)


def _differing(some: list[datetime], others: list[datetime]) -> list[datetime]:
    """What is in one of two lists more often than in the other."""
    return [each for each in {*some, *others} for _ in range(abs(some.count(each) - others.count(each)))]
