"""What operators, clocks and deaths do to the stages, against a plain model: each message comes once.

Ingest, dispatch, settle and maintenance are the real ones, without a JVM (`tests.support.stages`). Stages die,
stay away for hours and days, are copied and put back; others merge files, add columns and write what they may; the
clock is set, or its machine sleeps.
"""

from __future__ import annotations

import sys
from collections import Counter
from contextlib import ExitStack
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from pipeline.client.insight.pending import pending
from pipeline.client.insight.pendingfollower import PendingFollower
from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from pipeline.config.settings import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, LiveClock, Settings
from pipeline.config.stages import ALL_STAGES
from pipeline.delta.deltars import append, path_of, rows_of
from pipeline.subscriptions.policies import Policies
from pipeline.testing.stages import VIRTUAL
from schemas import CONSUMER_EVENTS, DELIVERIES, INBOX, MESSAGES, REJECTED_DISPATCH, REJECTED_INGEST, Table
from tests.support.changed_minds import OF_DISPATCH, OF_INGEST, OF_SETTLE, Place, ms, places
from tests.support.examined import wrong
from tests.support.job import Clocks, Job
from tests.support.operators import Operators
from tests.support.stages import Stages
from tests.support.stream import at, message

T0 = 1_700_000_000_000
NAMES = ("plain", "s")
"""One acknowledges."""
LETTERS = "t-s-DLQ"
OF_SCHEDULE = ("schedule.counted", "schedule.redelivery")
DEATHS = st.sampled_from([*OF_INGEST, *OF_SCHEDULE, *OF_DISPATCH, *OF_SETTLE])
DELAYS = st.sampled_from([0, 1, 30, 10 * 60, 2 * 3_600, 3 * 86_400])
"""Seconds."""
SPANS = st.sampled_from([0, SECOND_MS, 40 * SECOND_MS, 15 * MINUTE_MS, 3 * HOUR_MS, DAY_MS])
HORIZONS = st.sampled_from([0, 10 * MINUTE_MS, DAY_MS])
STEPS = st.sampled_from([-DAY_MS, -2 * MINUTE_MS, -SECOND_MS, SECOND_MS, 2 * MINUTE_MS, 5 * HOUR_MS])
CLOCK = LiveClock(max_step_ms=6 * HOUR_MS)
MOST = 10
"""Messages."""
LISTED = "not_an_append"


