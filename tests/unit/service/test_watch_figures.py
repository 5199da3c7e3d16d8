"""What a count of what is pending says, and how late deliveries to each subscription were. No Spark runs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("prometheus_client", reason="watching needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the listener is Spark's")

from pipeline.client.insight.backlogfigures import BacklogFigures, expiring
from pipeline.client.insight.pending import Backlog
from pipeline.config.options import Delivered, SettleBatch
from pipeline.config.settings import MINUTE_MS
from pipeline.service.watch.lateness import MOST_SUBSCRIPTIONS
from pipeline.service.watch.metrics import Metrics
from tests.support.scraped import scraped

NOW = 1_700_000_040_000
START = NOW - NOW % MINUTE_MS
LATE = "delayline_subscription_lateness_seconds"
COUNTED = ("pending", "held", "expiring", "due_next_hour", "next_due_seconds", "last_due_seconds", "counted_seconds")


def backlog(minutes: Mapping[int, int], name: str = "s") -> Backlog:
    """So many are due so many minutes from the present one on, each in the middle of it."""
    due = {START + minute * MINUTE_MS: count for minute, count in minutes.items()}
    first = min(due) + MINUTE_MS // 2 if due else None
    return Backlog("t", name, sum(due.values()), first, due)


def late_to(page: Mapping[str, float], subscription: str, topic: str = "t") -> tuple[float, float]:
    """How many deliveries, and their lateness together."""
    labels = f'{{subscription="{subscription}",topic="{topic}"}}'
    return page[f"{LATE}_count{labels}"], page[f"{LATE}_sum{labels}"]


def test_a_count_is_shown_as_one_picture_of_all_subscriptions() -> None:
    """First and last due time, and what the next hour brings: from the minute of the count on, sixty minutes."""
    metrics = Metrics()
    found = (replace(backlog({-5: 7, 0: 1, 59: 10, 60: 100}), held=7), backlog({1: 1_000, 2_000: 1}, "other"))
    metrics.waiting(BacklogFigures.of(found, NOW))
    page = scraped(metrics)
    assert {name: page[f"delayline_{name}"] for name in COUNTED} == {
        "pending": 1_119,
        "held": 7,
        "expiring": 0,
        "due_next_hour": 1_011,
        "next_due_seconds": (START - 4.5 * MINUTE_MS) / 1_000,
        "last_due_seconds": (START + 2_000 * MINUTE_MS) / 1_000,
        "counted_seconds": NOW / 1_000,
    }


def test_nothing_is_shown_of_what_nobody_has_counted_yet() -> None:
    """A zero would say that nothing waits, and a due time in the year 1970 would wake somebody."""
    metrics = Metrics()
    assert all(math.isnan(scraped(metrics)[f"delayline_{name}"]) for name in COUNTED)
    metrics.waiting(BacklogFigures.of([backlog({})], NOW))
    page = scraped(metrics)
    assert (page["delayline_pending"], page["delayline_due_next_hour"]) == (0, 0)
    assert math.isnan(page["delayline_next_due_seconds"])
    assert math.isnan(page["delayline_last_due_seconds"])


def test_what_a_pause_outlasts_is_expiring_as_soon_as_it_is_due() -> None:
    """Somebody may still resume in time; what is not due yet has time."""
    held = replace(backlog({-2: 5, -1: 3, 0: 9, 4: 2}), ttl_ms=600_000)
    assert expiring(held, NOW) == 0
    assert expiring(replace(held, paused=True), NOW) == 8
    assert expiring(replace(held, guard_error="no such table"), NOW) == 8
    assert expiring(replace(held, paused=True, ttl_ms=None), NOW) == 0


def test_what_a_rate_does_not_allow_in_time_is_expiring() -> None:
    """Two a second for the 80 s that the oldest have left are 160, and 120 more for those of the next minute."""
    held = replace(backlog({-2: 200, -1: 150}), ttl_ms=180_000, max_rate=2)
    now = START + MINUTE_MS - 20_000
    assert expiring(held, now) == 40 + 30
    assert expiring(replace(held, max_rate=20), now) == 0


def test_what_is_past_its_ttl_and_pending_is_expiring_whatever_is_set() -> None:
    """Dispatch has not left it out yet, perhaps because it stands still."""
    held = replace(backlog({-12: 5, -11: 4, -1: 3}), ttl_ms=600_000)
    assert [expiring(held, START + later) for later in (-1, 0, MINUTE_MS)] == [5, 9, 9]


@given(st.dictionaries(st.integers(-30, 3), st.integers(1, 500), max_size=8), st.integers(1, 20), st.integers(1, 900))
def test_a_higher_rate_and_a_longer_ttl_let_no_more_expire(minutes: dict[int, int], rate: int, ttl_s: int) -> None:
    """Whoever raises one of them wants to see the figure fall; it is never more than what is due."""
    held = replace(backlog(minutes), max_rate=rate, ttl_ms=ttl_s * 1_000)
    due = sum(count for minute, count in minutes.items() if START + (minute + 1) * MINUTE_MS <= NOW)
    paused = expiring(replace(held, paused=True), NOW)
    assert 0 <= expiring(replace(held, max_rate=rate + 1), NOW) <= expiring(held, NOW) <= paused == due
    assert expiring(replace(held, ttl_ms=ttl_s * 2_000), NOW) <= expiring(held, NOW)


def test_each_subscription_has_its_own_lateness() -> None:
    """A rate makes one of them late; the histogram of all would hide that behind the busy ones."""
    metrics = Metrics()
    quick, slow = Delivered("t", "quick", 90, NOW, NOW), Delivered("t", "slow", 10, NOW - 60_000, NOW - 60_000)
    metrics.published(100, NOW - 60_000, NOW, NOW + 250, [quick, slow])
    metrics.published(10, NOW, NOW, NOW + 250, [replace(quick, count=10)])
    page = scraped(metrics)
    assert late_to(page, "quick") == (100, 25)
    assert late_to(page, "slow") == (10, 602.5)
    assert page[f'{LATE}_bucket{{le="0.25",subscription="quick",topic="t"}}'] == 100
    assert page[f'{LATE}_bucket{{le="60.0",subscription="slow",topic="t"}}'] == 0


def test_the_page_does_not_grow_with_the_subscriptions_and_counts_all_of_them() -> None:
    """Three thousand of them would be forty thousand lines, twice a minute, and for years in Prometheus."""
    metrics = Metrics()
    for number in range(3 * MOST_SUBSCRIPTIONS):
        metrics.published(2, NOW, NOW, NOW + 500, [Delivered("t", f"s{number}", 2, NOW, NOW)])
    metrics.published(7, NOW, NOW, NOW + 500)
    page = scraped(metrics)
    counts = {name: value for name, value in page.items() if name.startswith(f"{LATE}_count")}
    assert len(counts) == MOST_SUBSCRIPTIONS + 1
    assert late_to(page, "s0") == (2, 1)
    assert late_to(page, "(other)", "(other)")[0] == 2 * 2 * MOST_SUBSCRIPTIONS + 7
    assert sum(counts.values()) == page["delayline_lateness_seconds_count"]


def test_who_was_among_the_others_gets_figures_when_a_subscription_has_ended() -> None:
    """Else a job that has run for a year would show fifty that are gone."""
    metrics = Metrics()
    names = [f"s{number}" for number in range(MOST_SUBSCRIPTIONS + 1)]
    for name in names:
        metrics.published(1, NOW, NOW, NOW, [Delivered("t", name, 1, NOW, NOW)])
    for _ in range(2):
        metrics.forget_others([("t", name) for name in names[1:]])
    metrics.published(1, NOW, NOW, NOW, [Delivered("t", names[-1], 1, NOW, NOW)])
    page = scraped(metrics)
    assert late_to(page, names[-1])[0] == 1
    assert f'{LATE}_count{{subscription="s0",topic="t"}}' not in page


def test_a_subscription_may_have_lateness_and_acknowledge_nothing() -> None:
    """What settle tells of is separate: a batch of it adds no histogram."""
    metrics = Metrics()
    metrics.settled(SettleBatch(1, 1, NOW, NOW, NOW, 1, 0, ()))
    assert [name for name in scraped(metrics) if name.startswith(f"{LATE}_count")] == [
        f'{LATE}_count{{subscription="(other)",topic="(other)"}}'
    ]
