"""Open hours of a subscription: what is held outside of them, and what may be taken before they end."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

from pipeline.dispatch.core.holding import EVERYTHING, Allowance, Share, Who
from pipeline.dispatch.core.shaping import Pacing, allowances, as_of, is_open, next_look, within_hours
from pipeline.subscriptions.incarnations import Name
from pipeline.subscriptions.policies import Policies
from pipeline.subscriptions.windows import OpenHours
from state.units import Ms

NAME, WHO = ("t", "s"), ("t", "s", 1)
MINUTE, HOUR = 60_000, 3_600_000
NIGHT = round(datetime(2026, 6, 15, 3, tzinfo=UTC).timestamp() * 1_000)
"""A Monday, 05:00 in Rome."""
OPENS, CLOSES = NIGHT + 3 * HOUR, NIGHT + 15 * HOUR


def shaping(**policies: object) -> dict[Name, Policies]:
    """A subscription that takes messages by day."""
    return {NAME: Policies(open="Mo-Fr 08:00-20:00", open_zone="Europe/Rome", **policies)}  # type: ignore[arg-type]


def hours(shapings: dict[Name, Policies]) -> dict[Name, OpenHours]:
    """As the registry has them."""
    return {name: each.hours for name, each in shapings.items() if each.hours is not None}


def allowed(shapings: dict[Name, Policies], now: int, waiting: dict[Who, Share]) -> Allowance | None:
    """What may be taken at a time."""
    as_set, own = as_of(shapings, hours(shapings), Ms(now)), hours(shapings)
    found = allowances(as_set, waiting, {NAME: 1}, 10, Pacing(), Ms(now))
    return within_hours(found, own, Ms(now)).get(NAME)


def looks(shapings: dict[Name, Policies], now: int, share: Share) -> bool:
    """Whether something may be taken at a time."""
    return is_open(as_of(shapings, hours(shapings), Ms(now)), {WHO: share}, Pacing(), Ms(now))


def test_nothing_may_be_taken_while_it_is_closed_and_what_is_due_later_never_is() -> None:
    """From the first instant of the hours to the last one; also when nothing is held yet."""
    due, own = Share(5, NIGHT, NIGHT), shaping()
    for now in (NIGHT, OPENS - 1, CLOSES, CLOSES + 3 * HOUR):
        assert allowed(own, now, {WHO: due}) == allowed(own, now, {}) == Allowance(0)
        assert not looks(own, now, due)
    for now in (OPENS, CLOSES - 1):
        assert allowed(own, now, {WHO: due}) == Allowance(10, CLOSES - 1)
        assert allowed(own, now, {}) == Allowance(EVERYTHING, CLOSES - 1)
        assert looks(own, now, due)
        # What was held ahead of its time, since it is due when it is closed, makes no batch.
        assert not looks(own, now, Share(5, CLOSES, CLOSES))
    assert allowed(shaping(paused=True), OPENS, {WHO: due}) == Allowance(0, CLOSES - 1)


def test_a_guard_and_a_rate_are_bounded_by_the_end_of_the_hours() -> None:
    """A guard is asked ahead of time, and a rate counts from the opening on."""
    due, rated = Share(5, NIGHT, NIGHT), shaping(max_rate=10)
    guarded = allowances(shaping(guard="true"), {}, {NAME: 1}, 10, Pacing(), Ms(CLOSES - 1_000), 2_000)
    assert guarded[NAME].due_until == CLOSES + 1_000
    assert within_hours(guarded, hours(shaping()), Ms(CLOSES - 1_000))[NAME].due_until == CLOSES - 1
    pacing, came = Pacing(), list[tuple[int, int]]()
    for now in (OPENS - 10_000, OPENS, OPENS + 1_000):
        pacing.follow(as_of(rated, hours(rated), Ms(now)), {WHO: due}, Ms(now))
        came.append((now, pacing.budget(NAME, 10, Ms(now))))
    assert came == [(OPENS - 10_000, 0), (OPENS, 0), (OPENS + 1_000, 10)]


def test_the_next_look_is_when_it_opens_or_when_something_expires() -> None:
    """A clock that is turned goes there at once. A pause lasts, whatever the hours are."""
    due = {WHO: Share(5, NIGHT, NIGHT)}
    assert next_look(shaping(), due, Ms(NIGHT)) == OPENS
    assert next_look(shaping(), due, Ms(OPENS)) == OPENS + 1_000
    assert next_look(shaping(ttl_ms=HOUR), due, Ms(NIGHT)) == NIGHT + HOUR + 10_001
    assert next_look(shaping(paused=True), due, Ms(NIGHT)) is None


def test_who_has_no_hours_costs_nothing() -> None:
    """The policies are handed on as they are."""
    plain, most = {NAME: Policies(max_rate=5)}, {NAME: Allowance(3)}
    assert as_of(plain, {}, Ms(NIGHT)) is plain
    assert within_hours(most, {}, Ms(NIGHT)) is most
