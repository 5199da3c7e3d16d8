"""Worlds without a JVM that are cloned: what goes on in them, and how source and clone come to their end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from pipeline.client.commanding import commands
from pipeline.client.subscribing.policysetting import set_policy
from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from pipeline.config.options import Observer, nobody
from pipeline.config.settings import Settings
from pipeline.config.stages import DISPATCH, INGEST, SCHEDULE, SETTLE
from pipeline.delta.deltars import append, open_table, rows_of
from pipeline.service.clone import clone
from pipeline.subscriptions.policies import Policies
from schemas import CONSUMER_EVENTS, DELIVERIES, INBOX
from tests.support.stages import Stages
from tests.support.stream import at, message

T0 = 2_000_000_000_000
"""Behind any wall clock, by which a release is due."""
SECOND = 1_000
PLAIN, ACKS, SLOW = "plain", "s", "slow"
NAMES = (PLAIN, ACKS, SLOW)
OF_BATCH = {"batch_id", "sequence", "released_at", "cause"}
"""Columns of deliveries that say which batch has made a row, and when, or by which way it came."""
Row = dict[str, Any]


class World:
    """Stages of a warehouse with a subscription that is plain, one that acknowledges, and one with a rate.

    Attributes:
        stages: the stages.
        sent: how many messages were sent.
    """

    def __init__(self, stages: Stages, sent: int = 0) -> None:
        self.stages, self.sent = stages, sent

    @classmethod
    def new(cls, root: str, horizon_ms: int = 0, *, ack: bool = True, observe: Observer = nobody) -> World:
        """A warehouse whose stages have begun. Who observes is told of each of their steps."""
        found = cls(Stages(root, Settings(horizon_ms=horizon_ms), observe))
        acks = Policies(ack=True, max_redeliveries=2) if ack else Policies()
        for name, policies in zip(NAMES, (Policies(), acks, Policies(max_rate=1)), strict=True):
            subscribe(root, Subscription("t", name, tick_ms=1, policies=policies))
        found.stages.instant = T0
        found.go_on(0)
        return found

    def at(self, root: str) -> World:
        """The same in another folder that holds it."""
        stages = Stages(root, self.stages.settings)
        stages.instant = self.stages.instant
        return World(stages, self.sent)

    @property
    def root(self) -> str:
        """The folder."""
        return self.stages.root

    def send(self, *after: int) -> None:
        """Messages are sent, to come after so many seconds."""
        now = {"publish_time": at(self.stages.instant)}
        rows = [
            {**message(f"{self.sent + number}", after=each * SECOND), **now, "message_key": f"{self.sent + number}"}
            for number, each in enumerate(after)
        ]
        self.sent += len(after)
        append(self.root, INBOX, rows_of(INBOX, rows))

    def do(self, stage: str, death: str | None = None) -> bool:
        """A stage does a batch, or dies in it; whether it lives."""
        self.stages.die_after(death)
        calls: Mapping[str, Callable[[], bool]] = {
            INGEST: self.stages.ingest,
            SCHEDULE: self.stages.release,
            DISPATCH: self.stages.dispatch,
            SETTLE: self.stages.settle,
        }
        lives = calls[stage]()
        self.stages.die_after(None)
        return lives

    def pass_time(self, seconds: int) -> None:
        """Time passes; nobody works."""
        self.stages.instant += seconds * SECOND

    def go_on(self, seconds: int) -> None:
        """Time passes, and the stages come to the present."""
        self.pass_time(seconds)
        self.stages.work()

    def consume(self, number: int, kind: str) -> None:
        """A consumer says something of a delivery: `ack` or `nack`."""
        shown = [row for row in deliveries(self.root) if row["subscription"] == ACKS]
        if shown:
            row = shown[number % len(shown)]
            said = {name: row[name] for name in ("topic", "subscription", "life", "ledger_id", "redelivery_count")}
            run = {"first_entry": row["entry_id"], "last_entry": row["entry_id"], "kind": kind, "at": at(0)}
            after = {"after_ms": 7 * SECOND} if kind == "nack" else {}
            append(self.root, CONSUMER_EVENTS, rows_of(CONSUMER_EVENTS, [{**said, **run, **after}]))

    def cancel(self, key: int) -> None:
        """Somebody cancels a message."""
        commands.cancel(self.root, "t", where=f"message_key = '{key}'")

    def shift(self, key: int, seconds: int) -> None:
        """Somebody lets a message come later, or earlier."""
        commands.shift(self.root, "t", span=timedelta(seconds=seconds), where=f"message_key = '{key}'")

    def pause(self, name: str, *, on: bool) -> None:
        """A subscription is held, or goes on."""
        set_policy(self.root, "t", name, paused=on)

    def cloned(self, target: str) -> World:
        """A clone of it, with the same time."""
        return self.at(clone(self.root, target).target)

    def end(self) -> list[Row]:
        """Everything comes to its end; the deliveries. No message is early, and none comes twice."""
        for name in NAMES:
            self.pause(name, on=False)
        for seconds in (0, 3_600, 86_400, 0):
            self.go_on(seconds)
            while (instant := self.stages.next_instant) is not None:
                self.stages.instant = max(instant, self.stages.instant + 1)
                self.stages.work()
        assert not self.stages.schedule.waiting
        found = deliveries(self.root)
        names = ("subscription", "ledger_id", "entry_id", "redelivery_count")
        assert len({tuple(row[name] for name in names) for row in found}) == len(found)
        return found


def deliveries(root: str) -> list[Row]:
    """What was delivered, but for the batches that did it."""
    names = [name for name in DELIVERIES.columns.names if name not in OF_BATCH]
    rows: Sequence[Row] = open_table(root, DELIVERIES).to_pyarrow_table(columns=names).to_pylist()
    return sorted(rows, key=lambda row: (row["subscription"], row["ledger_id"], row["entry_id"], str(row)))
