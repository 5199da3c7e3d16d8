"""Turns: of subscriptions with `fair_by` the values of what is held, and whose turn it is (decision 0148).

What is held is chosen by value out of memory. The table `held` has no values: they are looked up in `messages`, in
portions between batches, when something may be taken for the first time, after a start or with another rule, and when
something is held in addition. Whose turn it is stands in the note of the last commit to `held`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.dispatch.core.fairness import keys_of, portions, row_of, split_chosen
from pipeline.dispatch.core.holding import EVERYTHING, Allowance, Who, comes, counted, micros
from pipeline.storage.arrays import IntArray
from pipeline.subscriptions.fairness import FairRule
from pipeline.subscriptions.incarnations import Name
from state.turns import FIRST_TURN, Choice, Keys, Turn, TurnQueue

PORTION = 200_000
"""Positions whose values are looked up between two batches."""


class LooksUp(Protocol):
    """Looks values up: `pipeline.dispatch.values.Values`."""

    def of(self, runs: pa.Table, rule: FairRule) -> tuple[IntArray, IntArray, IntArray]:
        """For each position of runs: the number of its run, its entry, the number of its value."""
        ...


@dataclass(frozen=True)
class Served:
    """What a batch takes of an incarnation in turn.

    Attributes:
        rule: by which.
        begun: whose turn it was.
        choice: what is chosen.
        then: whose turn it is behind what is handed over.
    """

    rule: FairRule
    begun: Turn
    choice: Choice
    then: Turn

    def within(self, runs: pa.Table, count: int) -> tuple[pa.Table, pa.Table, Served]:
        """Of runs that were chosen and not left out: those of so many positions, in turn; the others; and this then."""
        # These runs have the columns of `redelivery`, which does not say when a message is tried again.
        there = row_of(runs, self.choice.keys, by_due=False) >= 0
        queue = TurnQueue()
        queue.add(self.choice.keys.at(np.flatnonzero(there)))
        handed = queue.choose(self.rule.weigh, self.begun, count, EVERYTHING)
        taken, stays = split_chosen(runs, handed.keys, by_due=False)
        return taken, stays, replace(self, then=handed.then)


@dataclass
class _Held:
    """What is held of an incarnation: by value, and runs that are not looked up yet."""

    rule: FairRule
    unknown: list[pa.Table] = field(default_factory=list)
    found: list[Keys] = field(default_factory=list)
    queue: TurnQueue = field(default_factory=TurnQueue)

    def add(self, runs: pa.Table) -> None:
        """Runs that are held now, too."""
        self.unknown += portions(runs, PORTION)

    def look_up(self, values: LooksUp) -> None:
        """Look up a portion; behind the last one all are in the queue."""
        some = [self.unknown.pop()]
        total = _positions(some[0])
        while self.unknown and (total := total + _positions(self.unknown[-1])) <= PORTION:
            some.append(self.unknown.pop())
        runs = pa.concat_tables(some).combine_chunks()
        self.found.append(keys_of(runs, *values.of(runs, self.rule)))
        if not self.unknown:
            self.queue.add(Keys.together(self.found))
            self.found = []


class Turns:
    """The values of what is held of subscriptions with `fair_by`.

    Attributes:
        ruled: those of which something is held.
    """

    def __init__(self, values: LooksUp | None, noted: Iterable[Iterable[Any]] = ()) -> None:
        """Nothing is looked up yet.

        Args:
            values: looks values up; None: nothing is looked up, nor taken in turn.
            noted: as `noted` gave it.
        """
        self._values, self._held, self.ruled = values, dict[Who, _Held](), set[Name]()
        self._turn = {(topic, name, life): Turn(*turn) for topic, name, life, *turn in noted}

    def follow(self, rules: Mapping[Name, FairRule], waiting: Iterable[Who]) -> None:
        """Forget what nobody waits for, and what was looked up by another rule."""
        there = {who for who in waiting if who[:2] in rules} if rules else set[Who]()
        self.ruled = {who[:2] for who in there}
        if self._held or self._turn:
            self._held = {who: own for who, own in self._held.items() if who in there and own.rule == rules[who[:2]]}
            self._turn = {who: turn for who, turn in self._turn.items() if who in there}

    def ready(self, who: Who, rule: FairRule, held: Callable[[], pa.Table], *, whole: bool) -> bool:
        """Whether all is looked up that is held of an incarnation; a portion is now, or the whole."""
        own = self._held.get(who)
        if own is None:
            own = self._held[who] = _Held(rule)
            own.add(held())
        while own.unknown and self._values is not None:
            own.look_up(self._values)
            if not whole:
                break
        return not own.unknown

    def served(self, allowed: Mapping[Name, Allowance], lives: Mapping[Name, int]) -> dict[Who, Served]:
        """What may be taken of those of whom all is looked up, in turn. Nothing is taken yet."""
        found = dict[Who, Served]()
        for who, own in self._held.items():
            most = allowed.get(who[:2])
            is_known = not own.unknown and lives.get(who[:2]) == who[2]
            if is_known and most is not None and not most.is_nothing:
                until, late = micros([most.due_until, min(most.due_until, most.expired_until)]).tolist()
                begun = self._turn.get(who, FIRST_TURN)
                choice = own.queue.choose(own.rule.weigh, begun, most.positions, until, most.expired, late)
                found[who] = Served(own.rule, begun, choice, choice.then)
        return found

    def noted(self, served: Mapping[Who, Served]) -> tuple[tuple[Any, ...], ...]:
        """Whose turn it is, for the note of a commit."""
        turns = self._turn | {who: each.then for who, each in served.items()}
        return tuple((*who, *turn) for who, turn in sorted(turns.items()))

    def done(self, served: Mapping[Who, Served], back: pa.Table, fresh: pa.Table, gone: Iterable[Name]) -> None:
        """A batch is done.

        Args:
            served: what it took in turn.
            back: what it took and holds again.
            fresh: runs that are held now, too.
            gone: subscriptions of which it took something, and not in turn.
        """
        if not self._held:
            return
        for who, each in served.items():
            own = self._held[who]
            own.queue.take(each.choice)
            own.queue.add(_again(of_incarnation(back, who), each.choice.keys))
            self._turn[who] = each.then
        dropped = set(gone)
        self._held = {who: own for who, own in self._held.items() if who[:2] not in dropped}
        for who in counted(fresh).keys() & self._held.keys():
            self._held[who].add(of_incarnation(fresh, who))

    @property
    def names(self) -> set[Name]:
        """Those of whom something is looked up, or shall be."""
        return {who[:2] for who in self._held}


def of_incarnation(runs: pa.Table, who: Who) -> pa.Table:
    """The runs of an incarnation."""
    if not runs.num_rows:
        return runs
    masks = [pc.equal(runs.column(name), each) for name, each in zip(_WHO, who, strict=True)]
    return runs.filter(pc.and_(pc.and_(*masks[:2]), masks[2])).combine_chunks()


_WHO = ("topic", "subscription", "life")


def _again(back: pa.Table, chosen: Keys) -> Keys:
    """Positions that were chosen and are held again; they may come at another time."""
    row = row_of(back, chosen, by_due=False)
    there = np.flatnonzero(row >= 0)
    return chosen.at(there)._replace(due=comes(back)[row[there]])


def _positions(runs: pa.Table) -> int:
    return sum(share.positions for share in counted(runs).values())
