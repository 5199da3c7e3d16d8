"""Topics on which no two messages with one key wait, under the stages: whatever dies, is set, cancelled and restarted.

After each act all who tell what waits tell the same.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from pipeline.client.commanding.commands import cancel
from pipeline.client.insight.counting import opened
from pipeline.client.insight.dueload import due_loads
from pipeline.client.insight.pending import pending
from pipeline.client.insight.pendingfollower import PendingFollower
from pipeline.client.insight.pendingrows import pending_rows
from pipeline.client.insight.trace import trace
from pipeline.client.subscribing.policysetting import set_policy
from pipeline.config.settings import Settings
from schemas import DELIVERIES, REJECTED_INGEST
from state.unique import Mode
from tests.support.stream import World, advance, append, check, kill_after, message, restart, subscribe
from tests.support.worlds import play_here

# Behind any wall clock, by which commands count.
T0 = 2_000_000_000_000
SECOND, MINUTE = 1_000, 60_000
EXAMPLES = max(1, settings().max_examples // 25)
EXPRESS, LONGEST = 4 * SECOND, 10 * MINUTE
KEYS = ("a", "b", "c", None)
MODES = (None, *Mode)
DEATHS = (
    "ingest.messages", "ingest.replaced", "ingest.rejected_ingest", "ingest.segments", "dispatch.rejected_dispatch",
    "dispatch.noted",
)  # fmt: skip

# What goes express is with dispatch at once, and no cancel would be in time.
delays = st.just(0) | st.integers(5, 900)
sends = st.tuples(st.just("send"), st.integers(0, len(KEYS) - 1), delays)
modes = st.tuples(st.just("mode"), st.integers(0, len(MODES) - 1), st.just(0))
passes = st.tuples(st.just("pass"), st.integers(0, 400), st.just(0))
cancels = st.tuples(st.just("cancel"), st.integers(0, 2), st.just(0))
deaths = st.tuples(st.just("death"), st.integers(0, len(DEATHS) - 1), st.integers(0, len(MODES) - 1))
restarts = st.tuples(st.just("restart"), st.just(0), st.just(0))


@dataclass
class Message:
    """A message as the model knows it."""

    name: str
    key: str | None
    due: int
    latest: int


@dataclass
class Life:
    """What the model knows: what waits, and what came."""

    mode: Mode | None = None
    waiting: list[Message] = field(default_factory=list)
    sent: list[tuple[str, str | None, int]] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    came: list[str] = field(default_factory=list)
    count: int = 0
    root: str = ""

    @cached_property
    def follower(self) -> PendingFollower:
        """Somebody who looks after each act."""
        return PendingFollower(self.root)

    def take(self, now: int) -> None:
        """Ingest takes what was sent, one after the other; then what is due comes."""
        taken = now + EXPRESS
        for name, key, after in self.sent:
            new = Message(name, key, now + after, max(now + after, now + LONGEST))
            own = [each for each in self.waiting if key is not None and each.key == key]
            if self.mode == Mode.DROP and any(each.due > now for each in own):
                self.refused.append(name)
                continue
            own = [each for each in own if each.due > taken] if self.mode in (Mode.REPLACE, Mode.EXTEND) else []
            if self.mode == Mode.EXTEND and own:
                new.latest = min(each.latest for each in own)
                new.due = min(new.due, new.latest)
            self.waiting = [each for each in self.waiting if each not in own] + [new]
        self.sent = []
        self.came += [each.name for each in self.waiting if each.due <= now]
        self.waiting = [each for each in self.waiting if each.due > now]

    def act(self, world: World, act: tuple[str, int, int]) -> None:
        """Do one thing."""
        name, number, more = act
        match name:
            case "send":
                self.send(world, KEYS[number], more * SECOND)
            case "mode":
                self.set(world, MODES[number])
            case "pass":
                self.take(world.instant + number * SECOND)
                advance(world.instant + number * SECOND)(world)
            case "cancel":
                cancel(world.warehouse.root, "t", key=KEYS[number])
                self.waiting = [each for each in self.waiting if each.key != KEYS[number]]
            case "restart":
                # What was sent is taken before the clock moves.
                self.take(world.instant)
                restart()(world)
            case _:
                self.die(world, DEATHS[number], MODES[more])
        if name == "pass":
            agree(world, self)

    def send(self, world: World, key: str | None, after: int) -> None:
        """A message is sent."""
        self.count += 1
        self.sent.append((str(self.count), key, after))
        append({**message(str(self.count), after=after), "message_key": key})(world)

    def set(self, world: World, mode: Mode | None) -> None:
        """The topic has another policy; what waits stays."""
        longest: dict[str, Any] = {"unique_max_wait_ms": LONGEST} if mode == Mode.EXTEND else {}
        set_policy(world.warehouse.root, "t", unique=mode, **longest)
        self.mode = mode

    def die(self, world: World, step: str, mode: Mode | None) -> None:
        """The process dies behind a step, if it comes to it, and another policy is set before it starts again."""
        kill_after(step)(world)
        self.take(world.instant + SECOND)
        advance(world.instant + SECOND)(world)
        world.fatal = None
        self.set(world, mode)
        restart()(world)


def agree(world: World, life: Life) -> None:
    """All who tell what waits tell the same, and it is so."""
    root = world.warehouse.root
    rows = pending_rows(root, "t", payload=True)
    due = (round(at.timestamp() * 1_000) for at in rows["due_time"].to_pylist())
    names = dict(zip((text.decode() for text in rows["payload"].to_pylist()), due, strict=True))
    assert names == {each.name: each.due for each in life.waiting}
    # What goes express counts as published so much later, by a clock that is turned.
    then = pending(root, as_of=world.instant + EXPRESS)
    backlogs = pending(root).backlogs, then.backlogs, life.follower.look().backlogs
    assert [sum(each.count for each in told) for told in backlogs] == [len(names)] * len(backlogs)
    told = [state.state for key in "abc" for each in trace(root, "t", key=key, limit=100) for state in each.states]
    assert Counter(told)["waits"] == sum(each.key is not None for each in life.waiting)
    (load,) = due_loads(opened(root, (None, None), None), {("t", "s"): 1}, world.instant + 3_600 * SECOND, 1).values()
    assert load.counts.sum() == len(names)


@settings(max_examples=EXAMPLES, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(st.lists(sends | sends | modes | passes | passes | cancels | deaths | restarts, min_size=5, max_size=14))
def test_each_message_comes_once_or_says_why_not(acts: list[tuple[str, int, int]]) -> None:
    """Whatever is sent, set, cancelled and dies."""
    life = Life()

    def lived(world: World) -> None:
        life.root = world.warehouse.root
        life.act(world, ("pass", 0, 0))
        life.act(world, ("mode", 1, 0))
        for act in acts:
            life.act(world, act)
        life.act(world, ("pass", 3_600, 0))
        assert sorted(row["payload"].decode() for row in world.rows(DELIVERIES)) == sorted(life.came)
        assert sorted(row["payload"].decode() for row in world.rows(REJECTED_INGEST)) == sorted(life.refused)
        world.sound()

    play_here([subscribe("t", "s"), advance(T0), check(lived)], Settings(express_ms=EXPRESS))
