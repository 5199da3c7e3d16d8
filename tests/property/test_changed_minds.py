"""Commands, consumers, operators, due times and deaths against a plain model, on the stages as they are.

Ingest, dispatch, settle and the client are the real ones, without a JVM (`tests.support.stages`); they do batches,
and die, in any order. The model holds for each message and subscription what commands said, and says what a batch of
dispatch makes of each release that it finds. At the end each message was delivered in exactly one round, the last one
that it got in time, or it was cancelled, or a guard suppressed it, and `outcomes` says the same of each command.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule, run_state_machine_as_test

pytest.importorskip("pyspark", reason="the stages are made for sessions of Spark")
pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")

from deltalake import write_deltalake

from pipeline.client.commanding import commands as client
from pipeline.client.commanding.commands import Command, write
from pipeline.client.commanding.inforce import Named
from pipeline.client.commanding.outcomes import outcomes
from pipeline.client.insight.pendingfollower import PendingFollower
from pipeline.client.subscribing.policysetting import set_policy
from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from pipeline.config.settings import Settings
from pipeline.config.wallclock import wall_ms
from pipeline.delta.deltars import append, open_table, rows_of
from pipeline.subscriptions.policies import Policies
from schemas import (
    CANCELLED,
    COMMANDS,
    CONSUMER_EVENTS,
    DELIVERIES,
    HELD,
    MESSAGES,
    REJECTED_DISPATCH,
    RESCHEDULED,
    SUPPRESSED,
    Table,
)
from tests.support.changed_minds import (
    DECIDED,
    OF_DISPATCH,
    OF_INGEST,
    OF_SETTLE,
    Fate,
    Given,
    Place,
    Release,
    counted,
    figures,
    listed,
    ms,
    places,
    released,
    where,
)
from tests.support.examined import sound
from tests.support.operators import Operators
from tests.support.stages import Stages
from tests.support.stream import at, message

T0 = 2_000_000_000_000
"""Behind any wall clock, by which a release is due."""
SECOND = 1_000
KEYS = st.sets(st.integers(0, 5), min_size=1)
NAMES = ("plain", "s", "asks")
"""One acknowledges, one has a guard."""
UNPAID = "NOT EXISTS (SELECT 1 FROM paid WHERE paid.key = message_key)"
LEFT_OUT = (CANCELLED, SUPPRESSED)
"""Dispatch said so, and it is seen at once."""
MOST = 8
"""Messages."""


class Minds(Operators):
    """Users, consumers, operators, a clock, three stages, and what kills them."""

    MODEL = ("keys", "fates", "given", "paused", "paid", "said", "held", "delivered", "left_out", "decided", "put")

    @initialize(delays=st.lists(st.integers(0, 40), min_size=3, max_size=6), horizon=st.sampled_from([0, 86_400_000]))
    def begin(self, delays: list[int], horizon: int) -> None:
        """Messages wait for a subscription that acknowledges, and for one that does not."""
        self.folder = mkdtemp()
        self.stages = Stages(f"{self.folder}/warehouse", Settings(horizon_ms=horizon))
        self.root, self.followed = self.stages.root, PendingFollower(self.stages.root)
        self.table = f"{self.root}/guard_tables/paid"
        self.shorten_logs()
        write_deltalake(self.table, pa.table({"key": pa.array([], pa.string())}))
        guard = Policies(guard=UNPAID, guard_tables=json.dumps({"paid": self.table}))
        for name, policies in zip(NAMES, (Policies(), Policies(ack=True), guard), strict=True):
            subscribe(self.root, Subscription("t", name, tick_ms=1, policies=policies))
        self.keys: dict[tuple[int, int], str] = {}
        self.fates: dict[Place, Fate] = {}
        self.given: dict[str, Given] = {}
        self.paused: set[str] = set()
        self.paid: set[str] = set()
        self.said: dict[Place, str] = {}
        self.held, self.delivered, self.left_out = list[Release](), list[Release](), list[tuple[Release, str]]()
        self.decided = False
        """The batch of dispatch that died was decided."""
        self.put = set[int]()
        """The instants at which settle may have put something into the index."""
        self.stages.instant = T0
        assert self.stages.ingest()
        self.send(delays)

    @rule(delays=st.lists(st.integers(0, 90), min_size=1, max_size=2), death=st.none() | st.sampled_from(OF_INGEST))
    def send(self, delays: list[int], death: str | None = None) -> None:
        """Messages come in, and wait for so many seconds."""
        after = {str(len(self.keys) + number): seconds * SECOND for number, seconds in enumerate(delays)}
        if len(self.keys) + len(after) > MOST:
            return
        self.take_in(death, *({**message(key, after=each), "message_key": key} for key, each in after.items()))
        for row in self.rows(MESSAGES):
            entry = row["ledger_id"], row["entry_id"]
            if entry not in self.keys:
                self.keys[entry] = row["message_key"]
                due = self.stages.instant + after[row["message_key"]]
                self.fates |= {Place(name, entry, 0): Fate(0, {0: due}) for name in NAMES}

    def take_in(self, death: str | None, *rows: dict[str, Any]) -> None:
        """A batch of ingest, which may die in it, and is done again then."""
        self.stages.die_after(death)
        done = self.stages.ingest(*rows)
        self.stages.die_after(None)
        assert done or self.stages.ingest()

    @rule(seconds=st.integers(0, 30), death=st.none() | st.sampled_from(OF_INGEST))
    def tick(self, seconds: int, death: str | None = None) -> None:
        """Time goes on: ingest loads, the schedule releases."""
        self.stages.instant += seconds * SECOND
        self.take_in(death)
        assert self.stages.release()

    @rule(death=st.none() | st.sampled_from(OF_DISPATCH))
    def dispatch(self, death: str | None = None) -> None:
        """A batch of dispatch, which may die in it; the next one does it again."""
        if not self.stages.has_dispatch:
            return
        self.stages.die_after(death)
        done = self.stages.dispatch()
        self.stages.die_after(None)
        if not self.decided and (done or DECIDED & set(self.stages.steps)):
            self.decide()
            self.decided = True
        if done:
            self.decided = False
            self.look()

    @rule(death=st.none() | st.sampled_from(OF_SETTLE))
    def settle(self, death: str | None = None) -> None:
        """Settle does all that there is to do, or dies in it."""
        self.put.add(self.stages.instant)
        self.stages.die_after(death)
        self.stages.settle()
        self.stages.die_after(None)

    @rule(stage=st.sampled_from(["ingest", "dispatch", "settle"]))
    def restart(self, stage: str) -> None:
        """A stage begins anew."""
        self.stages.restart(stage)

    @rule(name=st.sampled_from(NAMES))
    def pause_or_resume(self, name: str) -> None:
        """One subscription is held, or goes on."""
        self.paused ^= {name}
        assert set_policy(self.root, "t", name, paused=name in self.paused)

    @rule(paid=st.sets(st.integers(0, 7)))
    def pay(self, paid: set[int]) -> None:
        """Others pay, or take that back: what is paid meets the guard no more."""
        self.paid = {str(each) for each in paid}
        write_deltalake(self.table, pa.table({"key": pa.array(sorted(self.paid), pa.string())}), mode="overwrite")

    @rule(number=st.integers(0, 99), ack=st.booleans())
    def consume(self, number: int, *, ack: bool) -> None:
        """A consumer settles a delivery, or lets it fail, at most twice."""
        shown = sorted(each for each in self.shown() if each.name == "s" and each not in self.said)
        if not shown:
            return
        of = shown[number % len(shown)]
        kind = "ack" if ack or of.failed > 1 else "nack"
        ledger, entry = of.entry
        event = {"kind": kind, "topic": "t", "subscription": "s", "life": 1, "ledger_id": ledger, "first_entry": entry}
        event |= {"last_entry": entry, "redelivery_count": of.failed, "at": at(0)}
        event |= {"after_ms": 7 * SECOND} if kind == "nack" else {}
        append(self.root, CONSUMER_EVENTS, rows_of(CONSUMER_EVENTS, [event]))
        self.said[of] = kind

    @rule(keys=KEYS, name=st.none() | st.sampled_from(NAMES))
    def look_at_rows(self, keys: set[int], name: str | None) -> None:
        """The rows of what waits for its first delivery are those of the model."""
        assert listed(self.followed, keys, name) == self.pending(keys, name)

    @rule(keys=KEYS, name=st.none() | st.sampled_from(NAMES))
    def cancel(self, keys: set[int], name: str | None) -> None:
        """Somebody cancels."""
        wanted = self.pending(keys, name)
        command = client.cancel(self.root, "t", name, where=where(keys))
        self.follow(command, dict.fromkeys(wanted))

    @rule(keys=KEYS, name=st.none() | st.sampled_from(NAMES), seconds=st.integers(-20, 60))
    def reschedule(self, keys: set[int], name: str | None, seconds: int) -> None:
        """Somebody gives messages a time."""
        to = self.stages.instant + seconds * SECOND
        wanted = self.pending(keys, name)
        command = client.reschedule(self.root, "t", name, to=at(to), where=where(keys))
        self.follow(command, {of: to for of, due in wanted.items() if due != to})

    @rule(keys=KEYS, name=st.none() | st.sampled_from(NAMES), seconds=st.integers(-40, 40).filter(bool))
    def shift(self, keys: set[int], name: str | None, seconds: int) -> None:
        """Somebody lets messages come later, or earlier."""
        wanted = self.pending(keys, name)
        command = client.shift(self.root, "t", name, span=timedelta(seconds=seconds), where=where(keys))
        self.follow(command, {of: due + seconds * SECOND for of, due in wanted.items()})

    @rule(keys=KEYS, name=st.none() | st.sampled_from(NAMES))
    def release(self, keys: set[int], name: str | None) -> None:
        """Somebody lets messages come now; what was to come before now stays."""
        wanted, now = self.pending(keys, name), wall_ms()
        command = client.release_now(self.root, "t", name, where=where(keys))
        self.follow(command, {of: None for of, due in wanted.items() if due > now})

    @precondition(lambda self: any(each.kind != "undo" for each in self.given.values()))
    @rule(number=st.integers(0, 99), meanwhile=st.booleans())
    def undo(self, number: int, *, meanwhile: bool = False) -> None:
        """Somebody takes a command back, one of the last ones mostly; dispatch may decide before it is written."""
        known = [name for name, each in self.given.items() if each.kind != "undo"]
        name = known[-1 - number % min(3, len(known))]
        back, shown = self.given[name], self.shown()
        if back.kind == "cancel":
            some = back.named.keys() - back.undone - shown
            wanted: dict[Place, int | None] = {of: None for of in some if self.fates[of].decided not in LEFT_OUT}
        else:
            last = {of for of, number in back.named.items() if self.fates[of].round == number}
            some = {of for of in last - shown if self.fates[of].decided not in LEFT_OUT}
            wanted = {of: back.before[of] for of in some if not self.fates[of].cancels}
        with patch.object(client, "write", partial(self.write, meanwhile)):
            command = client.undo(self.root, name)
        self.follow(command, wanted, back, name)

    def write(self, meanwhile: bool, root: str, named: list[Named], columns: dict[str, object]) -> str:  # noqa: FBT001 - of a function that is replaced
        """Write an undo; of a cancel when dispatch may have decided meanwhile."""
        if meanwhile and all(due is None for _, due in named):
            self.dispatch()
        return write(root, named, columns)

    def pending(self, keys: set[int], name: str | None) -> dict[Place, int]:
        """What waits for its first delivery under some keys, with its due time."""
        shown = self.shown()
        return {
            of: fate.due[fate.round]
            for of, fate in self.fates.items()
            if not of.failed and int(self.keys[of.entry]) in keys and name in (None, of.name)
            if of not in shown and not fate.cancels and fate.decided not in LEFT_OUT
        }

    def follow(
        self, command: Command, wanted: Mapping[Place, int | None], back: Given | None = None, undoes: str = ""
    ) -> None:
        """What a command says: it names what was wanted, and maybe what failed and waits to come again."""
        rows = [each for each in self.rows(COMMANDS) if each["command_id"] == command.command_id]
        rows = [] if command.command_id is None else rows
        row_of = {of: row for row in rows for of in places(row)}
        first = {of for of in row_of if not of.failed}
        assert first == {of for of in wanted if not of.failed}
        assert back is None or row_of.keys() == wanted.keys()
        if command.command_id is None:
            return
        given = self.given[command.command_id] = Given(command.kind, {of: row["round"] for of, row in row_of.items()})
        for of, row in row_of.items():
            fate = self.fates.setdefault(of, Fate(of.failed if row["round"] is None else row["round"] - 1))
            if row["round"] is None:
                self.cancelled(of, fate, command, back, undoes)
                continue
            due = ms(row["deliver_at"])
            assert wanted.get(of) in (None, due)
            given.before[of] = ms(row["due_before"])
            assert of.failed or given.before[of] == fate.due[fate.round]
            assert of.failed or row["round"] == fate.round + 1
            fate.round, fate.due[row["round"]] = row["round"], due
            if fate.decided is not None:
                assert fate.decided == "delivered"
                given.late.add(of)
            elif back is not None:
                back.undone.add(of)

    def cancelled(self, of: Place, fate: Fate, command: Command, back: Given | None, undoes: str) -> None:
        """A place is cancelled, or is not any more."""
        name = str(command.command_id)
        if back is not None and fate.decided == CANCELLED:
            self.given[name].late.add(of)
        elif back is not None:
            fate.cancels.discard(undoes)
            back.undone.add(of)
        elif fate.decided == "delivered":
            self.given[name].late.add(of)
        else:
            fate.cancels.add(name)

    def decide(self) -> None:
        """What a batch makes of each release, as of now."""
        releases = [*self.held, *(each for row in self.stages.released() for each in released(row))]
        self.held = []
        for each in releases:
            fate = self.fates.setdefault(each.of, Fate(each.round))
            if each.of.name in self.paused:
                self.held.append(each)
            elif each.round < fate.round:
                self.left_out.append((each, RESCHEDULED))
            else:
                assert fate.decided is None, each
                paid = each.of.name == "asks" and self.keys[each.of.entry] in self.paid
                fate.decided, fate.came = CANCELLED if fate.cancels else SUPPRESSED if paid else "delivered", each.round
                if fate.decided == "delivered":
                    self.delivered.append(each)
                else:
                    self.left_out.append((each, fate.decided))

    def rows(self, table: Table) -> list[dict[str, Any]]:
        """What a table holds."""
        found: list[dict[str, Any]] = open_table(self.root, table).to_pyarrow_table().to_pylist()
        return found

    def shown(self) -> set[Place]:
        """What is visible."""
        return {of for row in self.rows(DELIVERIES) for of in places(row)}

    def look(self) -> None:
        """The tables of dispatch say what the model says, and nothing came before its time or late."""
        deliveries = self.rows(DELIVERIES)
        assert counted(deliveries) == Counter(self.delivered)
        assert counted(self.rows(HELD)) == Counter(self.held)
        refused = Counter((each, row["reason"]) for row in self.rows(REJECTED_DISPATCH) for each in released(row))
        assert refused == Counter(self.left_out)
        for row in deliveries:
            (each,) = released(row)
            due, wanted = ms(row["due_time"]), self.fates[each.of].due.get(each.round)
            assert wanted is None or due == wanted or (due > wanted and due in self.put), (each, due, wanted)

    def teardown(self) -> None:
        """Everything comes to its end; then each message came once in its last round, or was cancelled."""
        if not hasattr(self, "stages"):
            return
        try:
            if sys.exc_info()[0] is None:
                self.end()
        finally:
            rmtree(self.folder)

    def end(self) -> None:
        """Let all come that is to come, and look at it."""
        for name in sorted(self.paused):
            self.pause_or_resume(name)
        for seconds in (0, 0, 60, 60, 600, 3_600, 86_400, 0):
            self.settle()
            self.tick(seconds)
            while self.stages.has_dispatch:
                self.dispatch()
            self.settle()
        assert not self.stages.schedule.waiting
        assert not self.held
        wanted = {Place(name, entry, 0) for name in NAMES for entry in self.keys}
        wanted |= {of._replace(failed=of.failed + 1) for of, kind in self.said.items() if kind == "nack"}
        decided = {of for of, fate in self.fates.items() if fate.decided is not None}
        assert decided == wanted, decided ^ wanted
        came = {of: fate.came for of, fate in self.fates.items() if fate.decided == "delivered"}
        assert {each.of: each.round for each in self.delivered} == came
        found = {each.command_id: each for each in outcomes(self.root, 999)}
        counts = {
            name: (each.kind, each.count, each.applied, each.too_late, each.undone, each.deciding)
            for name, each in found.items()
        }
        wanted_figures = {name: figures(each) for name, each in self.given.items()}
        assert counts == wanted_figures, [(counts[n], w) for n, w in wanted_figures.items() if counts.get(n) != w]
        assert client.cancel(self.root, "t", where="true", dry_run=True).selection.count == 0
        assert [each.count for each in self.followed.look().backlogs] == [0] * len(NAMES)
        sound(self.root)


def test_what_was_commanded_comes_once_at_its_last_time_or_never_and_the_outcomes_say_so() -> None:
    """Whatever is commanded, consumed and paused when, and whatever dies."""
    examples = max(1, settings().max_examples // 16)
    run_state_machine_as_test(Minds, settings=settings(stateful_step_count=30, max_examples=examples))
