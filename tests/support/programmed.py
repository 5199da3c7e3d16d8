"""The plain model of programs that consume: what they were handed and said, in order, and whether that may be so."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, Protocol

import pyarrow as pa

from pipeline.client.clock import Clock
from pipeline.client.message import Message
from pipeline.delta.deltars import open_table, query
from pipeline.subscriptions.incarnations import Name
from schemas import DELIVERIES, MESSAGES
from state import LeaseTiming

Place = tuple[int, int]
_HELD_MS = LeaseTiming().drain_ms
OWNED = ("exclusive", "failover", "key_shared")
"""Types of subscriptions in which a key has one consumer at a time."""


class Sent(NamedTuple):
    """A message of the log, or a delivery; what was due first and released first comes first."""

    topic: str
    place: Place
    payload: str
    key: str | None
    due: int = 0
    released: Place = (0, 0)


class Running(Protocol):
    """A program."""

    name: str


class Subscribed(Protocol):
    """A consumer of a program."""

    subscription: str

    @property
    def program(self) -> Running:
        """The program."""


class Ledger:
    """What the tables say."""

    def __init__(self, root: str) -> None:
        """Read it when it is asked for."""
        self._root = root

    @cached_property
    def messages(self) -> list[Sent]:
        """All messages, in the order of the log."""
        rows = query(
            "SELECT topic, ledger_id, entry_id, payload, message_key FROM t ORDER BY 1, 2, 3",
            t=open_table(self._root, MESSAGES),
        )
        return [
            Sent(row["topic"], (row["ledger_id"], row["entry_id"]), bytes(row["payload"]).decode(), row["message_key"])
            for row in rows
        ]

    @cached_property
    def delivered(self) -> dict[tuple[Name, int], list[Sent]]:
        """What each life was delivered for the first time."""
        rows = query(
            "SELECT topic, subscription, life, ledger_id, entry_id, payload, message_key, batch_id, sequence, "
            "arrow_cast(due_time, 'Int64') AS due FROM t WHERE redelivery_count = 0",
            t=open_table(self._root, DELIVERIES),
        )
        found: dict[tuple[Name, int], list[Sent]] = defaultdict(list)
        for row in rows:
            place, payload = (row["ledger_id"], row["entry_id"]), bytes(row["payload"]).decode()
            sent = Sent(
                row["topic"], place, payload, row["message_key"], row["due"], (row["batch_id"], row["sequence"])
            )
            found[(row["topic"], row["subscription"]), row["life"]].append(sent)
        return found


@dataclass
class Life:
    """A life of a subscription of a topic.

    Attributes:
        kind: the type of the subscription.
        start: the first position that is for it.
    """

    name: Name
    number: int
    kind: str
    start: Place

    def wanted(self, ledger: Ledger) -> list[Sent]:
        """The messages that are for it."""
        return [each for each in ledger.messages if each.topic == self.name[0] and each.place >= self.start]


class Event(NamedTuple):
    """Something that happened: `got`, `ack`, `fail`, `lost`, `dies` or `counted`."""

    kind: str
    number: int = 0
    who: str = ""
    name: Name = ("", "")
    life: int = 0
    place: Place = (0, 0)
    failures: int = 0
    taker: int = 0
    at: int = 0


@dataclass
class _State:
    """What is known of a life, event after event."""

    handed: dict[tuple[Place, int], tuple[int, Event]] = field(default_factory=dict)
    seen: set[Place] = field(default_factory=set)
    said: dict[Place, list[tuple[int, str]]] = field(default_factory=lambda: defaultdict(list))
    counted: set[Place] = field(default_factory=set)
    failed: set[Place] = field(default_factory=set)


class Notes:
    """What programs were handed and said, in order; threads of listeners note it, too."""

    def __init__(self, clock: Clock) -> None:
        self._lock, self._clock, self.events = threading.Condition(), clock, list[Event]()

    @property
    def last(self) -> int:
        """The number of the last event."""
        return len(self.events)

    def wait_for_more(self, last: int, limit_s: float) -> None:
        """Return when more than so many events have happened, or after a time."""
        with self._lock:
            self._lock.wait_for(lambda: self.last > last, limit_s)

    def got(self, taker: Subscribed, message: Message) -> None:
        """A program was handed a message."""
        self._note("got", taker, message.topic_name(), message.life, message.message_id().position,  # type: ignore[attr-defined]
                   message.redelivery_count())  # fmt: skip

    def got_table(self, taker: Subscribed, table: pa.Table, kind: str = "got") -> None:
        """The same of rows."""
        for row in table.to_pylist():
            place = row["ledger_id"], row["entry_id"]
            self._note(kind, taker, row["topic"], row["life"], place, row["redelivery_count"])

    def acknowledged(self, taker: Subscribed, message: Message, kind: str = "ack") -> None:
        """A program said that it is done with a message, or that it failed."""
        self._note(kind, taker, message.topic_name(), message.life, message.message_id().position)  # type: ignore[attr-defined]

    def cumulated(self, taker: Subscribed, message: Message) -> set[Place]:
        """The same of all that a consumer was handed up to a message; what that is."""
        topic, life, place = message.topic_name(), message.life, message.message_id().position  # type: ignore[attr-defined]
        mine = [
            e for e in self.events if e.kind == "got" and e.taker == id(taker) and (e.name[0], e.life) == (topic, life)
        ]
        last = max(number for number, each in enumerate(mine) if each.place == place)
        found = {each.place for each in mine[: last + 1]}
        for each in found:
            self._note("ack", taker, topic, life, each)
        return found

    def lost(self, names: Iterable[Name], *, dies: bool) -> None:
        """What a consumer holds comes to others."""
        with self._lock:
            for name in names:
                self.events.append(Event("dies" if dies else "lost", len(self.events), name=name))

    def counted(self, upto: int, who: set[str]) -> None:
        """What some programs had said up to an event is settled."""
        with self._lock:
            self.events.append(Event("counted", upto, ",".join(sorted(who))))

    def _note(self, kind: str, taker: Subscribed, topic: str, life: int, place: Place, count: int = 0) -> None:
        with self._lock:
            name = topic, taker.subscription
            self.events.append(
                Event(
                    kind, len(self.events), taker.program.name, name, life, place, count, id(taker), self._clock.now()
                )
            )
            self._lock.notify_all()

    # ---- whether it may be so

    def acked(self, life: Life) -> set[Place]:
        """The messages of a life that somebody said to be done with."""
        mine = [e for e in self.events if e.kind == "ack" and (e.name, e.life) == (life.name, life.number)]
        return {each.place for each in mine}

    def check(self, lives: Iterable[Life], ledger: Ledger) -> None:
        """All that was handed out may be handed out."""
        for life in lives:
            wanted = {each.place for each in life.wanted(ledger)}
            self._check(life, wanted, ledger.delivered[life.name, life.number])
        known = {(each.name, each.number) for each in lives}
        strange = [each for each in self.events if each.kind == "got" and (each.name, each.life) not in known]
        assert not strange, strange

    def _check(self, life: Life, wanted: set[Place], delivered: list[Sent]) -> None:
        state, lost, dies = _State(), 0, False
        before = _before(delivered) if life.kind in OWNED else {}
        for each in self.events:
            if each.kind == "counted":
                who = each.who.split(",")
                state.counted |= {
                    p for p, said in state.said.items() if any(n < each.number and w in who for n, w in said)
                }
            elif each.kind in ("lost", "dies") and each.name == life.name:
                lost, dies = lost + 1, dies or each.kind == "dies"
            elif (each.name, each.life) == (life.name, life.number):
                if each.kind == "ack":
                    state.said[each.place].append((each.number, each.who))
                elif each.kind == "fail":
                    state.failed.add(each.place)
                else:
                    _may_come(life, each, state, wanted, lost)
                    early = [] if dies else [p for p in before.get(each.place, ()) if p not in state.seen]
                    assert each.failures or not early, f"{life}: {each} came before {early}"
                    state.seen.add(each.place)


def _may_come(life: Life, got: Event, state: _State, wanted: set[Place], lost: int) -> None:
    assert got.place in wanted, f"{life}: {got} is not for it"
    assert got.place not in state.counted, f"{life}: {got} was settled"
    assert not got.failures or got.place in state.failed or lost, f"{life}: {got} came again, and did not fail"
    again = state.handed.get((got.place, got.failures))
    if again is not None and again[0] == lost:
        # A slot is handed over when what is held of it is settled, or after a while.
        before = again[1]
        assert before.taker != got.taker, f"{life}: {got} came twice"
        assert got.at - before.at >= _HELD_MS, f"{life}: {got} came twice within {got.at - before.at} ms"
    state.handed[got.place, got.failures] = lost, got


def _before(delivered: list[Sent]) -> dict[Place, list[Place]]:
    """For each message those of its key that were due and released before it."""
    keys: dict[str | None, list[Sent]] = defaultdict(list)
    for each in delivered:
        keys[each.key].append(each)
    return {
        each.place: [
            other.place for other in keys[each.key] if other.due <= each.due and other.released < each.released
        ]
        for each in delivered
        if each.key is not None
    }
