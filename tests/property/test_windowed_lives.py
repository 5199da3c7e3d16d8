"""Windows that change, failures, commands and deaths: each message comes once, at the time that was decided.

The stages are the real ones, without a JVM. The model says of each message when it is due: by the window that the topic
had when ingest took it, when settle put it back, or when a command moved it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

pytest.importorskip("pyspark", reason="the stages are made for sessions of Spark")
pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")

from pipeline.client.commanding.commands import shift
from pipeline.client.subscribing.policysetting import set_policy
from pipeline.config.settings import Settings
from schemas import DELIVERIES
from state.windows import Window
from tests.support.consuming import acknowledging, says
from tests.support.stream import World, advance, append, check, kill_after, message, restart
from tests.support.worlds import play_here

# Behind any wall clock, by which commands count.
T0 = 2_000_000_000_000
SECOND, MINUTE, DAY = 1_000, 60_000, 86_400_000
WINDOWS = ("08:00-20:00", "We 03:00-05:00; Th,Sa", "22:00-06:00", "00:00-24:00")
ZONES = ("Europe/Rome", "Asia/Tokyo")
DEATHS = ("ingest.messages", "ingest.segments", "settle.segments", "settle.cursors", "dispatch.deliveries")
NO_HASH = np.zeros(1, np.int64)

sends = st.tuples(st.just("send"), st.integers(0, 2_000), st.integers(0, len(ZONES) - 1))
policies = st.tuples(st.just("policy"), st.integers(0, len(WINDOWS) - 1), st.just(0))
nacks = st.tuples(st.just("nack"), st.integers(1, 900), st.integers(0, 5))
shifts = st.tuples(st.just("shift"), st.integers(1, 1_500), st.integers(0, 5))
passes = st.tuples(st.just("pass"), st.integers(1, 900), st.integers(0, 5))
deaths = st.tuples(st.just("death"), st.integers(0, len(DEATHS) - 1), st.integers(0, len(WINDOWS) - 1))


@dataclass
class Life:
    """A warehouse, and what the model knows: when messages are due, by key and redelivery count."""

    window: int = 0
    due: dict[tuple[str, int], int] = field(default_factory=dict)
    zones: dict[str, int] = field(default_factory=dict)
    sent: list[tuple[str, int]] = field(default_factory=list)
    failed: list[tuple[str, int, int]] = field(default_factory=list)

    def decided(self, key: str, at: int) -> int:
        """When something comes that would come at an instant."""
        window = Window.of_text(WINDOWS[self.window])
        return int(window.put_off(np.array([at]), ZoneInfo(ZONES[self.zones[key]]), NO_HASH)[0])

    def pass_to(self, world: World, instant: int) -> None:
        """Time passes; what was sent is taken, and what failed is put back."""
        for key, after in self.sent:
            self.due[key, 0] = self.decided(key, instant + after)
        self.sent = []
        advance(instant)(world)
        if not (world.dead and world.died != "settle"):
            self.put_back(instant)

    def put_back(self, instant: int) -> None:
        """Settle has decided what becomes of what failed."""
        for key, count, after in self.failed:
            self.due[key, count] = self.decided(key, instant + after)
        self.failed = []

    def last(self, world: World) -> dict[str, tuple[int, int]]:
        """Of each message how often it failed, and when it is due; less what waits for the next instant."""
        found = {key: max((count, due) for (own, count), due in self.due.items() if own == key) for key, _ in self.due}
        assert world.instant or not found
        return {key: each for key, each in found.items() if key not in {name for name, *_ in self.failed}}

    def send(self, world: World, minutes: int, zone: int) -> None:
        """A message is sent."""
        key = str(len(self.zones))
        self.zones[key] = zone
        self.sent.append((key, minutes * MINUTE))
        row = {**message(key, after=minutes * MINUTE), "message_key": key, "properties": [("zone", ZONES[zone])]}
        append(row)(world)

    def policy(self, world: World, number: int, _more: int) -> None:
        """The topic has another window; what was decided stays."""
        self.window = number
        set_policy(world.warehouse.root, "t", window=WINDOWS[number], window_zone="property:zone")

    def nack(self, world: World, minutes: int, which: int) -> None:
        """What was delivered last to a consumer fails."""
        shown = {(row["message_key"], row["redelivery_count"]) for row in world.rows(DELIVERIES)}
        came = [(key, count) for key, (count, _) in self.last(world).items() if (key, count) in shown]
        for key, count in came[which : which + 1]:
            says("nack", key, after_ms=minutes * MINUTE)(world)
            self.failed.append((key, count + 1, minutes * MINUTE))

    def shift(self, world: World, minutes: int, which: int) -> None:
        """What waits is put off."""
        waits = [(key, *each) for key, each in self.last(world).items() if each[1] > world.instant]
        for key, count, due in waits[which : which + 1]:
            found = shift(world.warehouse.root, "t", span=timedelta(minutes=minutes), key=key)
            then = self.decided(key, due + minutes * MINUTE)
            assert (found.selection.count, found.first_then) == (1, then)
            self.due[key, count] = then
            # Settle puts it into the index before its time has come.
            self.pass_to(world, world.instant + SECOND)

    def death(self, world: World, number: int, window: int) -> None:
        """The process dies behind a step, if it comes to it, and another policy is set before it starts again."""
        kill_after(DEATHS[number])(world)
        self.pass_to(world, world.instant + SECOND)
        world.fatal = None
        self.policy(world, window, 0)
        self.put_back(world.instant)
        restart()(world)

    def act(self, world: World, act: tuple[str, int, int]) -> None:
        """Do one thing."""
        name, number, more = act
        if name == "pass":
            self.pass_to(world, world.instant + number * MINUTE)
        else:
            getattr(self, name)(world, number, more)


@settings(max_examples=8, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(st.lists(sends | policies | nacks | shifts | passes | passes | deaths, min_size=4, max_size=12))
def test_each_message_comes_once_at_the_time_that_was_decided(acts: list[tuple[str, int, int]]) -> None:
    """Whatever fails, moves, dies and is set."""
    life = Life()

    def lived(world: World) -> None:
        life.policy(world, 0, 0)
        life.pass_to(world, T0)
        life.send(world, 0, 0)
        for act in acts:
            life.act(world, act)
        for days in range(1, 12):
            if days < 4:
                life.nack(world, 700, 0)
            life.pass_to(world, world.instant + days * DAY)

    world = play_here([acknowledging("t", "s"), check(lived)], Settings(express_ms=4 * SECOND))
    came = [
        (row["message_key"], row["redelivery_count"], round(row["due_time"].timestamp() * 1_000))
        for row in world.rows(DELIVERIES)
    ]
    assert sorted(came) == sorted((key, count, due) for (key, count), due in life.due.items())
    world.sound()
