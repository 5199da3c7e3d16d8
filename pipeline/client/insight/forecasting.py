"""The forecast of a warehouse: what waits and what is set is read from its tables, and the core is asked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypedDict, Unpack

from pipeline.client.clock import clock_of, is_turned
from pipeline.client.insight.counting import opened
from pipeline.client.insight.departures import NOTHING_DUE, DueLoad, JobClock, Outage, Pause, Rate, WhatIf
from pipeline.client.insight.dueload import due_loads, rounded
from pipeline.client.insight.forecast import LIVE, Forecast, Horizon, SubscriptionForecast, forecast_of
from pipeline.client.insight.recurring import unplanned
from pipeline.client.insight.waiting import in_inbox
from pipeline.client.options import refuse, spelled_out
from pipeline.client.subscribing.calendars import with_days
from pipeline.client.tables.partitions import partition_counts
from pipeline.config.errors import BadValue, check_kind, check_text
from pipeline.config.spelling import iso_text, range_text
from pipeline.storage.files import Files
from pipeline.subscriptions.guards import GuardStates
from pipeline.subscriptions.incarnations import Name
from pipeline.subscriptions.policies import Policies
from pipeline.subscriptions.topicnames import partition_of, topic_of

DAY_MS, LONGEST_MS, LATE_THAN_MS = 86_400_000, 366 * 86_400_000, 5_000
TURNED = JobClock(look_ms=1_000, lookahead_ms=0, precision_ms=1)
"""The clock of a warehouse of `delayline.testing`: nothing is prepared ahead, and rates are looked at once a second."""


class HowForecast(TypedDict, total=False):
    """From when to when a forecast tells, and what is to happen meanwhile.

    Attributes:
        until: the end, ms UTC, within a year from now; without it a day from now.
        late_than_ms: what comes later than so long after its due time is counted as late; 5 seconds.
        what_if: what is to happen, to each subscription that is told: pauses, outages and rates.
        campaign: messages that are to be added: their number by topic, and by due time (ms UTC).
    """

    until: int
    late_than_ms: int
    what_if: Sequence[WhatIf]
    campaign: Mapping[str, Mapping[int, int]]


@dataclass(frozen=True)
class Assumptions:
    """What a forecast assumes beside what the tables say.

    Attributes:
        events: what is to happen, to each subscription that is told.
        campaign: messages that are to be added: their number by topic, and by due time (ms UTC).
        clock: of the job.
    """

    events: tuple[WhatIf, ...] = ()
    campaign: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    clock: JobClock = LIVE


@spelled_out(HowForecast)
def forecast(
    root: str, topic: str | None = None, subscription: str | None = None, **how: Unpack[HowForecast]
) -> Forecast:
    """What will be due in each minute, what will come, what will wait and how late, under what is set now.

    It counts what `pending` counts, and what schedules send that is not planned yet. Rates, pauses and times to live
    are followed as dispatch follows them. Nobody knows what else will be sent, fail or be commanded from now on. No
    Spark is needed, and nothing is written.

    Args:
        root: the warehouse.
        topic: only of this topic, with its partitions.
        subscription: only for subscriptions of this name.
        **how: see `HowForecast`.

    Raises:
        NoWarehouse: the folder lacks a table.
        BadValue: the end is not within a year from now; something is to happen that ends before it begins, or a rate is
            not from 1 to 10,000,000; a campaign is for a topic without a subscription that is told, or its numbers are
            not positive.
    """
    refuse({}, how, HowForecast.__optional_keys__)
    for name, text in (("topic", topic), ("subscription", subscription)):
        check_text(name, text)
    begin = clock_of(root).wall()
    until, late_than_ms = how.get("until", begin + DAY_MS), how.get("late_than_ms", LATE_THAN_MS)
    check_kind("late_than_ms", late_than_ms, int, "a whole number of ms")
    check_kind("until", until, int, "ms UTC")
    if not begin < until <= begin + LONGEST_MS:
        raise BadValue("until", until, f"ms UTC, after {iso_text(begin)} and at most 366 days later")
    if not 0 <= late_than_ms <= LONGEST_MS:
        raise BadValue("late_than_ms", late_than_ms, range_text("late_than_ms", 0, LONGEST_MS))
    what_if, campaign = how.get("what_if", ()), how.get("campaign", {})
    check_kind("what_if", what_if, (list, tuple), "a list of Pause, Outage and Rate")
    check_kind("campaign", campaign, Mapping, "numbers of messages by topic and due time")
    events = tuple(_checked(each) for each in what_if)
    assumed = Assumptions(events, campaign, TURNED if is_turned(root) else LIVE)
    return foreseen(root, (topic, subscription), Horizon(begin, until, late_than_ms), assumed)


def foreseen(root: str, wanted: tuple[str | None, str | None], horizon: Horizon, assumed: Assumptions) -> Forecast:
    """The same for given times; `wanted` are a topic and a name, or None for all.

    Raises:
        NoWarehouse: the folder lacks a table.
        BadValue: the campaign is for a topic without a subscription that is told, or its numbers are not positive.
    """
    looked = opened(root, wanted, None)
    ticks = {each.named: each.tick_ms for each in looked.registry.of(*wanted)}
    loads = due_loads(looked, ticks, horizon.end, assumed.clock.precision_ms)
    topics = with_days(root, looked.registry.registered.topics)
    for topic, due in unplanned(root, topics, horizon.begin, horizon.end).items():
        for name in (each for each in ticks if each[0] == topic):
            added = rounded(due, ticks[name], assumed.clock.precision_ms)
            loads[name] = loads.get(name, NOTHING_DUE) + added
    for name, added in _campaign(root, ticks, assumed):
        loads[name] = loads.get(name, NOTHING_DUE) + added
    shapings = looked.registry.registered.shapings
    guards = {name: shapings[name].guard for name in looked.since if name in shapings}
    failing, found = GuardStates(Files(), root).errors(guards), list[SubscriptionForecast]()
    for name in sorted(looked.since):
        policies = shapings.get(name, Policies())
        policies = replace(policies, paused=policies.paused or name in failing)
        load = loads.get(name, NOTHING_DUE)
        found.append(forecast_of(name, load, policies, horizon, assumed.events, assumed.clock))
    return Forecast(horizon, tuple(found), in_inbox(root))


def _checked(event: WhatIf) -> WhatIf:
    check_kind("what_if", event, (Pause, Outage, Rate), "a Pause, an Outage or a Rate")
    check_kind("at", event.at, int, "ms UTC")
    if isinstance(event, Rate):
        Policies(max_rate=event.max_rate)
    elif event.until is not None and event.until <= event.at:
        raise BadValue("until", event.until, f"later than its beginning, {event.at}")
    return event


def _campaign(root: str, ticks: Mapping[Name, int], assumed: Assumptions) -> Iterable[tuple[Name, DueLoad]]:
    """What a campaign adds to each subscription. What is for a topic with partitions is divided evenly among them."""
    partitions = partition_counts(root) if assumed.campaign else {}
    for topic, due in assumed.campaign.items():
        divided = partitions.get(topic, 0)
        names = [name for name in ticks if (topic_of(name[0]) if divided else name[0]) == topic]
        if not names:
            raise BadValue("campaign", topic, "a topic with a subscription that the forecast tells")
        if min(due.values(), default=1) < 1:
            raise BadValue("campaign", min(due.values()), "numbers of messages from 1 on")
        for name in names:
            number = partition_of(name[0]) if divided else 0
            share = {time: _part(count, divided or 1, number) for time, count in due.items()}
            mine = {time: count for time, count in share.items() if count}
            yield name, rounded(mine, ticks[name], assumed.clock.precision_ms)


def _part(count: int, parts: int, number: int) -> int:
    """The share of one of some parts; the first ones have one more if it cannot be divided."""
    return count // parts + (number < count % parts)
