"""What will be due, what will come, what will wait and how late it will be: the core of a forecast, plain functions.

Nothing here reads a table or a clock. `pipeline.client.insight.departures` says by which rules messages come.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.client.insight.departures import NEVER, Departures, DueLoad, JobClock, WhatIf, departures
from pipeline.client.tables.relations import longs_table
from pipeline.storage.arrays import IntArray
from pipeline.subscriptions.policies import Policies

MINUTE_MS = 60_000
LIVE = JobClock()
"""The clock of a job that runs, with the lookahead that it has when nobody sets another one."""
NUMBERS = ("due_count", "delivered", "expired", "overdue_at_end", "late_ms")
_SCHEMA = pa.schema(
    [("topic", pa.string()), ("subscription", pa.string()), ("minute", pa.timestamp("us", "UTC"))]
    + [(name, pa.int64()) for name in NUMBERS]
)


@dataclass(frozen=True)
class Horizon:
    """Of what a forecast tells.

    Attributes:
        begin: the time now, ms UTC.
        end: the time up to which it tells, ms UTC; later than `begin`.
        late_than_ms: what comes later than so long after its due time is late.
    """

    begin: int
    end: int
    late_than_ms: int

    @property
    def minutes(self) -> IntArray:
        """The starts of its minutes, ms UTC; the first and the last one may be cut."""
        return np.arange(self.begin - self.begin % MINUTE_MS, self.end, MINUTE_MS)


@dataclass(frozen=True, eq=False)
class SubscriptionForecast:
    """What comes of one subscription, or of all of a topic.

    The arrays have a place for each minute, one after the other. Lateness counts from the due time, rounded up to the
    tick of the subscription.

    Attributes:
        topic: the topic; None: all of them together.
        subscription: the name; None: all of them together.
        minutes: when minutes begin, ms UTC.
        due_count: messages that become due in each.
        delivered: messages that are delivered in it.
        expired: messages that are left out in it, since they could not be delivered within their time to live.
        overdue_at_end: messages that are due and not delivered at its end.
        late_ms: how late the latest delivery of it is; -1: it has none.
        overdue: messages that are due and not delivered now.
        paused: whether the subscription is paused now, or its guard fails.
        max_rate: messages a second at most, as it is now; None: any number.
        closed_until: when its hours open, ms UTC; None: it is open now, or has no hours.
        gone_at: when nothing is overdue any more, counted from the end of the worst minute, ms UTC; None: nothing ever
            is, or not within the forecast.
        missed: messages that come later than the limit of the forecast, or do not come within it and are late by then.
        missed_at: when the first of them is late, ms UTC; None: none is.
    """

    topic: str | None
    subscription: str | None
    minutes: IntArray
    due_count: IntArray
    delivered: IntArray
    expired: IntArray
    overdue_at_end: IntArray
    late_ms: IntArray
    overdue: int = 0
    paused: bool = False
    max_rate: int | None = None
    closed_until: int | None = None
    gone_at: int | None = None
    missed: int = 0
    missed_at: int | None = None

    @property
    def worst_minute(self) -> int | None:
        """The minute at whose end most is overdue, ms UTC; None: nothing is at the end of any minute."""
        return int(self.minutes[self.overdue_at_end.argmax()]) if self.overdue_at_end.any() else None

    @property
    def latest_ms(self) -> int | None:
        """How late the latest delivery is; None: there is none."""
        latest = int(self.late_ms.max(initial=-1))
        return None if latest < 0 else latest

    @property
    def is_something(self) -> IntArray:
        """The places of minutes in which something is due, comes, is left out or waits."""
        return np.flatnonzero(
            (self.due_count > 0) | (self.delivered > 0) | (self.expired > 0) | (self.overdue_at_end > 0)
        )


@dataclass(frozen=True, eq=False)
class Forecast:
    """What comes of a warehouse.

    Attributes:
        horizon: from when to when it tells, and the limit of lateness.
        subscriptions: one for each active subscription, by topic and name.
        in_inbox: rows of the inbox that ingest has not taken yet; they are not in the forecast.
    """

    horizon: Horizon
    subscriptions: tuple[SubscriptionForecast, ...]
    in_inbox: int = 0

    @property
    def by_topic(self) -> Forecast:
        """The same with all subscriptions of a topic together."""
        topics: dict[str | None, list[SubscriptionForecast]] = {}
        for each in self.subscriptions:
            topics.setdefault(each.topic, []).append(each)
        return Forecast(self.horizon, tuple(together(each, topic) for topic, each in topics.items()), self.in_inbox)

    @property
    def in_all(self) -> Forecast:
        """The same with all subscriptions together."""
        whole = (together(self.subscriptions),) if self.subscriptions else ()
        return Forecast(self.horizon, whole, self.in_inbox)

    def table(self) -> pa.Table:
        """A row for each subscription and minute in which something happens or waits, by topic, name and minute.

        The columns are `topic` and `subscription` (NULL: all of them together), `minute` (its start), `due_count`,
        `delivered`, `expired`, `overdue_at_end` and `late_ms` (NULL: nothing is delivered).
        """
        return pa.concat_tables([_SCHEMA.empty_table(), *map(_rows, self.subscriptions)])


def forecast_of(
    name: tuple[str, str],
    load: DueLoad,
    policies: Policies,
    horizon: Horizon,
    events: Iterable[WhatIf] = (),
    clock: JobClock = LIVE,
) -> SubscriptionForecast:
    """What comes of a subscription.

    Args:
        name: its topic and its name.
        load: what is pending, by due time rounded up to its tick.
        policies: of them `paused`, `max_rate`, `open` and `ttl_ms` count.
        horizon: from when to when.
        events: what is to happen.
        clock: of the job.
    """
    load = load.where(load.due < horizon.end)
    found = departures(load, policies, events, horizon.begin, horizon.end, clock)
    late = found.at - found.due
    handed = (found.at < horizon.end) & ~found.expired
    gone, overdue = _by_minute(found.at, found.counts, horizon), int(load.counts[load.due < horizon.begin].sum())
    delivered = _by_minute(found.at[handed], found.counts[handed], horizon)
    due = _by_minute(load.due, load.counts, horizon)
    latest = np.full(len(due), -1)
    np.maximum.at(latest, _places(found.at[handed], horizon), late[handed])
    at_end = overdue + np.cumsum(due - gone)
    missed = (found.expired | (late > horizon.late_than_ms)) & (found.due + horizon.late_than_ms < horizon.end)
    first = (found.due[missed] + horizon.late_than_ms).min(initial=NEVER)
    return SubscriptionForecast(
        *name,
        horizon.minutes,
        due,
        delivered,
        gone - delivered,
        at_end,
        latest,
        overdue=overdue,
        paused=policies.paused,
        max_rate=policies.max_rate,
        closed_until=None if policies.hours is None else policies.hours.closed_until(horizon.begin),
        gone_at=_gone_at(load, found, at_end, horizon),
        missed=int(found.counts[missed].sum()),
        missed_at=None if first == NEVER else max(horizon.begin, int(first)),
    )


def _places(at: IntArray, horizon: Horizon) -> IntArray:
    places: IntArray = (at - horizon.minutes[0]) // MINUTE_MS
    return places


def _by_minute(at: IntArray, counts: IntArray, horizon: Horizon) -> IntArray:
    """How many there are in each minute, of those from now on."""
    found, within = np.zeros(len(horizon.minutes), np.int64), (at >= horizon.begin) & (at < horizon.end)
    np.add.at(found, _places(at[within], horizon), counts[within])
    return found


def _gone_at(load: DueLoad, found: Departures, at_end: IntArray, horizon: Horizon) -> int | None:
    """The first time from the end of the worst minute on at which all that is due has left."""
    if not at_end.any():
        return None
    worst = min(int(horizon.minutes[at_end.argmax()]) + MINUTE_MS, horizon.end)
    order = np.argsort(found.at, kind="stable")
    at, left = found.at[order], np.cumsum(found.counts[order])
    last = np.flatnonzero(np.diff(at, append=NEVER + 1))
    at, left = at[last], left[last]
    due = np.concatenate([[0], np.cumsum(load.counts)])[np.searchsorted(load.due, at, "right")]
    gone = at[(left == due) & (at >= worst) & (at < horizon.end)]
    return int(gone[0]) if len(gone) else None


def together(parts: Sequence[SubscriptionForecast], topic: str | None = None) -> SubscriptionForecast:
    """Several subscriptions as one. What they have is gone when the last of it is."""
    total = {name: np.sum([getattr(each, name) for each in parts], axis=0) for name in NUMBERS[:-1]}
    waits = [each for each in parts if each.worst_minute is not None]
    ends = [each.gone_at for each in waits if each.gone_at is not None]
    return SubscriptionForecast(
        topic,
        None,
        parts[0].minutes,
        **total,
        late_ms=np.max([each.late_ms for each in parts], axis=0),
        overdue=sum(each.overdue for each in parts),
        paused=all(each.paused for each in parts),
        gone_at=max(ends) if ends and len(ends) == len(waits) else None,
        missed=sum(each.missed for each in parts),
        missed_at=min((each.missed_at for each in parts if each.missed_at is not None), default=None),
    )


def _rows(each: SubscriptionForecast) -> pa.Table:
    places = each.is_something
    numbers = [getattr(each, name)[places] for name in NUMBERS]
    columns = longs_table(("minute", *NUMBERS), [(each.minutes[places] * 1_000, *numbers)] if len(places) else [])
    late = pc.if_else(pc.less(columns.column("late_ms"), 0), None, columns.column("late_ms"))
    columns = columns.set_column(columns.column_names.index("late_ms"), "late_ms", late)
    for name in ("subscription", "topic"):
        columns = columns.add_column(0, name, pa.repeat(pa.scalar(getattr(each, name), pa.string()), len(places)))
    return columns.cast(_SCHEMA)
