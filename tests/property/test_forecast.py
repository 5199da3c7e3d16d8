"""A forecast comes true: what it says of each minute is what the stages then do, by a clock that a test turns.

A warehouse has three subscriptions with any ticks, rates, pauses and times to live. Messages are sent, some of them are
cancelled or put off, and a forecast is made. Then it happens: pauses, resumes, other rates, an outage with a restart of
all stages, instant after instant.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

from pipeline.client.commanding.commands import cancel, shift
from pipeline.client.insight.departures import JobClock, Outage, Pause, Rate, WhatIf
from pipeline.client.insight.forecast import MINUTE_MS, Horizon, SubscriptionForecast
from pipeline.client.insight.forecasting import Assumptions, foreseen
from pipeline.client.subscribing.policysetting import set_policy
from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from pipeline.config.errors import BadValue
from pipeline.config.settings import DAY_MS, Settings
from pipeline.delta.deltars import open_table, query
from pipeline.subscriptions.policies import Policies
from pipeline.subscriptions.rates import EXPIRY_MS
from schemas import REJECTED_DISPATCH
from tests.support.foretold import came
from tests.support.stages import Stages
from tests.support.stream import message

T0 = 1_700_000_000_000 - 1_700_000_000_000 % MINUTE_MS
HOURS = ("22:13-22:14,22:16-22:18,22:25-22:30,23:00-21:00", "22:14-22:16,22:30-22:13")
"""Open and closed for minutes. It is 22:13 in UTC at `T0`."""
NAMES = "abc"
TICKS = (1, 100, 1_000, 5_000)
EXAMPLES = max(1, settings().max_examples // 16)
_EXPIRED = "SELECT subscription FROM t WHERE reason = 'expired'"


@dataclass(frozen=True)
class Drawn:
    """What is drawn; times are numbers of steps, of due times in ms after the first instant.

    `listeners` are tick, rate, time to live, whether they are paused, and their hours; `waits` are the steps before the
    forecast is made, `length` those that it tells.
    """

    step: int
    length: int
    waits: int
    listeners: list[tuple[int, int | None, int | None, bool, str | None]]
    bursts: list[tuple[int, int]]
    cancels: bool
    shifts: int
    pauses: list[tuple[int, int] | None]
    rates: list[tuple[int, int] | None]
    outage: tuple[int, int] | None


@st.composite
def drawn(draw: st.DrawFn) -> Drawn:
    """Seconds, parts of a minute or minutes from one instant to the next."""
    step, length = draw(st.sampled_from((1_000, 5_000, 60_000))), draw(st.integers(4, 30))
    inside = st.integers(0, length - 1)
    spans = st.tuples(inside, inside).filter(lambda each: each[0] < each[1])
    rates, times = st.sampled_from((None, None, 1, 3, 20)), st.sampled_from((None, None, 7_000, 100_000))
    listeners = st.tuples(
        st.sampled_from(TICKS),
        rates,
        times,
        st.sampled_from((False, False, True)),
        st.sampled_from((None, None, *HOURS)),
    )
    each = len(NAMES)
    return Drawn(
        step,
        length,
        waits=draw(st.integers(0, 4)),
        listeners=draw(st.lists(listeners, min_size=each, max_size=each)),
        bursts=draw(
            st.lists(st.tuples(st.integers(1, length * step), st.sampled_from((2, 6, 60))), min_size=1, max_size=6)
        ),
        cancels=draw(st.booleans()),
        shifts=draw(st.sampled_from((0, 1, 30_000))),
        pauses=draw(st.lists(st.none() | spans, min_size=each, max_size=each)),
        rates=draw(
            st.lists(
                st.none() | st.tuples(st.integers(1, length - 1), st.sampled_from((2, 7))), min_size=each, max_size=each
            )
        ),
        outage=draw(st.none() | spans),
    )


class World:
    """The stages of a warehouse, and what is to happen to it."""

    def __init__(self, folder: str, script: Drawn) -> None:
        """Subscribe, send and command, and let the clock go to where the forecast begins."""
        self.script, self.stages = script, Stages(f"{folder}/warehouse", Settings(horizon_ms=DAY_MS))
        self.root = self.stages.root
        for name, (tick, rate, ttl, paused, hours) in zip(NAMES, script.listeners, strict=True):
            policies = Policies(max_rate=rate, ttl_ms=ttl, paused=paused, open=hours)
            subscribe(self.root, Subscription("t", name, tick_ms=tick, policies=policies))
        self.at(T0)
        self.stages.ingest(
            *(
                {**message("", after=after), "message_key": f"{number}-{place % 2}"}
                for number, (after, count) in enumerate(script.bursts)
                for place in range(count)
            )
        )
        for number in range(script.waits + 1):
            self.at(T0 + number * script.step)
        self.begin = self.stages.instant
        self._command()
        self.delivered = came(self.root).keys()
        self.expired = self.left_out()

    def at(self, instant: int) -> None:
        """The stages do what there is to do at an instant."""
        self.stages.instant = instant
        self.stages.work()

    def _command(self) -> None:
        """Half of a burst is cancelled or put off: what comes at its time begins the time of a rate as it would."""
        if self.script.cancels:
            with suppress(BadValue):
                cancel(self.root, "t", where="message_key = '0-1'")
        after = dict(enumerate(self.script.bursts)).get(1, (0, 0))[0]
        # What is held already, and put off then, comes when dispatch has seen that, and settle and the index after it.
        if self.script.shifts and T0 + after > self.begin + max(TICKS):
            shift(self.root, "t", span=timedelta(milliseconds=self.script.shifts), where="message_key = '1-1'")
        self.stages.work()

    def events(self, number: int) -> list[WhatIf]:
        """What is to happen to one of the subscriptions."""
        found, script = list[WhatIf](), self.script
        if (pause := script.pauses[number]) is not None:
            found.append(Pause(*map(self.instant, pause)))
        if (rate := script.rates[number]) is not None:
            found.append(Rate(self.instant(rate[0]), rate[1]))
        if script.outage is not None:
            found.append(Outage(*map(self.instant, script.outage)))
        return found

    def instant(self, step: int) -> int:
        """When a step is, ms UTC."""
        return self.begin + step * self.script.step

    def forecasts(self, end: int) -> dict[str, SubscriptionForecast]:
        """The forecast of each subscription up to a time, made now."""
        horizon = Horizon(self.begin, end, 5_000)
        clock = JobClock(step_ms=self.script.step, look_ms=self.script.step, lookahead_ms=0, precision_ms=1)
        return {
            name: foreseen(
                self.root, ("t", name), horizon, Assumptions(tuple(self.events(number)), {}, clock)
            ).subscriptions[0]
            for number, name in enumerate(NAMES)
        }

    def happen(self) -> None:
        """Let it happen: at each instant first the stages work, then policies are set, which they notice at once."""
        set_then = defaultdict[int, list[tuple[str, dict[str, Any]]]](list)
        for number, name in enumerate(NAMES):
            for event in self.events(number):
                match event:
                    case Pause(at=at, until=until):
                        set_then[at].append((name, {"paused": True}))
                        set_then[until or 0].append((name, {"paused": False}))
                    case Rate(at=at, max_rate=rate):
                        set_then[at].append((name, {"max_rate": rate}))
        first, last = map(self.instant, self.script.outage or (0, 0))
        for instant in map(self.instant, range(self.script.length)):
            away = first < instant < last
            if not away:
                if instant == last:
                    self.stages.restart_all()
                self.at(instant)
            for name, policies in set_then[instant]:
                set_policy(self.root, "t", name, **policies)
            if not away:
                self.stages.work()

    def left_out(self) -> dict[str, int]:
        """How many messages have expired."""
        found = [row["subscription"] for row in query(_EXPIRED, t=open_table(self.root, REJECTED_DISPATCH))]
        return {name: found.count(name) for name in NAMES}


def by_minute(world: World, name: str, minutes: list[int]) -> tuple[list[int], list[int]]:
    """How many messages came to a subscription in each minute since the forecast, and how late the latest was."""
    counts, latest = np.zeros(len(minutes), np.int64), np.full(len(minutes), -1)
    for each, (due, at) in came(world.root).items():
        if each[0] == name and each not in world.delivered:
            place = (at - minutes[0]) // MINUTE_MS
            counts[place] += 1
            latest[place] = max(latest[place], at - due)
    return counts.tolist(), latest.tolist()


@settings(max_examples=EXAMPLES)
@given(drawn())
def test_each_minute_comes_as_it_was_foretold(script: Drawn) -> None:
    """Counts are equal, and the latest delivery of each minute is as late as was said, within the tick."""
    folder = mkdtemp()
    try:
        world = World(folder, script)
        end = world.instant(script.length)
        foretold = world.forecasts(end)
        # What has expired may be held for ten seconds more; of what expires at the end some may be gone.
        before = world.forecasts(max(world.begin + 1, end - EXPIRY_MS - script.step))
        world.happen()
        for (tick, *_), (name, found) in zip(script.listeners, foretold.items(), strict=True):
            counts, latest = by_minute(world, name, found.minutes.tolist())
            assert found.delivered.tolist() == counts
            assert np.abs(found.late_ms - latest).max() <= tick
            expired = world.left_out()[name] - world.expired[name]
            assert before[name].expired.sum() <= expired <= found.expired.sum() + found.overdue_at_end[-1]
    finally:
        rmtree(Path(folder))
