"""Guards at work: what is guarded is let go when it is due, or left out, or waits as they fail (decision 0061).

A guard that fails on some messages is asked about halves of them, and of halves of these, so that the others come
(decision 0114). What is not decided then is asked about apart from what comes later (decision 0100).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pipeline.dispatch.asking import Asking, Evaluates, Failed
from pipeline.dispatch.core.expiry import LookUp
from pipeline.dispatch.core.holding import rows_except, rows_of_subscriptions
from pipeline.dispatch.core.runs import with_reason, without
from pipeline.dispatch.core.suspects import RESTS, Slow, Suspects
from pipeline.subscriptions.guards import GuardState, GuardStates
from pipeline.subscriptions.incarnations import Name
from pipeline.subscriptions.policies import Policies
from schemas import SUPPRESSED
from state.units import Ms

_LOG = logging.getLogger(__name__)
AGAIN_MS = 5_000
"""A guard that failed is tried again after so long at the earliest."""


class Answer(NamedTuple):
    """What the guards of a batch say.

    Attributes:
        left: runs that come.
        unmet: runs that do not meet their guard, with the columns `reason` and `GUARDED`.
        undecided: runs whose guard cannot be evaluated on their messages.
        postponed: runs of which nothing can be said before the process that evaluates guards has started.
    """

    left: pa.Table
    unmet: pa.Table
    undecided: pa.Table
    postponed: pa.Table


@dataclass(frozen=True)
class _Failing:
    guard: tuple[str | None, str | None]
    error: str
    until: int


class Guards:
    """Evaluates guards, and knows which fail."""

    def __init__(self, states: GuardStates, evaluator: Evaluates, folders: Sequence[str]) -> None:
        """None has failed in this process; `states` tells people of those that do.

        Args:
            states: of the warehouse.
            evaluator: evaluates them.
            folders: the tables that guards read lie in these.
        """
        self._states, self._evaluator, self._noted = states, evaluator, states.all()
        self._folders = folders
        self._failing = dict[Name, _Failing]()
        self._asked = dict[Name, Policies]()
        self._errors = dict[Name, str]()
        self._suspects = dict[Name, Suspects]()
        self._unsure = dict[Name, tuple[str | None, str | None]]()

    def failing(self, shapings: Mapping[Name, Policies], now: Ms) -> set[Name]:
        """Those whose guard failed, and is not tried again at a time, ms UTC. Another guard is tried at once.

        While the process that evaluates guards starts, those are all that have one.
        """
        guarded = {name for name, each in shapings.items() if each.guard is not None}
        if guarded and not self._evaluator.ready():
            return guarded
        return {
            name
            for name, each in self._failing.items()
            if now < each.until and name in shapings and each.guard == _texts(shapings[name])
        }

    def failed(self, failed: Failed, now: Ms) -> None:
        """Let a guard rest, at a time in ms UTC; the log says why, once for each reason."""
        until = now + max(AGAIN_MS, RESTS * failed.took_ms)
        self._failing[failed.name] = _Failing(_texts(failed.guard), failed.error, until)
        self._note(GuardState(*failed.name, failed.guard.guard or "", failed.error, now))

    def look(self, undecided: Mapping[Name, int], now: Ms) -> None:
        """Tell people of guards that fail on some messages, and of those that work again.

        Args:
            undecided: of how many messages that are held a guard could not be evaluated.
            now: the time, ms UTC.
        """
        for name, shaping in self._asked.items():
            count, error = undecided.get(name, 0), self._errors.get(name)
            if count and error is not None:
                self._note(GuardState(*name, shaping.guard or "", error, now, count))
            elif not count and name in self._noted and name not in self._failing:
                _LOG.warning("the guard of %s works again", "/".join(name))
                self._states.drop(name)
                del self._noted[name]
        self._asked.clear()
        self._suspects = {name: each for name, each in self._suspects.items() if undecided.get(name)}

    def split_by_guard(
        self, runs: pa.Table, shapings: Mapping[Name, Policies], version: int, look_up: LookUp, now: Ms
    ) -> Answer:
        """What the guards of some runs say.

        All guards read a table at one version. A position without a message is let go: it is refused as such.

        Args:
            runs: rows of `redelivery`; those of others than `shapings` names pass.
            shapings: policies of those that have a guard.
            version: of the registry, which has the guards.
            look_up: asked for the messages of what is guarded.
            now: the time, ms UTC.

        Raises:
            Failed: some guards cannot be evaluated, whatever the message; nothing is decided.
        """
        numbers = rows_of_subscriptions(runs, shapings)
        if not len(numbers):
            nothing = runs.slice(0, 0)
            return Answer(runs, with_reason(nothing, SUPPRESSED), nothing, nothing)
        some = runs.take(pa.array(numbers))
        suspects = {name: self._suspected(name, each) for name, each in shapings.items()}
        work = Asking(some, shapings, self._evaluator, self._folders)
        work.apart = {name: each.ready(now) for name, each in suspects.items() if each.places}
        work.unsure = {name for name, each in shapings.items() if self._unsure.get(name) == _texts(each)}
        for piece in look_up(some):
            work.add(piece)
        for name in work.names - work.failed.keys():
            if name not in work.waiting:
                self._failing.pop(name, None)
                self._asked[name] = shapings[name]
            decided = work.asked[name] - work.unasked[name]
            suspects[name].follow(decided, work.unasked[name], work.slow_apart.get(name, Slow()), now)
            self._suspects[name] = suspects[name]
        self._unsure = {name: _texts(shapings[name]) for name in work.unsure}
        self._errors |= work.errors
        for name, slow in work.slow.items():
            self._failing[name] = _Failing(_texts(shapings[name]), work.errors[name], now + RESTS * slow.took_ms)
        if work.failed:
            failed, *also = work.failed.values()
            failed.also = tuple(also)
            raise failed
        stays, waits, goes = work.undecided, work.postponed, work.unmet
        left, _ = without(some, *(np.concatenate(each) for each in zip(stays, waits, goes, strict=True)))
        left = pa.concat_tables([rows_except(runs, numbers), left]).combine_chunks()
        return Answer(left, work.rows(version), *(without(some, *each)[1] for each in (stays, waits)))

    def _suspected(self, name: Name, shaping: Policies) -> Suspects:
        known = self._suspects.get(name)
        return known if known is not None and known.guard == _texts(shaping) else Suspects(_texts(shaping))

    def _note(self, state: GuardState) -> None:
        """Tell people once for each reason."""
        name = state.topic, state.subscription
        known = self._noted.get(name)
        if known is None or replace(known, since_ms=state.since_ms, messages=state.messages) != state:
            what = "what it guards" if not state.messages else f"{state.messages} messages"
            _LOG.warning("the guard of %s fails, and %s waits: %s", "/".join(name), what, state.error)
        if known is None or replace(known, since_ms=state.since_ms) != state:
            self._states.put(state)
        self._noted[name] = state


def _texts(shaping: Policies) -> tuple[str | None, str | None]:
    return shaping.guard, shaping.guard_tables
