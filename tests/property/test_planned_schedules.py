"""Each occurrence of a schedule comes once, by the definition that counted when it was due, whatever dies or changes.

Schedules are set, changed, paused, resumed and deleted at random, and so are days of a calendar that some of them
name, while the clock steps by minutes or by days. The
planner dies after any of its steps, at once or for hours, with all stages; a batch of ingest dies, too.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import takewhile
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")

from pipeline.client.clock import turned
from pipeline.client.subscribing.calendars import set_calendar
from pipeline.client.subscribing.policysetting import set_policy
from pipeline.client.subscribing.schedules import (
    delete_schedule,
    pause_schedule,
    resume_schedule,
    schedules,
    set_schedule,
)
from pipeline.client.subscribing.subscriptions import Subscription
from pipeline.client.subscribing.topics import create_partitioned_topic, subscribe_each
from pipeline.config.spelling import iso_text
from pipeline.delta.deltars import open_table, query
from pipeline.subscriptions.schedules import OCCURRENCE, SCHEDULE, Schedule
from pipeline.testing.warehouse import TurnedClock
from schemas import DELIVERIES
from state.unique import Mode
from state.units import Ms
from tests.support.stages import Stages

HOUR, DAY = 3_600_000, 86_400_000
T0 = int(datetime(2026, 3, 7, 12, tzinfo=UTC).timestamp() * 1_000)
"""The day before clocks of New York go forward."""
EXAMPLES = max(1, settings().max_examples // 4)
NAMES = ("a", "b")
WHEN: tuple[dict[str, Any], ...] = (
    {"cron": "0 */6 * * *"},
    {"cron": "30 2 * * *", "zone": "America/New_York"},
    {"cron": "*/20 1-3 * * *", "zone": "America/New_York"},
    {"every_ms": 5 * HOUR},
    {"rrule": "FREQ=DAILY;BYHOUR=2,14;BYMINUTE=30", "start": datetime(2026, 1, 1, tzinfo=UTC), "jitter_ms": 60_000},
    {"cron": "0 0 1 * *"},
    {"cron": "0 */6 * * *", "calendar": "off"},
    {"cron": "0 9 8 3 *", "zone": "America/New_York", "calendar": "off", "on_day_off": "next"},
)
STEPS = (None, "planner.decided", "planner.withdrawn", "planner.planned", "planner.appended", "ingest.messages")


@dataclass(frozen=True)
class Step:
    """What happens.

    Attributes:
        name: of the schedule; None: time passes alone.
        kind: `set`, `pause`, `resume` or `delete`; or `days`: the calendar has others.
        when: a number of `WHEN`.
        dies: after which step something dies then.
        down: for how long it is dead, ms.
        passes: how much time passes afterwards, ms.
        late: for how long no job runs before it notices the change, ms.
    """

    name: str | None
    kind: str
    when: int
    dies: str | None
    down: int
    passes: int
    late: int = 0


spans = st.sampled_from([0, 20 * 60_000, HOUR // 2, HOUR, 5 * HOUR, 6 * HOUR, 6 * HOUR + 1, DAY, 3 * DAY])
"""Often an instant is one at which something occurs."""
steps = st.builds(
    Step,
    st.sampled_from([*NAMES, *NAMES, None]),
    st.sampled_from(["set", "set", "pause", "resume", "delete", "days"]),
    st.integers(0, len(WHEN) - 1),
    st.sampled_from(STEPS),
    st.sampled_from([0, 0, HOUR, DAY]),
    spans,
    st.sampled_from([0, 0, 0, HOUR, 3 * DAY]),
)


@dataclass
class Held:
    """What counts, by a plain reading: since when which definition does, and until when another one of its name did."""

    now: int = T0
    let_go: dict[str, int] = field(default_factory=dict)
    counts: dict[str, tuple[Schedule, int]] = field(default_factory=dict)
    due: list[tuple[int, tuple[str, str, str]]] = field(default_factory=list)

    def follow(self, definitions: dict[str, Schedule], noticed: int) -> None:
        """Others count from when they were noticed; what is new from when it was set, behind what had its name."""
        for name in self.counts.keys() | definitions.keys():
            before, new = self.counts.get(name), definitions.get(name)
            if before is not None and before[0] == new:
                continue
            if before is not None:
                self.pass_until(name, noticed)
                del self.counts[name]
                self.let_go[name] = noticed + 1
            if new is not None:
                assert new.set_at is not None
                set_at = min(new.set_at, noticed)
                self.counts[name] = (new, max(set_at, self.let_go.get(name, set_at)))

    def pass_until(self, name: str, until: int) -> None:
        """What counts occurs until an instant, and counts from behind it on."""
        schedule, since = self.counts[name]
        for each in takewhile(lambda each: each.at <= until, schedule.recurrence.after(Ms(since - 1))):
            self.due.append((schedule.due(each), (name, iso_text(each.at), schedule.payload)))
        self.counts[name] = (schedule, max(since, until + 1))


def stated(root: str) -> dict[str, Schedule]:
    """The definitions that can be followed and are not paused."""
    found = {each.name: each.schedule for each in schedules(root)}
    return {name: each for name, each in found.items() if each is not None and not each.paused}


def do(root: str, step: Step, number: int) -> bool:
    """Change a schedule; whether there was anything to change."""
    assert step.name is not None
    there = {each.name: each.error for each in schedules(root)}
    if step.kind == "days":
        days = [each for each in range(7, 12) if step.when >> (each - 7) & 1]
        set_calendar(root, "off", [f"2026-03-{each:02}" for each in days])
        return True
    if step.kind == "set":
        if "calendar" in WHEN[step.when]:
            set_calendar(root, "off", ["2026-03-08"])
        how = WHEN[step.when] | {"payload": f"{number}", "catch_up": "all", "catch_up_within_ms": 60 * DAY}
        how |= {"message_key": "one for all"}
        set_schedule(root, step.name, "reminders", **how)
        return True
    if there.get(step.name, "not there") is not None:
        return False
    change = {"pause": pause_schedule, "resume": resume_schedule, "delete": delete_schedule}[step.kind]
    change(root, step.name)
    return True


def delivered(root: str) -> Counter[tuple[str, str, str]]:
    """What came: schedule, occurrence, and the payload, which says the definition."""
    rows = query("SELECT properties, payload FROM t", t=open_table(root, DELIVERIES))
    found = ((dict(row["properties"]), row["payload"].decode()) for row in rows)
    return Counter((of[SCHEDULE], of[OCCURRENCE], payload) for of, payload in found)


def work(stages: Stages) -> None:
    """Let all stages and the planner do what there is to do; again, for whoever died is back."""
    stages.work()
    stages.die_after(None)
    stages.work()


def at_once(*changes: tuple[str, str]) -> list[Step]:
    """Changes of schedules while the clock stands where these occur."""
    return [Step(name, kind, 0, None, 0, 0) for name, kind in changes]


BESIDE = at_once(("a", "set"), ("a", "pause"), ("b", "set"), ("b", "delete"), ("a", "resume"), ("b", "set"))
"""What is new counts at once, whatever another one did; but behind what had its name before."""


@settings(max_examples=EXAMPLES)
@example(BESIDE, None, 0)
@given(st.lists(steps, min_size=1, max_size=7), st.sampled_from([None, None, *Mode]), st.sampled_from([0, 0, 2]))
def test_each_occurrence_comes_once_by_the_definition_that_counted_when_it_was_due(
    drawn: list[Step], mode: Mode | None, partitions: int
) -> None:
    """Whoever dies when, for however long; also where no two messages with one key wait, and on a divided topic."""
    folder, clock = mkdtemp(prefix="delayline-planned-"), TurnedClock(T0)
    root = str(Path(folder) / "warehouse")
    try:
        stages, held = Stages(root), Held()
        if partitions:
            create_partitioned_topic(root, "reminders", partitions)
        subscribe_each(root, Subscription("reminders", "s", tick_ms=1))
        if mode is not None:
            set_policy(root, "reminders", unique=mode, unique_max_wait_ms=HOUR if mode == Mode.EXTEND else None)
        stages.instant = T0
        work(stages)
        for number, step in enumerate(drawn):
            clock.ms = held.now
            with turned(root, clock):
                played(stages, held, step, number)
        for name in list(held.counts):
            held.pass_until(name, held.now)
        assert delivered(root) == Counter(what for due, what in held.due if due <= held.now)
    finally:
        rmtree(folder, ignore_errors=True)


def played(stages: Stages, held: Held, step: Step, number: int) -> None:
    """A step, in the world and in the model."""
    root = stages.root
    if step.name is not None and do(root, step, number):
        held.now += step.late
        stages.instant = noticed = held.now
        stages.die_after(step.dies)
        stages.plan()
        is_noticed = "planner.decided" in stages.steps
        if step.dies is not None and step.dies.startswith("planner.") and step.down:
            # All of the process is dead meanwhile. It may have died while it caught up, before it noticed the change.
            stages.restart_all()
            held.now += step.down
            stages.instant = held.now
            noticed = noticed if is_noticed else held.now
        work(stages)
        held.follow(stated(root), noticed)
    held.now += step.passes
    stages.instant = held.now
    work(stages)
