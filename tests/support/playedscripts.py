"""Scripts of `tests.support.drawnscripts`, played on several ways at once: after each act all tables say the same.

A way is a warehouse with its stages, and how these do their work: in this process or by Spark, with deaths or without.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from pipeline.client.clock import turned
from pipeline.client.commanding import commands
from pipeline.client.exceptions import InvalidMessage, ScheduleNotFound, SubscriptionNotFound, Timeout
from pipeline.client.message import MessageId
from pipeline.client.subscribing.policysetting import set_policy
from pipeline.client.subscribing.schedules import delete_schedule, pause_schedule, resume_schedule, set_schedule
from pipeline.client.subscribing.seeking import begin_anew
from pipeline.client.subscribing.subscriptions import Subscription, subscribe, unsubscribe
from pipeline.config.errors import AlreadySubscribed, BadValue
from pipeline.config.settings import MINUTE_MS, Settings
from pipeline.config.stages import DISPATCH, SETTLE
from pipeline.delta.deltars import append, open_table, rows_of
from pipeline.delta.warehouse import Warehouse
from pipeline.storage.files import Files
from pipeline.testing.warehouse import TurnedClock
from schemas import (
    CONSUMER_EVENTS,
    DELIVERIES,
    INBOX,
    PUBLICATIONS,
    REJECTED_DISPATCH,
    REJECTED_INGEST,
    REJECTED_SETTLE,
    Table,
)
from tests.support.drawnscripts import DEATHS, KEYS, POLICIES, T0, TOPICS, Act, Line, Script
from tests.support.maintained import sharply
from tests.support.stages import Stages
from tests.support.stream import Killed, at
from tests.support.tabletexts import of_present_lives, row_texts

SETTINGS = Settings(horizon_ms=20_000, entries_per_ledger=8, rows_per_task=16)
"""Some messages are parked, ledgers are many, and of what is held a batch takes four."""
_MERGED = (INBOX, DELIVERIES, PUBLICATIONS, REJECTED_DISPATCH, REJECTED_INGEST, REJECTED_SETTLE)
_REFUSED = (AlreadySubscribed, BadValue, SubscriptionNotFound, ScheduleNotFound, InvalidMessage, Timeout)
_NAMED = ("topic", "subscription", "life", "ledger_id", "redelivery_count")


class Played(Stages):
    """Stages as a process has them: some may be away, and a batch of dispatch has the instant that Spark gives it.

    Attributes:
        away: those that do nothing.
        others: the settings with which a stage goes on that has died.
        spared: those that always have the usual settings.
    """

    def __init__(
        self,
        root: str,
        warehouse: Warehouse | None = None,
        settings: Settings = SETTINGS,
        others: Settings | None = None,
    ) -> None:
        """The stages of a warehouse, perhaps with a session of Spark."""
        super().__init__(root, settings)
        self.warehouse, self.away, self.others = warehouse or self.warehouse, set[str](), others or settings
        self.spared = set[str]()

    def _begun(self, name: str) -> Any:  # noqa: ANN401 - as there
        mine, self.settings = self.settings, SETTINGS if name in self.spared else self.settings
        try:
            return super()._begun(name)
        finally:
            self.settings = mine

    @property
    def has_dispatch(self) -> bool:
        """Whether there is something for a batch of dispatch, which is not away."""
        return DISPATCH not in self.away and super().has_dispatch

    def ingest(self, *rows: dict[str, Any]) -> bool:
        """Take a batch of ingest; if it dies in it, it goes on before other stages do."""
        return super().ingest(*rows) or self._goes_on(self.ingest)

    def dispatch(self) -> bool:
        """Take a batch of dispatch; if it dies in it, it goes on before other stages do."""
        return super().dispatch() or self._goes_on(self.dispatch)

    def _goes_on(self, again: Callable[[], bool]) -> bool:
        self.settings, self.others = self.others, self.settings
        return again()

    def settle_once(self) -> bool:
        """Take a batch of settle, which is not away, when there is anything for one; if it dies, it begins anew."""
        try:
            return SETTLE not in self.away and super().settle_once()
        except Killed:
            # It takes whoever calls it with it.
            self.restart(SETTLE)
            return self.settle_once()

    def _batch(self, name: str) -> None:
        """A batch of dispatch that takes only what is new has the instant of the one before."""
        instant, book = self.instant, self._book(name)
        if name == DISPATCH and not book.died and not self._body(name).has_work(instant):
            self.instant = book.start(book.next).instant or instant
        try:
            super()._batch(name)
        finally:
            self.instant = instant


class Distant(Files):
    """A store that Spark alone reads, for all who ask; notes are read and written here all the same."""

    def readable(self, path: str) -> str | None:  # noqa: ARG002 - as there
        """No path can be read here."""
        return None


@dataclass(frozen=True)
class DistantWarehouse(Warehouse):
    """A warehouse of whose tables only Spark reads the rows."""

    @property
    def files(self) -> Files:
        """A store of which this process reads nothing."""
        return Distant()


@dataclass
class Way:
    """A warehouse on which a script is played.

    Attributes:
        stages: do the work.
        dies: whether a stage dies when the script says so.
        before: done before stages work.
        but: columns that may be other ones here.
        less: tables that may say something else.
        rebuilt: whether the index lacks what nobody gets any more.
        given: the commands so far.
    """

    stages: Played
    dies: bool = False
    before: Callable[[Played], object] = lambda _: None
    but: Collection[str] = ()
    less: Collection[Table] = ()
    rebuilt: bool = False
    clock: TurnedClock = field(default_factory=lambda: TurnedClock(T0))
    given: list[str] = field(default_factory=list)

    @property
    def root(self) -> str:
        """The warehouse."""
        return self.stages.root

    @property
    def _paid(self) -> str:
        return f"{self.root}/guard_tables/paid"

    def begin(self, script: Script) -> None:
        """Those subscribe that are there from the beginning."""
        write_deltalake(self._paid, pa.table({"order_id": pa.array(["nobody"], pa.string())}))
        for topic in script.topics:
            set_policy(self.root, topic, **TOPICS[topic])
        for line in script.lines:
            if not line.joins:
                self.join(line)
        self.work()

    def join(self, line: Line) -> None:
        """Somebody subscribes."""
        policies = line.policies
        if policies.guard is not None and "paid" in policies.guard:
            policies = replace(policies, guard_tables=f'{{"paid": "{self._paid}"}}')
        start = "earliest" if line.earliest else "latest"
        subscribe(self.root, Subscription(line.topic, line.name, "shared", start, line.tick_ms, policies))

    def act(self, script: Script, act: Act) -> str:
        """Do something; why it was refused, if it was."""
        try:
            self._act(script.lines[act.which % len(script.lines)], act)
        except _REFUSED as error:
            return type(error).__name__
        return ""

    def _act(self, line: Line, act: Act) -> None:
        match act.name:
            case "send":
                self.send(act.rows)
            case "pass":
                self.clock.ms += act.which
                self.work()
            case "ack" | "nack" | "ack and nack":
                self.consume(act.which * 10 + act.more, act.name.split(" and "))
            case "die" | "away" | "return" | "maintain" | "merge":
                self.operate(act)
            case "join" | "leave" | "clear" | "rewind" | "pause" | "resume":
                self.subscribes(line, act.name)
            case "recur" | "halt":
                self.recur(act, line.topic)
            case _:
                self.command(act.name, line, KEYS[act.more % len(KEYS)] or "nobody", (act.more - 4) * 4_000)

    def recur(self, act: Act, topic: str) -> None:
        """A schedule is set, or another one in its place; or one is paused, resumed or deleted."""
        name = f"schedule {act.more % 2}"
        if act.name == "halt":
            (pause_schedule, resume_schedule, delete_schedule)[act.which % 3](self.root, name)
            return
        set_schedule(
            self.root,
            name,
            topic,
            every_ms=3_000 * (1 + act.more),
            start=at(self.clock.ms + 1_000),
            limit=1 + act.which % 4,
            catch_up="all",
            message_key=KEYS[act.which % len(KEYS)],
            payload="{occurrence}",
        )

    def operate(self, act: Act) -> None:
        """An operator does something to stages or tables, or something happens to them."""
        match act.name:
            case "die":
                self.stages.die_after(DEATHS[act.which] if self.dies else None)
            case "away":
                self.stages.away ^= {(DISPATCH, SETTLE)[act.more % 2]}
            case "return":
                self.stages.away.clear()
            case "maintain":
                sharply(self.stages.warehouse, MINUTE_MS)
            case _:
                open_table(self.root, _MERGED[act.more % len(_MERGED)]).optimize.compact()

    def subscribes(self, line: Line, name: str) -> None:
        """Somebody subscribes, goes, begins anew, pauses or goes on."""
        match name:
            case "join":
                self.join(line)
            case "leave":
                unsubscribe(self.root, line.topic, line.name)
            case "clear" | "rewind":
                where = MessageId.latest if name == "clear" else MessageId.earliest
                begin_anew(self.root, line.topic, line.name, where)
            case _:
                set_policy(self.root, line.topic, line.name, paused=name == "pause")

    def send(self, parts: Sequence[Sequence[dict[str, Any]]]) -> None:
        """Rows are appended, a commit for each part."""
        now = {"publish_time": at(self.clock.ms)}
        for part in parts:
            append(self.root, INBOX, rows_of(INBOX, [{**row, **now} for row in part]))

    def consume(self, number: int, kinds: Sequence[str]) -> None:
        """Consumers say something of a delivery, in one commit."""
        rows = open_table(self.root, DELIVERIES).to_pyarrow_table(columns=[*_NAMED, "entry_id"]).to_pylist()
        rows = [row for row in rows if "ack" in POLICIES[row["subscription"]]] or rows
        if not rows:
            return
        shown = sorted(rows, key=lambda row: tuple(row.values()))[-1 - number % min(len(rows), 20)]
        entry = shown.pop("entry_id")
        run = {**shown, "first_entry": entry, "last_entry": entry, "at": at(T0)}
        append(self.root, CONSUMER_EVENTS, rows_of(CONSUMER_EVENTS, [{**run, "kind": kind} for kind in kinds]))

    def command(self, name: str, line: Line, key: str, span_ms: int) -> None:
        """Somebody commands something, or takes it back, or pays."""
        where, only = (self.root, line.topic), None if span_ms % 3 else line.name
        given = None
        match name:
            case "pay":
                write_deltalake(self._paid, pa.table({"order_id": [key]}), mode="append")
            case "cancel":
                given = commands.cancel(*where, key=key)
            case "cancel for one":
                given = commands.cancel(*where, line.name, where="true")
            case "shift":
                given = commands.shift(*where, only, key=key, span=timedelta(milliseconds=span_ms or 1))
            case "reschedule":
                given = commands.reschedule(*where, only, key=key, to=self.clock.ms + span_ms)
            case "release":
                given = commands.release_now(*where, only, key=key)
            case "undo" if self.given:
                given = commands.undo(self.root, self.given[span_ms % len(self.given)])
        if given is not None and given.command_id is not None:
            self.given.append(given.command_id)

    def work(self) -> None:
        """The stages do what there is to do."""
        self.before(self.stages)
        self.stages.instant = self.clock.ms
        self.stages.work()


OF_BATCHES = ("batch_id", "sequence")
"""Columns that differ where a batch is planned anew: it may take more, or less, than the one before."""


def undisturbed(root: str) -> Way:
    """All is done in this process, and nothing happens to the stages."""
    return Way(Played(root))


@contextmanager
def begun(script: Script, *makers: Callable[[str], Way]) -> Iterator[list[Way]]:
    """Ways on which nothing of a script is done yet."""
    folder = mkdtemp()
    with ExitStack() as open_:
        open_.callback(rmtree, folder, ignore_errors=True)
        ways = [make(f"{folder}/{number}") for number, make in enumerate(makers)]
        for way in ways:
            open_.enter_context(turned(way.root, way.clock))
            way.begin(script)
        yield ways


def play(script: Script, *makers: Callable[[str], Way]) -> None:
    """Play a script on all ways; after each act the tables of all say what those of the first one say."""
    with begun(script, *makers) as ways:
        for number, act in enumerate((*script.acts, *_ends(script))):
            answers = [way.act(script, act) for way in ways]
            assert len(set(answers)) == 1, (number, act, answers)
            if act.name == "pass":
                compare(ways, f"act {number}: {act}")


def _ends(script: Script) -> list[Act]:
    """Nobody is away or paused any more, and all comes that may."""
    resumed = [Act("resume", number) for number in range(len(script.lines))]
    return [Act("return"), *resumed, *(Act("pass", span) for span in (0, 1_000, 60_000, 600_000))]


def compare(ways: Sequence[Way], when: str) -> None:
    """The tables say the same.

    Raises:
        AssertionError: they do not; it names rows that one has and the other has not.
    """
    for way in ways[1:]:
        both = [(each.root, row_texts(each.root, way.but, way.less)) for each in (ways[0], way)]
        wanted, found = (of_present_lives(*each) if way.rebuilt else each[1] for each in both)
        other = {
            name: {"lacks": sorted(wanted[name] - found[name]), "has": sorted(found[name] - wanted[name])}
            for name in wanted
            if wanted[name] != found[name]
        }
        assert not other, (when, other)
