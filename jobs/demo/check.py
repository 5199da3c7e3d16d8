"""The check at the end of the demo: what should have been delivered, worked out anew, beside what was.

Nothing of the pipeline and nothing of `jobs.demo.flights` but the rule itself is used: due times are computed flight by
flight with the standard library, from other columns where the data has them (`time_hour` is UTC), and the deliveries
are compared in pandas.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pandas as pd

DELIVERIES = [
    "topic",
    "subscription",
    "message_key",
    "deliver_at",
    "due_time",
    "released_at",
    "ledger_id",
    "entry_id",
    "batch_id",
    "sequence",
]


STORM = (datetime(2013, 2, 9, 5, tzinfo=UTC), datetime(2013, 2, 10, 5, tzinfo=UTC))
"""Reminders that are due on this day, New York time, may have been moved."""
SPARED = "UA"
"""But for those of this airline."""
LATER = timedelta(hours=2)
"""By so much."""
_TICK = timedelta(minutes=1)
"""Deliveries come up to so much later."""


@dataclass(frozen=True)
class Verdict:
    """What was found. What was accepted has to be what was expected, and delivered; but for `moved`, all else is 0.

    Attributes:
        expected: messages that the flights call for.
        accepted: rows of `messages`.
        delivered: rows of `deliveries`.
        moved: those that came two hours later than the flight calls for.
        missing: expected and not delivered.
        foreign: delivered and not expected, or with another due time.
        twice: delivered once too often.
        early: released before they were due.
        disordered: delivered behind one of the same subscription that was due later, or due at once but later in the
            log.
        wronged: moved, and not one of those that may be.
    """

    expected: int
    accepted: int
    delivered: int
    moved: int
    missing: int
    foreign: int
    twice: int
    early: int
    disordered: int
    wronged: int

    @property
    def good(self) -> bool:
        """Whether nothing is wrong."""
        wrong = self.missing + self.foreign + self.twice + self.early + self.disordered + self.wronged
        return self.expected == self.accepted == self.delivered and wrong == 0

    def __str__(self) -> str:
        """For people."""
        return (
            f"expected {self.expected:,} = accepted {self.accepted:,} = delivered {self.delivered:,}, "
            f"{self.moved:,} of them two hours later; missing {self.missing}, foreign {self.foreign}, "
            f"twice {self.twice}, early {self.early}, out of order {self.disordered}, wrongly moved {self.wronged}"
        )


def expected(flights: pd.DataFrame, airports: pd.DataFrame) -> pd.DataFrame:
    """Topic, message_key and due time (UTC) of every message that the flights call for."""
    clocks = {
        code: ZoneInfo(zone) for code, zone in zip(airports["faa"], airports["tzone"], strict=True) if pd.notna(zone)
    }
    puerto_rico = ZoneInfo("America/Puerto_Rico")
    rows = []
    for flight in flights.to_dict("records"):
        key = "{carrier}{flight}/{origin}/{year}-{month:02}-{day:02}".format_map(flight)
        left = datetime.fromisoformat(flight["time_hour"]) + timedelta(minutes=flight["minute"])
        there = _first_after(left, flight["sched_arr_time"], clocks.get(flight["dest"], puerto_rico))
        rows.append(("reminders", key, left - timedelta(hours=2)))
        rows.append(("follow-ups", key, there + timedelta(hours=1)))
    return pd.DataFrame(rows, columns=["topic", "message_key", "due"])


def verdict(called_for: pd.DataFrame, accepted: int, deliveries: pd.DataFrame) -> Verdict:
    """Compare.

    Args:
        called_for: what `expected` gives.
        accepted: rows of `messages`.
        deliveries: the columns `DELIVERIES`, each topic with one subscription, in any order of rows.
    """
    keys = ["topic", "message_key"]
    both = called_for.merge(deliveries.drop_duplicates(keys), on=keys, how="outer", indicator=True)
    known = both["_merge"] == "both"
    moved = known & (both["due_time"] - both["due"] >= LATER)
    may_be = both["due"].between(*STORM, inclusive="left") & (both["topic"] == "reminders")
    may_be &= ~both["message_key"].str.startswith(SPARED)
    due = both["due"].where(~moved, both["due"] + LATER)
    other = (both["due"] != both["deliver_at"]) | ~both["due_time"].between(due, due + _TICK)
    return Verdict(
        expected=len(called_for),
        accepted=accepted,
        delivered=len(deliveries),
        moved=int(moved.sum()),
        missing=int((both["_merge"] == "left_only").sum()),
        foreign=int((both["_merge"] == "right_only").sum() + (known & other).sum()),
        twice=int(deliveries.duplicated([*keys, "subscription"]).sum()),
        early=int((known & (both["released_at"] < due)).sum()),
        disordered=_disordered(deliveries),
        wronged=int((moved & ~may_be).sum()),
    )


def _disordered(deliveries: pd.DataFrame) -> int:
    """Rows that come, in the order of delivery, behind one that should have come later."""
    rows = deliveries.sort_values(["topic", "subscription", "batch_id", "sequence"])
    before = rows.groupby(["topic", "subscription"]).shift()
    wrong, same = pd.Series(data=False, index=rows.index), before["due_time"].notna()
    for name in ("due_time", "deliver_at", "ledger_id", "entry_id"):
        wrong |= same & (before[name] > rows[name])
        same &= before[name] == rows[name]
    return int(wrong.sum())


def _first_after(left: datetime, hhmm: int, clock: ZoneInfo) -> datetime:
    """The first moment (UTC) after `left` at which a clock shows a time."""
    day = left.astimezone(clock).date()
    for ahead in range(3):
        date = day + timedelta(days=ahead)
        shown = datetime(date.year, date.month, date.day, hhmm // 100, hhmm % 100, tzinfo=clock)
        moment = shown.astimezone(UTC)
        if moment > left:
            return moment
    raise AssertionError(f"no {hhmm} after {left} on the clock of {clock}")
