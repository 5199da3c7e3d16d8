"""A window stays closed on the days of a calendar, whatever dies, and whatever the calendar says later."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest

from pipeline.client.subscribing.calendars import set_calendar
from pipeline.config.settings import Settings
from tests.stream.test_windows import DAY, ROME, SECOND, T0, came, window
from tests.support.stream import Step, advance, append, check, kill_after, message, restart, same, subscribe
from tests.support.worlds import Play


def calendar(*days: date) -> Step:
    """The calendar `off` has these days."""
    return check(lambda world: same(len(set_calendar(world.warehouse.root, "off", days)), wanted=len(days)))


@pytest.mark.parametrize("death", [None, "ingest.messages", "ingest.segments"])
def test_on_the_days_of_a_calendar_nothing_comes(play: Play, death: str | None) -> None:
    """Ingest dies anywhere, and the calendar is another one before it repeats the batch; what comes next follows."""
    wednesday, thursday = (datetime.fromtimestamp((ROME + day * DAY) / 1_000, UTC).date() for day in (0, 1))
    world = play(
        [
            subscribe("t", "s"),
            calendar(wednesday),
            window(window_calendar="off", window_zone="Europe/Rome"),
            advance(T0 - SECOND),
            append(message("first")),
            *([] if death is None else [kill_after(death)]),
            advance(T0),
            calendar(wednesday, thursday),
            *([] if death is None else [restart()]),
            advance(T0 + 1),
            append(message("second")),
            advance(ROME + DAY - 1),
            check(lambda world: same(came(world), {})),
            advance(ROME + DAY),
            advance(ROME + 2 * DAY),
        ],
        Settings(express_ms=4 * SECOND),
    )
    assert came(world) == {"first": [ROME + DAY], "second": [ROME + 2 * DAY]}
    world.sound()
