"""What a forecast tells: by hand, against the rules of dispatch, and of a warehouse that a test then plays on."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the stages need requirements/all.lock")

from pipeline.client import public as delayline
from pipeline.client.insight.departures import DueLoad, JobClock, Outage, Pause, Rate, WhatIf, departures
from pipeline.client.insight.forecast import MINUTE_MS, Horizon, SubscriptionForecast, forecast_of
from pipeline.client.insight.forecasting import Assumptions, foreseen
from pipeline.client.subscribing.policysetting import set_policy
from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from pipeline.client.subscribing.topics import create_partitioned_topic
from pipeline.config.errors import BadValue, NotAllowed
from pipeline.dispatch.core.holding import Share
from pipeline.dispatch.core.shaping import Pacing
from pipeline.subscriptions.policies import Policies
from pipeline.testing.public import VirtualWarehouse, warehouse
from schemas import MESSAGES
from state.units import Ms
from tests.support.client import message_row, noticed, put
from tests.support.foretold import came

T0, SECOND, RATE = 1_700_000_040_000, 1_000, 2
"""The beginning of a minute, ms UTC."""
START = datetime(2026, 5, 1, 9, tzinfo=UTC)
STEPS = JobClock(step_ms=SECOND, look_ms=SECOND, lookahead_ms=0)


def load(*pairs: tuple[int, int]) -> DueLoad:
    """So many messages at a second each."""
    due, counts = np.array(pairs, np.int64).reshape(-1, 2).T
    return DueLoad.of(T0 + due * SECOND, counts)


def foreseen_of(
    due: DueLoad, *events: WhatIf, minutes: int = 5, late_than: int = 5 * SECOND, **policies: int | bool
) -> SubscriptionForecast:
    """A forecast from `T0` on."""
    own = Policies(**policies)  # type: ignore[arg-type] # by their names
    return forecast_of(("t", "s"), due, own, Horizon(T0, T0 + minutes * MINUTE_MS, late_than), events)


def test_what_nothing_holds_comes_when_it_is_due() -> None:
    """What was due before comes now, and is as late as that."""
    found = foreseen_of(load((-30, 2), (0, 1), (59, 3), (60, 4)))
    assert found.due_count.tolist() == [4, 4, 0, 0, 0]
    assert found.delivered.tolist() == [6, 4, 0, 0, 0]
    assert found.overdue_at_end.tolist() == [0] * 5
    assert found.late_ms.tolist() == [30 * SECOND, 0, -1, -1, -1]
    assert (found.overdue, found.worst_minute, found.gone_at) == (2, None, None)
    assert (found.missed, found.missed_at) == (2, T0)


def test_a_pause_holds_what_is_not_prepared_and_all_of_it_comes_at_its_end() -> None:
    """What is due within ten seconds comes. The first that comes too late is so five seconds after it is due."""
    due = load((5, 1), (30, 2), (50, 2), (100, 4), (200, 1))
    found = foreseen_of(due, Pause(T0 + 20 * SECOND, T0 + 130 * SECOND))
    assert found.delivered.tolist() == [3, 0, 6, 1, 0]
    assert found.overdue_at_end.tolist() == [2, 6, 0, 0, 0]
    assert found.latest_ms == 80 * SECOND
    assert (found.worst_minute, found.gone_at) == (T0 + MINUTE_MS, T0 + 130 * SECOND)
    assert (found.missed, found.missed_at) == (6, T0 + 55 * SECOND)


def test_a_pause_of_now_ends_when_somebody_resumes_it_and_else_it_does_not() -> None:
    """What if it were paused until then is the question for that."""
    due = load((-500, 7), (30, 1))
    assert foreseen_of(due, paused=True).overdue_at_end.tolist() == [8] * 5
    assert foreseen_of(due, Pause(T0, T0 + 70 * SECOND), paused=True).overdue_at_end.tolist() == [8, 0, 0, 0, 0]
    found = foreseen_of(due, Pause(T0), Pause(T0 + 10, T0 + 70 * SECOND), Pause(T0 + 20))
    assert found.overdue_at_end.tolist() == [8, 0, 0, 0, 0]


def test_a_burst_comes_at_its_rate_and_a_rest_saves_nothing_up() -> None:
    """A hundred at ten a second take ten seconds, at once and after minutes of quiet."""
    found = foreseen_of(load((0, 100), (180, 100)), max_rate=10)
    assert found.delivered.tolist() == [100, 0, 0, 100, 0]
    assert found.latest_ms == 10 * SECOND
    found = foreseen_of(load((50, 120)), max_rate=10)
    assert found.delivered.tolist() == [95, 25, 0, 0, 0]
    assert (found.overdue_at_end.tolist(), found.gone_at) == ([25, 0, 0, 0, 0], T0 + 62 * SECOND)


def test_another_rate_counts_from_when_it_is_set() -> None:
    """What is prepared comes at once; what comes later is due at the rate."""
    due = load(*((second, 10) for second in range(120)))
    found = foreseen_of(due, Rate(T0 + 50 * SECOND, 5))
    # Its time begins with the first message behind the lookahead, after 61 seconds; the last look is half a second
    # before the minute ends.
    assert found.delivered.tolist() == [600, 10 + 292, 590 - 292, 0, 0]
    assert foreseen_of(due, Rate(T0, 20), max_rate=1).delivered.tolist()[:2] == [600, 600]


def test_an_outage_holds_all_of_it_and_begins_a_rate_anew() -> None:
    """Nobody prepares, holds or lets go meanwhile."""
    due, away = load((5, 1), (30, 60), (100, 2)), Outage(T0 + 20 * SECOND, T0 + 120 * SECOND)
    assert foreseen_of(due, away).delivered.tolist() == [1, 0, 62, 0, 0]
    found = foreseen_of(due, away, max_rate=1)
    assert found.delivered.tolist() == [1, 0, 59, 3, 0]
    assert found.latest_ms == (180 - 30) * SECOND
    assert foreseen_of(load((-9, 3)), Outage(T0, T0 + 70 * SECOND)).delivered.tolist() == [0, 3, 0, 0, 0]


def test_what_has_expired_is_left_out_and_uses_up_nothing_of_the_rate() -> None:
    """A time to live of twenty seconds: of a burst at one a second twenty come."""
    found = foreseen_of(load((0, 100), (60, 5)), max_rate=1, ttl_ms=20 * SECOND)
    assert found.delivered.tolist() == [20, 5, 0, 0, 0]
    assert found.expired.tolist() == [80, 0, 0, 0, 0]
    assert found.missed == 80 + 15
    found = foreseen_of(load((10, 4), (50, 1)), paused=True, ttl_ms=30 * SECOND)
    assert (found.expired.tolist(), found.overdue_at_end.tolist()) == ([4, 1, 0, 0, 0], [1, 0, 0, 0, 0])


def test_what_is_late_at_the_end_counts_as_missed() -> None:
    """Nobody knows yet how late it will be, but it is late."""
    found = foreseen_of(load((0, 7), (58, 2)), paused=True, minutes=1)
    assert (found.missed, found.missed_at, found.gone_at, found.latest_ms) == (7, T0 + 5 * SECOND, None, None)


seconds = st.integers(0, 300)
spans = st.tuples(seconds, seconds).filter(lambda each: each[0] < each[1])
happens: st.SearchStrategy[WhatIf] = st.one_of(
    st.builds(lambda each: Pause(T0 + each[0] * SECOND, T0 + each[1] * SECOND), spans),
    st.builds(lambda at: Pause(T0 + at * SECOND), seconds),
    st.builds(lambda each: Outage(T0 + each[0] * SECOND, T0 + each[1] * SECOND), spans),
    st.builds(lambda at, rate: Rate(T0 + at * SECOND, rate), seconds, st.integers(1, 30)),
)


@given(
    due=st.lists(st.tuples(st.integers(-100, 400), st.integers(1, 200)), max_size=20),
    events=st.lists(happens, max_size=5),
    rate=st.sampled_from((None, 1, 7)),
    ttl=st.sampled_from((None, 2_500, 60_000)),
    paused=st.booleans(),
)
def test_no_message_is_lost_early_or_twice(
    due: list[tuple[int, int]], events: list[WhatIf], rate: int | None, ttl: int | None, *, paused: bool
) -> None:
    """Whatever happens: each comes, expires or waits, none before its time, and none late by more than its life."""
    policies = Policies(max_rate=rate, ttl_ms=ttl, paused=paused)
    found = departures(load(*due), policies, events, T0, T0 + 300 * SECOND, JobClock())
    left = Counter[int]()
    for at, count in zip(found.due.tolist(), found.counts.tolist(), strict=True):
        left[at] += count
    wanted = Counter[int]()
    for second, count in due:
        wanted[T0 + second * SECOND] += count
    assert left == wanted
    assert (found.at >= np.maximum(found.due, T0)).all()
    assert ttl is None or (found.at - found.due)[~found.expired & (found.at < T0 + 300 * SECOND)].max(initial=0) <= ttl
    whole = forecast_of(("t", "s"), load(*due), policies, Horizon(T0, T0 + 300 * SECOND, 0), events)
    gone = whole.delivered.sum() + whole.expired.sum() + whole.overdue_at_end[-1]
    assert gone == whole.overdue + whole.due_count.sum()


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 40)), min_size=1, max_size=15), st.integers(1, 30))
def test_a_rate_is_taken_as_dispatch_takes_it(due: list[tuple[int, int]], rate: int) -> None:
    """Second by second, as the pacing of dispatch says it."""
    arrives, name = Counter[int](), ("t", "s")
    for second, count in due:
        arrives[second] += count
    pacing, held, handed_over, shapings = Pacing(), 0, Counter[int](), {name: Policies(max_rate=rate)}
    for second in range(1_300):
        now = Ms(T0 + second * SECOND)
        budget = pacing.budget(name, rate, now)
        held += arrives[second]
        handed = min(budget, held)
        if handed:
            pacing.took({name: (handed, rate)}, now)
            handed_over[second], held = handed, held - handed
        pacing.follow(shapings, {("t", "s", 1): Share(held, 0, 0)} if held else {}, now)
    found = departures(load(*due), shapings[name], (), T0, T0 + 1_300 * SECOND, STEPS)
    ours = Counter[int]()
    for at, count in zip(((found.at - T0) // SECOND).tolist(), found.counts.tolist(), strict=True):
        ours[at] += count
    assert ours == handed_over


@pytest.mark.parametrize(
    ("tick", "wanted"), [(1, [1_000, 61_000]), (1_000, [1_024, 61_440]), (60_000, [32_768, 65_536])]
)
def test_due_times_are_rounded_up_to_the_tick_as_the_index_does(root: str, tick: int, wanted: list[int]) -> None:
    """A tick below the precision of a live forecast is cut to that."""
    subscribe(root, Subscription("t", "s", tick_ms=tick))
    noticed(root, "s", 0)
    put(root, MESSAGES, message_row(1, 0, 1_000), message_row(1, 1, 61_000), message_row(1, 2, 999_000))
    found = foreseen(root, ("t", "s"), Horizon(0, 130_000, 5_000), Assumptions()).subscriptions[0]
    places = [each // MINUTE_MS for each in wanted]
    assert found.due_count.tolist() == [places.count(0), places.count(1), 0]
    assert found.delivered.tolist() == found.due_count.tolist()


def test_what_a_topic_says_of_times_to_live_counts_and_a_campaign_is_divided(root: str) -> None:
    """Ten messages for three partitions: four, three and three, for each subscription."""
    create_partitioned_topic(root, "t", 3)
    for number in range(3):
        subscribe(root, Subscription(f"t-partition-{number}", "s", tick_ms=1))
    set_policy(root, "t", ttl_ms=2_000)
    assumed = Assumptions((Outage(0, 30_000),), {"t": {10_000: 10, 29_500: 1}})
    found = foreseen(root, (None, None), Horizon(0, 60_000, 5_000), assumed)
    assert [each.due_count.tolist() for each in found.subscriptions] == [[5], [3], [3]]
    assert [each.delivered.tolist() for each in found.subscriptions] == [[1], [0], [0]]
    assert [each.expired.tolist() for each in found.by_topic.subscriptions] == [[4], [3], [3]]
    assert [each.expired.tolist() for each in found.in_all.subscriptions] == [[10]]


@pytest.mark.parametrize(
    ("field", "how"),
    [
        ("until", {"until": 0}),
        ("until", {"until": 1 << 60}),
        ("late_than_ms", {"late_than_ms": -1}),
        ("what_if", {"what_if": ["an outage"]}),
        ("until", {"what_if": [Outage(5, 5)]}),
        ("max_rate", {"what_if": [Rate(5, 0)]}),
        ("campaign", {"campaign": {"nobody": {5: 1}}}),
        ("campaign", {"campaign": {"t": {5: 0}}}),
    ],
)
def test_what_cannot_be_told_is_refused_by_its_name(root: str, field: str, how: dict[str, Any]) -> None:
    """With the value and what is allowed."""
    subscribe(root, Subscription("t", "s"))
    with pytest.raises(NotAllowed) as refused:
        delayline.forecast(root, **how)
    assert refused.value.field == field
    assert isinstance(refused.value, BadValue)


def test_a_test_of_a_program_asks_what_will_come_and_then_it_does() -> None:
    """By the clock of the test; what was cancelled does not come, what was put off comes then, and rates hold."""
    with warehouse(START) as world:
        _subscribed(world)
        first = round(START.timestamp() * 1_000)
        found = delayline.forecast(world.root, until=first + 4 * MINUTE_MS)
        delivered = {(row["subscription"], row["minute"]): row["delivered"] for row in found.table().to_pylist()}
        assert found.horizon.begin == first
        world.advance(minutes=4)
        times = {each: datetime.fromtimestamp(at / 1_000, UTC) for each, (_, at) in came(world.root).items()}
        counts = Counter((each[0], at.replace(second=0, microsecond=0)) for each, at in times.items())
        # A look at the rate may be just before the minute ends, or just after it.
        wrong = {each: delivered.get(each, 0) - counts[each] for each in {*delivered, *counts}}
        assert {each: count for each, count in wrong.items() if abs(count) > (RATE if each[0] == "slow" else 0)} == {}
        assert sum(wrong.values()) == 0
        assert len(times) == 2 * 110


def _subscribed(world: VirtualWarehouse) -> None:
    subscribe(world.root, Subscription("orders", "fast", tick_ms=1_000))
    subscribe(world.root, Subscription("orders", "slow", tick_ms=1_000, policies=Policies(max_rate=RATE)))
    client = world.client()
    with client.create_producer("orders") as producer:
        for number in range(120):
            key = ("stays", "moves", "goes")[number % 12 if number % 12 < 3 else 0]
            producer.send(b"", partition_key=key, deliver_after=timedelta(seconds=30))
    world.run_until_idle()
    client.cancel("orders", key="goes")
    client.shift("orders", key="moves", span=timedelta(minutes=2))
    world.run_until_idle()
