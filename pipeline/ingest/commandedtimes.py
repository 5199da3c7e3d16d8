"""When messages that wait come at last, by commands: what is cancelled for all who are to get it comes to nobody."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping

import numpy as np

from pipeline.delta.warehouse import Warehouse
from pipeline.storage.arrays import IntArray
from pipeline.subscriptions.commandlog import CommandLog
from pipeline.subscriptions.commands import due_times, moves, withdrawals
from pipeline.subscriptions.incarnations import Incarnation, Name, alive
from state.keys import Flags, places_of, positions_of
from state.positionset import PositionSet
from state.runs import Runs
from state.withdrawals import Parts, Round, Withdrawals

NEVER = -1


class CommandedTimes:
    """What `commands` says of first deliveries, followed from the first question on."""

    def __init__(self, warehouse: Warehouse) -> None:
        """Nothing is read yet."""
        self._log, self._version = CommandLog(warehouse), -1
        self._said = Withdrawals()
        self._moved: dict[Round, dict[int, list[Runs]]] = defaultdict(lambda: defaultdict(list))
        self._cancelled: Parts = {}
        self._listeners: tuple[Mapping[Name, Incarnation] | None, Mapping[str, Mapping[Round, int]]] = None, {}

    def last_due(
        self, lives: Mapping[Name, Incarnation], owns: Callable[[str], bool], places: IntArray, due: IntArray
    ) -> IntArray:
        """When messages come at last, ms UTC; `NEVER`: they come to nobody.

        Args:
            lives: of subscriptions.
            owns: whether messages may be of a topic.
            places: of the messages (`state.keys.places_of`).
            due: when they are due but for commands, ms UTC.
        """
        self._follow()
        last, listening = due.copy(), self._listening(lives)
        heard = [first for topic, own in listening.items() if owns(topic) for first in own.values()]
        if heard:
            # Behind a seek, or who joined later, is nobody who gets it.
            last[places < min(heard)] = NEVER
        # A position is of one topic, and commands over others do not name it.
        for topic in {of.topic for of in (*self._cancelled, *self._moved) if owns(of.topic)} & listening.keys():
            by_life = listening[topic].items()
            times = np.stack([self._of_one(of, places, due) for of, _ in by_life])
            named = (times != due).any(axis=0)
            times[np.array([places < first for _, first in by_life])] = NEVER
            last[named] = times[:, named].max(axis=0)
        return last

    def _listening(self, lives: Mapping[Name, Incarnation]) -> Mapping[str, Mapping[Round, int]]:
        """By what commands name first deliveries to those who listen, and the first place that each hears, by topic.

        It is found again when somebody has come.
        """
        if self._listeners[0] is not lives:
            found = defaultdict[str, dict[Round, int]](dict)
            for (topic, name), life in alive(lives).items():
                first = places_of(np.array([life.since]), np.array([life.entry]))
                found[topic][Round(topic, name, life.number, 0)] = int(first[0])
            self._listeners = lives, found
        return self._listeners[1]

    def _of_one(self, of: Round, places: IntArray, due: IntArray) -> IntArray:
        times = due.copy()
        for _, runs in sorted(self._moved.get(of, {}).items()):
            each = Runs.concat(runs).expanded()
            named = places_of(each.ledger_ids, each.entry_ids)
            order = np.lexsort((each.due, named))
            at = np.searchsorted(named[order], places, side="right") - 1
            hit = (at >= 0) & (named[order][at] == places) if len(named) else np.zeros(len(places), np.bool_)
            times[hit] = each.due[order][at[hit]]
        times[_holds(self._cancelled.get(of, PositionSet()), places)] = NEVER
        return times

    def _follow(self) -> None:
        seen = self._log.look()
        if seen.version == self._version:
            return
        if seen.anew:
            self._said = Withdrawals()
            self._moved.clear()
        if seen.rows.num_rows:
            self._said.follow(withdrawals(seen.rows))
            for (of, number), runs in due_times(moves(seen.rows)).items():
                self._moved[of][number].append(runs)
        self._version, self._cancelled = seen.version, self._said.in_force()


def _holds(positions: PositionSet, places: IntArray) -> Flags:
    order = np.argsort(places)
    flags = np.zeros(len(places), np.bool_)
    flags[order] = positions.holds(*positions_of(places[order]))
    return flags
