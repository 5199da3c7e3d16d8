"""Turns beside all else that holds: rates, pauses, hours, times to live, guards, priorities, cancels, deaths.

The stages are the real ones, without a JVM. Each message comes once or is left out for a reason, when it may; those of
a tenant come as they are due; and of tenants who wait none has more than its share.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp

import pytest
from hypothesis import Phase, event, example, given, settings
from hypothesis import strategies as st

pytest.importorskip("pyspark", reason="the stages are made for sessions of Spark")
pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")

from pipeline.client.commanding.commands import cancel
from pipeline.client.subscribing.policysetting import set_policy
from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from pipeline.config.errors import BadValue
from pipeline.config.settings import Settings
from pipeline.config.stages import DISPATCH
from pipeline.delta.deltars import open_table, query
from pipeline.subscriptions.policies import Policies
from schemas import DELIVERIES, REJECTED_DISPATCH
from tests.support.stages import Stages
from tests.support.stream import message

# 03:33:20 in UTC.
T0, SECOND = 2_000_000_000_000, 1_000
HOURS = ("03:34-03:35,03:36-04:00", "00:00-03:34,03:35-03:37,03:38-23:00")
TENANTS, WEIGHTS = "abc", {"a": 1, "b": 2, "c": 1}
DEATHS = ("counted", "written", "rejected_dispatch", "shelved", "held", "noted", "deliveries")
OLD = -60
"""Seconds before it is sent a message was due that is late already; where there is a time to live it has expired."""
GUARD = "message_key NOT LIKE '%3'"
_CAME = "SELECT message_key, due_time, released_at, batch_id, sequence FROM t ORDER BY batch_id, sequence"
_LEFT_OUT = "SELECT ledger_id, entry_id, reason FROM t"

sends = st.tuples(
    st.just("send"), st.sampled_from(TENANTS), st.sampled_from((1, 5, 30)), st.sampled_from((0, 1, 9, OLD))
)
passes = st.tuples(st.just("pass"), st.integers(1, 8), st.just(0), st.just(0))
others = st.tuples(
    st.sampled_from(("pause", "resume", "cancel", "restart", "death", "weights")),
    st.sampled_from(DEATHS),
    st.integers(0, 40),
    st.just(0),
)
Act = tuple[str, int | str, int, int]


@dataclass(frozen=True)
class Drawn:
    """What the subscription asks for, and what happens."""

    rate: int | None
    hours: str | None
    ttl_ms: int | None
    priority: str | None
    guard: str | None
    acts: list[Act]

    @property
    def policies(self) -> Policies:
        """With turns by tenant."""
        asked = {"open": self.hours, "ttl_ms": self.ttl_ms, "priority": self.priority, "guard": self.guard}
        weights = "b=2"
        return Policies(max_rate=self.rate, fair_by="property:tenant", fair_weights=weights, **asked)  # type: ignore[arg-type]


drawn = st.builds(
    Drawn,
    st.sampled_from((None, 2, 5, 5)),
    st.sampled_from((None, None, *HOURS)),
    st.sampled_from((None, None, 30_000)),
    st.sampled_from((None, None, "urgency")),
    st.sampled_from((None, None, None, GUARD)),
    st.lists(sends | passes | others, min_size=6, max_size=25),
)


class Life:
    """A warehouse and what is known of it: when messages are due, what has come until when, and what may not come."""

    def __init__(self, root: str, script: Drawn) -> None:
        """Subscribe, and let a second pass."""
        self.script, self.stages = script, Stages(root, Settings(rows_per_task=16))
        policies = script.policies
        subscribe(self.stages.root, Subscription("t", "s", tick_ms=1, policies=policies))
        self.hours, self.paused = policies.hours, False
        self.due, self.came = dict[str, int](), list[str]()
        self.history = list[tuple[int, dict[str, int], Counter[str]]]()
        self.instant = T0
        self.work(0)

    def work(self, seconds: int) -> None:
        """Time passes second by second; nothing comes that may not."""
        for _ in range(max(1, seconds)):
            self.instant += SECOND if seconds else 1
            self.stages.instant = self.instant
            self.stages.work()
            self.look()

    def look(self) -> None:
        """What has come is due, and may come."""
        rows = query(_CAME, t=open_table(self.stages.root, DELIVERIES))
        came = [row["message_key"] for row in rows]
        assert came[: len(self.came)] == self.came
        fresh, closed = came[len(self.came) :], self.hours is not None and self.hours.closed_until(self.instant)
        assert not fresh or not (self.paused or closed)
        assert all(self.due[each] <= self.instant for each in fresh)
        self.came = came
        tenants = Counter(each[0] for each in came)
        self.history.append((self.instant, dict(self.due), tenants))

    def act(self, act: Act) -> None:
        """Do one thing."""
        name, word, number, after = act
        match name:
            case "send":
                self.send(str(word), number, after)
            case "pass":
                self.work(int(word))
            case "pause" | "resume":
                self.paused = name == "pause"
                set_policy(self.stages.root, "t", "s", paused=self.paused)
            case "cancel":
                self.cancel(number)
            case "weights":
                set_policy(self.stages.root, "t", "s", fair_weights="b=2, c=1" if number % 2 else "b=2")
            case "restart":
                self.stages.restart(DISPATCH)
            case _:
                self.stages.die_after(f"dispatch.{word}")

    def send(self, tenant: str, count: int, after: int) -> None:
        """Messages of a tenant, which are due at once, or some seconds later, or have expired already."""
        after, rows = after if after >= 0 or self.script.ttl_ms is not None else 0, []
        for _ in range(count):
            key = f"{tenant}{len(self.due)}"
            self.due[key] = self.instant + 1 + after * SECOND
            properties = [("tenant", tenant), ("urgency", str(len(self.due) % 3))]
            row = message(key, deliver_at=self.due[key], published=self.due[key] if after < 0 else None)
            rows.append({**row, "message_key": key, "properties": properties})
        self.stages.ingest(*rows)

    def cancel(self, number: int) -> None:
        """Some are cancelled, if they still can be."""
        try:
            cancel(self.stages.root, "t", "s", where=f"message_key LIKE '%{number % 10}'")
        except BadValue:
            event("nothing to cancel")

    def end(self) -> None:
        """All that holds ends, and all comes."""
        self.stages.die_after(None)
        self.paused, self.hours = False, None
        set_policy(self.stages.root, "t", "s", paused=False, open=None, max_rate=None)
        self.work(12)
        left = query(_LEFT_OUT, t=open_table(self.stages.root, REJECTED_DISPATCH))
        assert {row["reason"] for row in left} <= {"cancelled", "expired", "suppressed"}
        places = Counter((row["ledger_id"], row["entry_id"]) for row in left)
        assert set(places.values()) <= {1}
        assert len(set(self.came)) == len(self.came)
        assert len(self.came) + len(left) == len(self.due)


def check_order(life: Life) -> None:
    """A tenant's messages come as they are due, unless they have priorities."""
    for tenant in TENANTS if life.script.priority is None else "":
        due = [life.due[each] for each in life.came if each[0] == tenant]
        assert due == sorted(due)


