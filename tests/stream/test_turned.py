"""A random script gives the same deliveries by a clock that a test turns and in a job under the virtual clock."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.client.commanding.commands import cancel, shift
from pipeline.client.consuming.acknowledgingrows import SETTLED_BY, negative_acknowledge
from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from pipeline.delta import deltars
from pipeline.delta.deltars import open_table, query
from pipeline.subscriptions.policies import Policies
from pipeline.testing.warehouse import warehouse
from schemas import DELIVERIES, INBOX
from tests.support.stream import Step, advance, append, check, message, void
from tests.support.worlds import on_spark, play_here

T0, MINUTE = 1_700_000_000_000, 60_000
TOPICS, KEYS = ("a", "b"), ("k", "l", "m")
RETRY_MS = 5 * MINUTE
LINES = (
    Subscription("a", "plain", tick_ms=1),
    Subscription("a", "again", tick_ms=1, policies=Policies(ack=True)),
    Subscription("b", "plain", tick_ms=1),
)
Delivery = tuple[str, str, bytes, int, datetime]
"""Topic, subscription, payload, redelivery count, due time."""


@dataclass(frozen=True)
class Moment:
    """What happens at an instant: so long after the one before, ms."""

    gap_ms: int
    sent: tuple[tuple[str, str, int | None], ...]
    cancelled: str | None
    shifted: str | None
    fails: bool


SENT = st.tuples(st.sampled_from(TOPICS), st.sampled_from(KEYS), st.none() | st.integers(0, 120 * MINUTE))
MOMENTS = st.lists(
    st.builds(
        Moment,
        st.integers(1, 40 * MINUTE),
        st.lists(
            st.tuples(st.sampled_from(TOPICS), st.sampled_from(KEYS), st.none() | st.integers(0, 120 * MINUTE)),
            max_size=4,
        ).map(tuple),
        st.none() | st.sampled_from(KEYS),
        st.none() | st.sampled_from(KEYS),
        st.booleans(),
    ),
    min_size=2,
    max_size=5,
)


class Course:
    """The script as it is played: the rows of its messages have numbers, and times."""

    def __init__(self, moments: Sequence[Moment]) -> None:
        self.moments, self.instants = moments, list[int]()
        self.rows: list[list[dict[str, object]]] = []
        now, number = T0, 0
        for moment in moments:
            now += moment.gap_ms
            rows = []
            for topic, key, delay in moment.sent:
                due = None if delay is None else now + delay
                rows.append(message(str(number), topic, deliver_at=due, published=now) | {"message_key": key})
                number += 1
            self.instants.append(now)
            self.rows.append(rows)


def deliveries(root: str) -> list[Delivery]:
    """All deliveries, those of each subscription in order."""
    columns = "topic, subscription, payload, redelivery_count, due_time"
    rows = query(
        f"SELECT {columns} FROM d ORDER BY topic, subscription, batch_id, sequence",  # noqa: S608 - our own words
        d=open_table(root, DELIVERIES),
    )
    return [tuple(row.values()) for row in rows]


def decide(root: str, moment: Moment) -> None:
    """Commands, and what fails: half of what came to who acknowledges, once."""
    if moment.cancelled is not None:
        cancel(root, "a", key=moment.cancelled)
    if moment.shifted is not None:
        shift(root, "b", span=timedelta(minutes=7), key=moment.shifted)
    if moment.fails:
        failed = f"""
            SELECT {", ".join(SETTLED_BY)} FROM d
            WHERE subscription = 'again' AND redelivery_count = 0 AND CAST(CAST(payload AS STRING) AS INT) % 2 = 0
        """  # noqa: S608 - our own words
        negative_acknowledge(root, deltars.arrow_of(failed, d=open_table(root, DELIVERIES)), RETRY_MS)


def turned(course: Course) -> list[Delivery]:
    """What comes in a warehouse whose clock is turned."""
    with warehouse(datetime.fromtimestamp(T0 / 1_000, UTC)) as made:
        for line in LINES:
            subscribe(made.root, line)
        made.run_until_idle()
        for moment, instant, rows in zip(course.moments, course.instants, course.rows, strict=True):
            made.advance_to(datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=instant))
            if rows:
                deltars.append(made.root, INBOX, deltars.rows_of(INBOX, rows))
            made.run_until_idle()
            decide(made.root, moment)
            made.run_until_idle()
        made.advance(hours=4)
        return deliveries(made.root)


def scripted(course: Course, play: Callable[[Sequence[Step]], object]) -> list[Delivery]:
    """What comes in a job of which each stage comes to each instant."""
    seen: list[Delivery] = []
    steps: list[Step] = [
        *(check(lambda world, line=line: void(subscribe(world.warehouse.root, line))) for line in LINES),  # type: ignore[misc]
        advance(T0),
    ]
    for moment, instant, rows in zip(course.moments, course.instants, course.rows, strict=True):
        steps += [
            advance(instant),
            append(*rows),
            advance(instant),
            check(lambda world, moment=moment: decide(world.warehouse.root, moment)),  # type: ignore[misc]
            advance(instant),
        ]
    # What failed comes again five minutes after settle has heard of it.
    steps += [advance(course.instants[-1] + minutes * MINUTE) for minutes in (60, 120, 240)]
    play([*steps, check(lambda world: seen.extend(deliveries(world.warehouse.root)))])
    return seen


@settings(max_examples=6, suppress_health_check=[HealthCheck.too_slow])
@given(moments=MOMENTS)
def test_what_is_due_comes_the_same_way_when_a_test_turns_the_clock(moments: list[Moment]) -> None:
    """Messages, their order, how often and when they are due; commands and failures on the way."""
    course = Course(moments)
    assert turned(course) == scripted(course, play_here)


@pytest.mark.soak
@settings(max_examples=3 if os.environ.get("HYPOTHESIS_PROFILE") != "soak" else 30)
@given(moments=MOMENTS)
def test_what_is_due_comes_the_same_way_on_spark(moments: list[Moment]) -> None:
    """The same script on Spark."""
    course = Course(moments)
    assert turned(course) == scripted(course, on_spark)
