"""Topics on which no two messages with one key wait, under the stages: whatever dies, is set, commanded and forgotten.

After each act all who tell what waits tell the same.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from typing import Any

from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from pipeline.client.commanding.commands import cancel, shift, undo
from pipeline.client.insight.counting import opened
from pipeline.client.insight.dueload import due_loads
from pipeline.client.insight.pending import pending
from pipeline.client.insight.pendingfollower import PendingFollower
from pipeline.client.insight.pendingrows import pending_rows
from pipeline.client.insight.trace import trace
from pipeline.client.message import MessageId
from pipeline.client.subscribing.policysetting import set_policy
from pipeline.client.subscribing.seeking import begin_anew
from pipeline.config.settings import Settings
from pipeline.delta.deltars import instant
from pipeline.subscriptions.records import REPLACES
from schemas import DELIVERIES, REJECTED_INGEST
from state.unique import Mode
from tests.support.consuming import acknowledging
from tests.support.maintained import sharply
from tests.support.stream import World, advance, append, check, kill_after, message, restart, subscribe, unsubscribe
from tests.support.unique_model import Keys
from tests.support.worlds import play_here

# Behind any wall clock, by which commands count.
T0 = 2_000_000_000_000
SECOND, MINUTE = 1_000, 60_000
EXAMPLES = max(1, settings().max_examples // 50)
# Nothing is due at the very end of what goes express.
EXPRESS, LONGEST = 4 * SECOND, 10 * MINUTE + 500
KEYS = ("a", "b", "c", None)
MODES = (None, *Mode)
DEATHS = (
    "ingest.messages", "ingest.replaced", "ingest.rejected_ingest", "ingest.segments", "dispatch.rejected_dispatch",
    "dispatch.noted",
)  # fmt: skip
Act = tuple[str, int, int]

# What goes express is with dispatch at once, and no cancel would be in time.
delays = st.just(0) | st.integers(5, 900) | st.integers(5_000, 9_000)
keys = st.integers(0, len(KEYS) - 2)
sends = st.tuples(st.just("send"), st.integers(0, len(KEYS) - 1), delays)
asks = st.tuples(st.just("ask"), keys, delays)
modes = st.tuples(st.just("mode"), st.integers(0, len(MODES) - 1), st.just(0))
passes = st.tuples(st.just("pass"), st.integers(0, 400) | st.integers(2_000, 3_000), st.just(0))
cancels = st.tuples(st.sampled_from(("cancel", "cancel for one")), keys, st.just(0))
shifts = st.tuples(st.just("shift"), keys, st.integers(-9_000, -1) | st.integers(1, 900))
deaths = st.tuples(st.just("death"), st.integers(0, len(DEATHS) - 1), st.integers(0, len(MODES) - 1))
late = st.tuples(st.just("death and cancel"), st.integers(0, len(DEATHS) - 1), keys)
races = st.tuples(st.just("race"), keys, st.integers(1, 9_000))
others = st.tuples(st.sampled_from(("restart", "undo", "join", "leave", "clear", "maintain")), st.just(0), st.just(0))
acts = sends | sends | sends | asks | modes | passes | passes | cancels | shifts | races | deaths | late | others


@dataclass
class Life:
    """A warehouse, and what is known of it; `for_letters`: its topic is one of dead letters; `keeps` all messages."""

    world: World
    for_letters: bool = False
    keys: Keys = field(default_factory=lambda: Keys(LONGEST, EXPRESS))
    count: int = 0
    shown: dict[tuple[int, int], tuple[str, str]] = field(default_factory=dict)
    keeps: bool = True

    @property
    def root(self) -> str:
        """The warehouse."""
        return self.world.warehouse.root

    @cached_property
    def follower(self) -> PendingFollower:
        """Somebody who looks after each act."""
        return PendingFollower(self.root)

    def act(self, act: Act) -> None:
        """Do one thing."""
        name, number, more = act
        match name:
            case "send" | "ask":
                self.send(KEYS[number], more * SECOND, asks=name == "ask")
            case "mode":
                self.set(MODES[number])
            case "pass":
                self.go_on(number)
                agree(self)
            case "cancel" | "cancel for one":
                self.command(KEYS[number] or "", "s" if name != "cancel" else None)
            case "shift" | "race":
                self.put_off(KEYS[number] or "", more * SECOND, raced=name == "race")
            case "undo":
                self.undo()
            case "death":
                self.die(DEATHS[number], mode=MODES[more])
            case "death and cancel":
                self.die(DEATHS[number], cancels=KEYS[more])
            case "restart" | "maintain":
                self.operate(name)
            case _:
                self.listen(name)

    def go_on(self, seconds: int) -> None:
        """Time passes; twice, so that what got another due time comes, too."""
        self.keys.take(self.world.instant + seconds * SECOND)
        advance(self.world.instant + seconds * SECOND)(self.world)
        advance(self.world.instant)(self.world)
        self.look()

    def operate(self, what: str) -> None:
        """The job starts again, or maintenance takes out what is old."""
        if what == "restart":
            # What was sent is taken before the clock moves.
            self.keys.take(self.world.instant)
            restart()(self.world)
        else:
            sharply(self.world.warehouse, 10 * MINUTE, deliveries_ms=10 * MINUTE)
            # Rows of old commands go, too.
            self.keys.given, self.keeps = None, self.for_letters

    def look(self) -> None:
        """See what has come."""
        rows = self.world.rows(DELIVERIES)
        self.shown |= {
            (row["batch_id"], row["sequence"]): (row["subscription"], row["payload"].decode()) for row in rows
        }

    def send(self, key: str | None, after: int, *, asks: bool = False) -> None:
        """A message is sent, which may ask to replace others."""
        self.count += 1
        self.keys.sent.append((str(self.count), key, after, asks))
        properties = [(REPLACES, key)] if asks else []
        append({**message(str(self.count), after=after), "message_key": key, "properties": properties})(self.world)

    def set(self, mode: Mode | None) -> None:
        """The topic has another policy; what waits stays."""
        longest: dict[str, Any] = {"unique_max_wait_ms": LONGEST} if mode == Mode.EXTEND else {}
        set_policy(self.root, "t", unique=mode, **longest)
        self.keys.mode = mode

    def command(self, key: str, who: str | None, span: int | None = None) -> None:
        """What waits with a key is cancelled or moved, unless dispatch has some of it."""
        if named := self.keys.named(key, who):
            if span is None:
                command = cancel(self.root, "t", who, key=key)
            else:
                command = shift(self.root, "t", who, span=timedelta(milliseconds=span), key=key)
            assert command.selection.count == len(named)
            self.keys.command(command.command_id or "", span, named)

    def put_off(self, key: str, span: int, *, raced: bool) -> None:
        """What waits with a key is due later, or earlier, unless dispatch has some of it."""
        if raced:
            self.race(key, span)
        else:
            self.command(key, None, span)

    def race(self, key: str, span: int) -> None:
        """What waits is put off by somebody who does not know yet that ingest has just replaced it."""
        begun, named = self.world.instant + SECOND, self.keys.named(key, None)
        if not named or any(at <= begun + EXPRESS for _, _, at in named):
            return

        def moves() -> None:
            where = f"message_key = '{key}' AND publish_time < {instant(begun)}"
            command = shift(self.root, "t", span=timedelta(milliseconds=span), where=where)
            assert command.selection.count == len(named)
            self.keys.command(command.command_id or "", span, named)

        self.send(key, 400)
        self.keys.take(begun)
        self.world.meanwhile["ingest.messages"] = moves
        advance(begun)(self.world)
        self.world.meanwhile.clear()
        self.look()

    def join_late(self) -> None:
        """Somebody joins who is sent all that `messages` has: what newer messages replaced is not among it."""
        restart()(self.world)
        subscribe("t", "late", start="earliest")(self.world)
        advance(self.world.instant + SECOND)(self.world)
        advance(self.world.instant)(self.world)
        self.look()
        came = Counter(name for who, name in self.shown.values() if who == "late")
        now = self.world.instant
        sent = Counter(each.name for each in self.keys.messages if not each.replaced and each.due <= now)
        assert came == sent if self.keeps else came <= sent

    def undo(self) -> None:
        """The last command is taken back."""
        if self.keys.given is not None:
            undo(self.root, self.keys.given.command_id)
            self.keys.undo(self.world.instant)

    def listen(self, what: str) -> None:
        """A subscription joins or leaves; or one begins anew with what comes next."""
        self.go_on(1)
        if what == "clear":
            begin_anew(self.root, "t", "s", MessageId.latest)
            self.keys.leave("s")
        elif what == "join" and "u" not in self.keys.listeners:
            subscribe("t", "u")(self.world)
            self.keys.listeners.add("u")
        elif what == "leave" and "u" in self.keys.listeners:
            unsubscribe("t", "u")(self.world)
            self.keys.listeners.discard("u")
            self.keys.leave("u")
        self.go_on(1)

    def die(self, step: str, mode: Mode | None = None, cancels: str | None = None) -> None:
        """The process dies behind a step, if it comes to it; a policy is set, or a command given, before it is back."""
        begun = self.world.instant + SECOND
        kill_after(step)(self.world)
        before = [(each, set(each.came)) for each in self.keys.messages if each.key == cancels]
        self.keys.take(begun)
        advance(begun)(self.world)
        is_dead, self.world.fatal = self.world.dead, None
        if cancels is None:
            self.set(mode)
        elif is_dead and all(each.came == had for each, had in before):
            self.cancel_dead(cancels, begun)
        restart()(self.world)
        self.go_on(0)

    def cancel_dead(self, key: str, begun: int) -> None:
        """Cancel what was there before the batch that died. It may not be known yet that something is replaced."""
        named = [each for each in self.keys.named(key, None) or () if each[0].sent_at < begun]
        command = cancel(self.root, "t", where=f"message_key = '{key}' AND publish_time < {instant(begun)}")
        if command.command_id is not None:
            self.keys.command(command.command_id, None, named)


def agree(life: Life) -> None:
    """All who tell what waits tell the same, and it is so."""
    root, keys, now = life.root, life.keys, life.world.instant
    rows = pending_rows(root, "t", "s", payload=True)
    due = (round(at.timestamp() * 1_000) for at in rows["due_time"].to_pylist())
    names = dict(zip((text.decode() for text in rows["payload"].to_pylist()), due, strict=True))
    assert names == keys.pending("s")
    counts = {who: len(keys.pending(who)) for who in keys.listeners}
    # What goes express counts as published so much later, by a clock that is turned.
    then = pending(root, as_of=now + EXPRESS)
    for backlogs in (pending(root).backlogs, then.backlogs, life.follower.look().backlogs):
        assert {each.subscription: each.count for each in backlogs if each.count} == {
            who: count for who, count in counts.items() if count
        }
    told = [state.state for key in "abc" for each in trace(root, "t", key=key, limit=100) for state in each.states]
    assert Counter(told)["waits"] == sum(
        each.key is not None and each.open_to(who) for each in keys.messages for who in counts
    )
    ticks = {("t", who): 1 for who in counts} | {("x", "fails"): 1}
    loads = due_loads(opened(root, (None, None), None), ticks, now + 36_000 * SECOND, 1)
    assert {who: loads["t", who].counts.sum() for who in counts} == counts


MOVED: list[Act] = [("send", 0, 9_000), ("pass", 1, 0), ("shift", 0, -8_800), ("send", 0, 8_900), ("pass", 1, 0)]
MOVED += [("send", 3, 0), ("pass", 2_000, 0), ("maintain", 0, 0), ("restart", 0, 0), ("send", 1, 100), ("pass", 1, 0)]
"""What a command moved before it was replaced stays so when maintenance has been there."""
LATER: list[Act] = [("mode", 3, 0), ("send", 0, 600), ("join", 0, 0), ("cancel", 0, 0), ("send", 0, 300)]
LATER += [("send", 1, 600), ("clear", 0, 0), ("send", 1, 300), ("pass", 1, 0)]
"""For what nobody is to get no newer one is refused."""
RACED: list[Act] = [("send", 0, 1_000), ("pass", 1, 0), ("race", 0, 9_000), ("pass", 2_500, 0), ("send", 3, 0)]
RACED += [("pass", 2_000, 0), ("maintain", 0, 0), ("restart", 0, 0), ("pass", 0, 0)]
"""What is replaced comes to nobody, though a command has put it off beyond what maintenance takes out."""
BOUND: list[Act] = [("mode", 2, 0), ("send", 0, 500), ("pass", 400, 0), ("send", 0, 900), ("send", 0, 800)]
BOUND += [("send", 2, 300), ("death and cancel", 0, 0), ("pass", 100, 0)]
"""A command between a death and the start changes no positions."""


@settings(max_examples=EXAMPLES, deadline=None, phases=[Phase.explicit, Phase.generate])
@example(given_acts=MOVED, for_letters=False)
@example(given_acts=LATER, for_letters=False)
@example(given_acts=RACED, for_letters=True)
@example(given_acts=BOUND, for_letters=False)
@given(given_acts=st.lists(acts, min_size=5, max_size=16), for_letters=st.booleans())
def test_each_message_comes_once_or_says_why_not(given_acts: list[Act], *, for_letters: bool) -> None:
    """Whatever is sent, set, commanded, forgotten and dies; messages stay long on a topic of dead letters."""

    def lived(world: World) -> None:
        life = Life(world, for_letters)
        life.act(("pass", 0, 0))
        life.act(("mode", 1, 0))
        for act in given_acts:
            life.act(act)
        life.act(("pass", 36_000, 0))
        assert sorted(life.shown.values()) == life.keys.came
        life.join_late()
        assert sorted(row["payload"].decode() for row in world.rows(REJECTED_INGEST)) == sorted(life.keys.refused)
        world.sound()

    failing = [acknowledging("x", "fails", max_redeliveries=1, dead_letter_topic="t")] if for_letters else []
    play_here([subscribe("t", "s"), *failing, advance(T0), check(lived)], Settings(express_ms=EXPRESS))