def waits(tenant: str, begin: int, came: Counter[str], due: Mapping[str, int]) -> bool:
    """Whether something of a tenant was due at a time and has not come; what is left out counts for nobody."""
    return sum(each[0] == tenant and at <= begin for each, at in due.items()) > came[tenant]


def check_shares(life: Life) -> None:
    """Of two tenants who wait from one look to another one neither gets more than its share, but for a turn.

    Only with a rate, which says how many come, and where nothing is left out: that waits for nothing.
    """
    for place, (begin, due, before) in enumerate(life.history):
        for _, _, came in life.history[place + 1 :]:
            there = {each for each in TENANTS if waits(each, begin, came, due)}
            counts = [(came[each] - before[each]) / WEIGHTS[each] for each in sorted(there)]
            assert not counts or max(counts) - min(counts) <= 2


OVER: list[Act] = [
    ("send", "a", 30, 0),
    ("pass", 2, 0, 0),
    ("pause", "held", 0, 0),
    *[("pass", 8, 0, 0)] * 3,
    ("pass", 7, 0, 0),
]
OVER += [("death", "rejected_dispatch", 0, 0), ("send", "b", 5, OLD), ("pass", 6, 0, 0)]
"""What is held expires with what has just come; dispatch dies when it has said the one, and knows no values then."""


@settings(max_examples=max(1, settings().max_examples // 32), deadline=None, phases=[Phase.explicit, Phase.generate])
@example(Drawn(2, None, 30_000, None, None, OVER))
@given(drawn)
def test_whatever_holds_each_message_comes_once_when_it_may_and_nobody_has_more_than_its_share(script: Drawn) -> None:
    """Whatever dies, is cancelled and is set meanwhile."""
    folder = mkdtemp()
    try:
        life = Life(f"{folder}/warehouse", script)
        for act in script.acts:
            life.act(act)
        check_order(life)
        names = {name for name, *_ in script.acts}
        if script.rate and script.ttl_ms is None and script.guard is None and "cancel" not in names:
            check_shares(life)
        life.end()
    finally:
        rmtree(Path(folder))
