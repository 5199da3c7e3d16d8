"""What settling keeps as plain dicts, one position at a time, and a way to see effects position by position."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from state import (
    Ack,
    Cancel,
    Clear,
    Cleared,
    Closed,
    Condition,
    DeadLetter,
    Effect,
    Event,
    Ignored,
    LeftOut,
    Move,
    Moved,
    Nack,
    Outstanding,
    Positions,
    Released,
    Retry,
    RetryPolicy,
    Undeliverable,
)

LATEST = 253_402_300_799_999
Position = tuple[int, int]
Fate = tuple[Any, ...]
"""What became of one position: the kind of the effect, the position, and the rest."""
DEFAULT = RetryPolicy()


def each(positions: Positions) -> list[Position]:
    """Ledger and entry of every message."""
    return [(ledger, entry) for ledger, first, last in positions.runs() for entry in range(first, last + 1)]


def fates(effects: Iterable[Effect]) -> list[Fate]:
    """Effects in their order, one tuple a position."""
    out: list[Fate] = []
    for effect in effects:
        match effect:
            case Cleared():
                out.append(("cleared", effect.outstanding, effect.waiting))
            case Ignored():
                out += [("ignored", *p, effect.reason.value) for p in each(effect.positions)]
            case Closed():
                kind = "withdrawn" if effect.withdrawn else "late" if effect.late else "closed"
                out += [(kind, *p, effect.round, effect.cause.value) for p in each(effect.positions)]
            case DeadLetter():
                rest = (effect.round, effect.redelivery_count, effect.reason)
                out += [("dead", *p, *rest) for p in each(effect.positions)]
            case Moved():
                out += [("moved", *p, effect.round, effect.redelivery_count) for p in each(effect.positions)]
            case Retry():
                numbers = (effect.round, effect.redelivery_count, effect.due)
                out += [("retry", *p, *numbers, effect.reason) for p in each(effect.positions)]
    return out


def held(state: Outstanding) -> dict[Position, list[tuple[int, int, int]]]:
    """Condition, round and redelivery count of every position, as a state shows them."""
    out: dict[Position, list[tuple[int, int, int]]] = {}
    for one in state.held(*Condition):
        for position in each(one.positions):
            out.setdefault(position, []).append((int(one.cell.condition), one.cell.round, one.cell.redelivery_count))
    return out


@dataclass
class OutstandingModel:
    """Position -> round and redelivery count, in two dicts; the same of what was withdrawn.

    There a count that is the round is 0.
    """

    outstanding: dict[Position, tuple[int, int]] = field(default_factory=dict)
    waiting: dict[Position, tuple[int, int]] = field(default_factory=dict)
    withdrawn: dict[Position, tuple[int, int]] = field(default_factory=dict)
    version: int = -1
    highest: Position = (-1, -1)

    @property
    def held(self) -> dict[Position, list[tuple[int, int, int]]]:
        """As the function of this name shows it."""
        out = {p: [(0, *numbers)] for p, numbers in self.outstanding.items()}
        out |= {p: [(1, *numbers)] for p, numbers in self.waiting.items()}
        return out | {p: [(2, *numbers)] for p, numbers in self.withdrawn.items()}

    def handle(self, *events: Event, now: int, policy: RetryPolicy = DEFAULT) -> list[Fate]:
        """Apply events, position by position."""
        out, read = list[Fate](), self.version
        for event in events:
            match event:
                case Clear():
                    out.append(("cleared", len(self.outstanding), len(self.waiting)))
                    self.outstanding, self.waiting, self.withdrawn = {}, {}, {}
                case Released() if event.version <= read:
                    out += [("ignored", *p, "repeated") for p in sorted(set(each(event.positions)))]
                case Released():
                    self.version = max(self.version, event.version)
                    out += [t for p in sorted(set(each(event.positions))) for t in self.release(p, event.round)]
                case LeftOut():
                    for p in each(event.positions):
                        self.leave_out(p, event.round, waits=event.waits)
                case Move():
                    out += [t for p in sorted(set(each(event.positions))) for t in self.move(p, event)]
                case Nack():
                    out += [t for p in sorted(set(each(event.positions))) for t in self.nack(p, event, now, policy)]
                case _:
                    out += [t for p in sorted(set(each(event.positions))) for t in self.settle(p, event)]
        return out

    def release(self, p: Position, number: int) -> list[Fate]:
        """A row of the table of releases."""
        self.highest = max(self.highest, p)
        if number == 0:
            if p in self.outstanding or p in self.waiting or p in self.withdrawn:
                return [("ignored", *p, "repeated")]
            self.outstanding[p] = (0, 0)
            return []
        if p in self.waiting and self.waiting[p][0] == number:
            self.outstanding[p] = self.waiting.pop(p)
            return []
        if p in self.withdrawn and self.withdrawn[p][0] == number:
            del self.withdrawn[p]
            return [("ignored", *p, "withdrawn")]
        known = p in self.outstanding and self.outstanding[p][0] == number
        return [("ignored", *p, "repeated" if known else "not_waiting")]

    def settle(self, p: Position, event: Ack | Cancel | Undeliverable) -> list[Fate]:
        """A position is done with."""
        if p in self.outstanding:
            number, count = self.outstanding.pop(p)
            late = isinstance(event, Ack) and count > 0 and event.redelivery_count != count
            return [("late" if late else "closed", *p, number, event.cause.value)]
        if p in self.waiting and self.waiting[p][1] == 0:
            return [("ignored", *p, "not_outstanding")]
        if p in self.waiting:
            number, count = self.waiting.pop(p)
            self.withdrawn[p] = (number, 0 if count == number else count)
            return [("withdrawn", *p, number, event.cause.value)]
        return [self.unknown(p)]

    def leave_out(self, p: Position, number: int, *, waits: bool) -> None:
        """Dispatch left a round out."""
        if p in self.outstanding and self.outstanding[p][0] == number:
            numbers = self.outstanding.pop(p)
            if number and waits:
                self.waiting[p] = numbers

    def move(self, p: Position, event: Move) -> list[Fate]:
        """A command makes a round."""
        known = p in self.outstanding or p in self.waiting or p in self.withdrawn
        if p in self.waiting:
            number, count = self.waiting[p]
            if count != event.redelivery_count or number >= event.round:
                return []
        elif known or not event.fresh:
            return []
        self.waiting[p] = (event.round, event.redelivery_count)
        return [("moved", *p, event.round, event.redelivery_count)]

    def nack(self, p: Position, event: Nack, now: int, policy: RetryPolicy) -> list[Fate]:
        """A position failed."""
        if p in self.outstanding and self.outstanding[p][1] == event.redelivery_count:
            number, count = self.outstanding.pop(p)
            most = policy.max_redeliver_count
            if most is not None and count + 1 > most:
                return [("dead", *p, number, count, event.reason), ("closed", *p, number, "dead_letter")]
            delay = event.after_ms
            if delay is None:
                delay = policy.backoff.min_ms
                for _ in range(count):
                    delay = min(delay * policy.backoff.multiplier, policy.backoff.max_ms)
            self.waiting[p] = (number + 1, count + 1)
            return [("retry", *p, number + 1, count + 1, min(now + delay, LATEST), event.reason)]
        if p in self.outstanding or p in self.waiting:
            return [("ignored", *p, "other_round")]
        return [self.unknown(p)]

    def unknown(self, p: Position) -> Fate:
        """Why nothing came of it."""
        if p in self.withdrawn:
            return ("ignored", *p, "settled")
        return ("ignored", *p, "never_delivered" if p > self.highest else "not_outstanding")