class Operated(Operators):
    """A producer, a consumer, operators, a clock, and what kills the stages."""

    MODEL = ("sent", "said", "listed")

    @initialize(horizon=HORIZONS, live=st.booleans(), delays=st.lists(DELAYS, min_size=2, max_size=4))
    def begin(self, horizon: int, delays: list[int], *, live: bool) -> None:
        """The first messages are sent."""
        self.folder, self.patches = mkdtemp(), ExitStack()
        clocks = Clocks(T0)
        self.patches.enter_context(clocks.in_force())
        clock = CLOCK if live else VIRTUAL
        self.stages = Stages(f"{self.folder}/warehouse", Settings(horizon_ms=horizon), clock=clock)
        self.job = Job(self.stages, clocks)
        self.shorten_logs()
        for name, policies in zip(NAMES, (Policies(), Policies(ack=True, max_redeliveries=1)), strict=True):
            subscribe(self.stages.root, Subscription("t", name, tick_ms=1, policies=policies))
        self.sent = dict[str, int]()
        """When each message is due at the earliest, ms."""
        self.listed: int | None = 0
        """How many rows are to be listed, where that is known."""
        self.said = dict[Place, str]()
        self.seen = Counter[Place]()
        self.followed = PendingFollower(self.stages.root)
        self.job.follow()
        self.send(delays, column=False)

    @rule()
    def count(self) -> None:
        """Who follows the tables knows what is pending."""
        assert self.followed.look().backlogs == pending(self.stages.root).backlogs

    @rule(delays=st.lists(DELAYS, min_size=1, max_size=3), column=st.booleans())
    def send(self, delays: list[int], *, column: bool) -> None:
        """Messages are appended, maybe with a column more."""
        if len(self.sent) + len(delays) > MOST:
            return
        after = {f"{len(self.sent) + number}": each * SECOND_MS for number, each in enumerate(delays)}
        rows = rows_of(INBOX, [{**message(key, after=each), "message_key": key} for key, each in after.items()])
        if column:
            more = pa.array([1] * len(rows))
            rows = rows.append_column(f"more{len(self.sent) % 2}", more)
            write_deltalake(path_of(self.stages.root, INBOX), rows, mode="append", schema_mode="merge")
        else:
            append(self.stages.root, INBOX, rows)
        self.sent |= {key: self.job.clocks.wall + each for key, each in after.items()}

    @rule(span=SPANS)
    def go_on(self, span: int) -> None:
        """Time passes, or the machine sleeps, and the stages come to the present."""
        self.job.clocks.go_on(span)
        self.follow()

    @rule(span=SPANS, death=DEATHS)
    def die(self, span: int, death: str) -> None:
        """The same, and one of them may die."""
        self.job.clocks.go_on(span)
        self.follow(death)

    def follow(self, death: str | None = None) -> None:
        """The stages do what there is to do; where they are refused because of the clock, one waits."""
        self.wait_for_the_clock()
        if not self.job.follow(death):
            self.wait_for_the_clock()
            assert self.job.follow()
        self.look()

    def wait_for_the_clock(self) -> None:
        """Wait until the time at which a stage stands has come, where a start is refused before that."""
        if refused := self.job.refused():
            assert self.job.is_live, refused
            self.job.clocks.go_on(max(self.stages.ahead(stage) for stage in refused) - self.job.clocks.wall)
            assert not self.job.refused()

    @precondition(lambda self: self.job.is_live)
    @rule(step=STEPS)
    def set_clock(self, step: int) -> None:
        """Somebody sets the clock of the machine."""
        self.job.clocks.wall += step

    @precondition(lambda self: not self.job.is_live)
    @rule()
    def run_after_replay(self) -> None:
        """What was a replay goes on by the wall clock."""
        self.stages.clock = CLOCK
        self.job.start_again()

    @rule(stage=st.sampled_from(ALL_STAGES))
    def leave_or_return(self, stage: str) -> None:
        """A stage stays away for some time, or comes back."""
        self.job.away ^= {stage}
        self.stages.restart(stage)

    @rule()
    def start_again(self) -> None:
        """The job is stopped, and started."""
        self.job.start_again()

    @rule(number=st.integers(0, 99), ack=st.booleans())
    def consume(self, number: int, *, ack: bool) -> None:
        """A consumer settles a delivery, or lets it fail; what fails twice is given up."""
        shown = sorted(each for each in self.shown() if each.name == "s" and each not in self.said)
        if shown:
            of = shown[number % len(shown)]
            self.say(of, "ack" if ack else "nack")

    def say(self, of: Place, kind: str) -> None:
        """A consumer says something of a delivery."""
        ledger, entry = of.entry
        row = {"kind": kind, "topic": "t", "subscription": of.name, "life": 1, "ledger_id": ledger, "at": at(0)}
        row |= {"first_entry": entry, "last_entry": entry, "redelivery_count": of.failed}
        row |= {"after_ms": 7 * SECOND_MS} if kind == "nack" else {}
        append(self.stages.root, CONSUMER_EVENTS, rows_of(CONSUMER_EVENTS, [row]))
        self.said[of] = kind

    @rule(kind=st.sampled_from(["delete", "update", "overwrite"]), key=st.integers(0, MOST - 1))
    def trespass(self, kind: str, key: int) -> None:
        """Somebody changes the inbox. What was sent is sent, and what is no append is listed."""
        opened, which = self.opened(INBOX), f"message_key = '{key}'"
        if kind == "delete":
            opened.delete(which)
        elif kind == "update":
            changed = opened.update(new_values={"payload": "X'00'"}, predicate=which)
            self.expect_listed(changed["num_updated_rows"])
        elif opened.file_uris() and INBOX.name not in self.left_to_spark():
            # One of an empty table takes nothing away: to Delta it is an append.
            write_deltalake(opened, rows_of(INBOX, [message("never")]), mode="overwrite")
            self.expect_listed(1)

    def expect_listed(self, rows: int) -> None:
        """So many rows more are to be listed."""
        self.listed = None if self.listed is None else self.listed + rows

    def rows(self, table: Table) -> list[dict[str, Any]]:
        """What a table holds."""
        found: list[dict[str, Any]] = self.opened(table).to_pyarrow_table().to_pylist()
        return found

    def shown(self) -> Counter[Place]:
        """What is visible."""
        return Counter(of for row in self.rows(DELIVERIES) for of in places(row))

    def look(self) -> None:
        """Nothing is there twice, or before its time."""
        deliveries = self.rows(DELIVERIES)
        shown = Counter(of for row in deliveries for of in places(row))
        assert all(count == 1 for count in shown.values()), shown
        for row in deliveries:
            (of,) = places(row)
            if of not in self.seen:
                assert ms(row["due_time"]) <= self.job.clocks.wall, row
                if not self.job.is_live:
                    assert ms(row["due_time"]) >= self.sent[row["message_key"]], row
        self.seen = shown

    def teardown(self) -> None:
        """All come back, and everything comes to its end; then each message has come once."""
        if not hasattr(self, "job"):
            return
        try:
            if sys.exc_info()[0] is None:
                self.end()
        finally:
            self.patches.close()
            rmtree(self.folder)

    def end(self) -> None:
        """Let all come that is to come, and look at it."""
        self.job.away.clear()
        for span in (0, 0, DAY_MS, 3 * DAY_MS, MINUTE_MS, MINUTE_MS, 0):
            self.go_on(span)
        assert not self.stages.schedule.waiting
        keys = {(row["ledger_id"], row["entry_id"]): row["message_key"] for row in self.rows(DELIVERIES)}
        came = Counter((of.name, keys[of.entry], of.failed) for of in self.shown())
        failed = Counter((of.name, keys[of.entry], of.failed) for of, kind in self.said.items() if kind == "nack")
        wanted = {(name, key, 0) for name in NAMES for key in self.sent}
        wanted |= {(name, key, 1) for name, key, count in failed if count == 0}
        assert came == Counter(wanted), (came - Counter(wanted), Counter(wanted) - came)
        letters = Counter(row["message_key"] for row in self.rows(MESSAGES) if row["topic"] == LETTERS)
        given_up = Counter(key for _, key, count in failed if count == 1)
        assert letters == given_up or (self.listed is None and letters.keys() == given_up.keys()), (letters, given_up)
        assert self.rows(REJECTED_DISPATCH) == []
        listed = [row for row in self.rows(REJECTED_INGEST) if row["topic"] is None]
        assert {row["reason"] for row in listed} <= {LISTED}
        assert self.listed in (None, sum(int(dict(row["properties"])["rows"]) for row in listed))
        assert [each.count for each in pending(self.stages.root).backlogs] == [0] * len(NAMES)
        assert {what for what, _ in wrong(self.stages.root)} <= {LISTED}, wrong(self.stages.root)
