"""Guards at work: what is guarded is let go when it is due, or left out, or waits as they fail (decision 0061)."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from pipeline.config.errors import BadValue
from pipeline.dispatch.expiry import LookUp
from pipeline.dispatch.holding import but, coded, cut, mine
from pipeline.dispatch.withdrawn import because, without
from pipeline.storage.arrays import IntArray, arrow_schema, longs
from pipeline.subscriptions.guards import NUMBER, Guard, GuardFailed, opened, seen
from pipeline.subscriptions.guardstates import GuardState, GuardStates
from pipeline.subscriptions.incarnations import Name
from pipeline.subscriptions.policies import Shaping
from schemas import GUARDED, REJECTED_DISPATCH, SUPPRESSED

_LOG = logging.getLogger(__name__)
AGAIN_MS = 5_000
"""A guard that failed is tried again after so long."""
_OF_RUN = ("topic", "subscription", "due_time", "ledger_id", "redelivery_count")
_OF_MESSAGE = ("entry_id", "message_key", "properties", "publish_time", "payload")


class Failed(Exception):
    """The guard of a subscription cannot be evaluated."""

    def __init__(self, name: Name, guard: Shaping, error: str) -> None:
        """Say of whom, and why."""
        super().__init__(error)
        self.name, self.guard, self.error = name, guard, error


@dataclass(frozen=True)
class _Failing:
    guard: tuple[str | None, str | None]
    error: str
    until: int


class Guards:
    """Evaluates guards, and knows which fail."""

    def __init__(self, states: GuardStates) -> None:
        """None has failed in this process; `states` tells people of those that do."""
        self._states, self._noted = states, set(states.all())
        self._failing = dict[Name, _Failing]()

    def failing(self, shapings: Mapping[Name, Shaping], now: int) -> set[Name]:
        """Those whose guard failed, and is not tried again at a time, ms UTC. Another guard is tried at once."""
        return {
            name
            for name, each in self._failing.items()
            if now < each.until and name in shapings and each.guard == _texts(shapings[name])
        }

    def failed(self, failed: Failed, now: int) -> None:
        """Let a guard rest, at a time in ms UTC; the log says why, once for each reason."""
        known, guard = self._failing.get(failed.name), _texts(failed.guard)
        self._failing[failed.name] = _Failing(guard, failed.error, now + AGAIN_MS)
        if known is None or (known.guard, known.error) != (guard, failed.error):
            _LOG.warning("the guard of %s fails, and what it guards waits: %s", "/".join(failed.name), failed.error)
            self._states.put(GuardState(*failed.name, failed.guard.guard or "", failed.error, now))
            self._noted.add(failed.name)

    def parted(
        self, runs: pa.Table, shapings: Mapping[Name, Shaping], version: int, look_up: LookUp
    ) -> tuple[pa.Table, pa.Table]:
        """Runs less what does not meet its guard, and that, with the columns `reason` and `GUARDED`.

        All guards read a table at one version. A position without a message is let go: it is refused as such.

        Args:
            runs: rows of `redelivery`; those of others than `shapings` names pass.
            shapings: policies of those that have a guard.
            version: of the registry, which has the guards.
            look_up: asked for the messages of what is guarded.

        Raises:
            Failed: a guard cannot be evaluated; nothing is decided.
        """
        numbers = mine(runs, shapings)
        if not len(numbers):
            return runs, because(runs.slice(0, 0), SUPPRESSED)
        some = runs.take(pa.array(numbers))
        work = _Evaluating(some, shapings)
        for piece in look_up(some):
            work.add(piece)
        self._passed(work.names)
        left, _ = without(some, *work.unmet)
        return pa.concat_tables([but(runs, numbers), left]).combine_chunks(), work.rows(version)

    def _passed(self, names: Iterable[Name]) -> None:
        for name in self._noted.intersection(names):
            _LOG.warning("the guard of %s works again", "/".join(name))
            self._states.drop(name)
            self._noted.discard(name)
            self._failing.pop(name, None)


class _Evaluating:
    """The guards of some runs, on the messages of these, piece by piece."""

    def __init__(self, runs: pa.Table, shapings: Mapping[Name, Shaping]) -> None:
        self._runs, self._shapings = runs, shapings
        self._opened: dict[str, DeltaTable] = {}
        self._code, self.names = coded(runs)
        self._guards = [self._guard(name) for name in self.names]
        self._run, self._entry, self._key = (
            [np.empty(0, np.int64)],
            [np.empty(0, np.int64)],
            [pa.array([], pa.string())],
        )

    @property
    def unmet(self) -> tuple[IntArray, IntArray]:
        """Run and entry of what does not meet its guard."""
        return np.concatenate(self._run), np.concatenate(self._entry)

    def add(self, messages: pa.Table) -> None:
        """Evaluate the guards on messages."""
        code = self._code[longs(messages, "run")]
        for number, name in enumerate(self.names):
            here = np.flatnonzero(code == number)
            if len(here):
                self._add(name, self._guards[number], messages.take(pa.array(here)).combine_chunks())

    def rows(self, version: int) -> pa.Table:
        """A run for each position that does not meet its guard."""
        run, entry = self.unmet
        found = because(cut(self._runs, run, entry, entry), SUPPRESSED)
        kinds = arrow_schema(REJECTED_DISPATCH.columns)
        told = [self._versions(self._guards[number]) for number in self._code[run].tolist()]
        columns = (
            pa.concat_arrays(self._key),
            pa.repeat(version, len(run)),
            pa.array(told, kinds.field(GUARDED[2]).type),
        )
        for name, column in zip(GUARDED, columns, strict=True):
            found = found.append_column(name, column)
        return found

    def _add(self, name: Name, guard: Guard, messages: pa.Table) -> None:
        run = longs(messages, "run")
        own = self._runs.take(pa.array(run))
        columns = {each: own.column(each) for each in _OF_RUN} | {each: messages.column(each) for each in _OF_MESSAGE}
        columns["deliver_at"] = pc.coalesce(messages.column("deliver_at"), messages.column("due_time"))
        rows = seen(columns | {NUMBER: pa.array(np.arange(len(run)))}, guard.columns())
        try:
            met = guard.met_by(rows, {each: self._at(path) for each, path in guard.tables.items()})
        except GuardFailed as error:
            raise Failed(name, self._shapings[name], str(error)) from error
        unmet = np.setdiff1d(np.arange(len(run)), met)
        self._run.append(run[unmet])
        self._entry.append(longs(messages, "entry_id")[unmet])
        self._key.append(messages.column("message_key").take(pa.array(unmet)).combine_chunks().cast(pa.string()))

    def _guard(self, name: Name) -> Guard:
        shaping = self._shapings[name]
        try:
            return Guard.of(shaping.guard or "", shaping.guard_tables)
        except BadValue as error:
            raise Failed(name, shaping, str(error)) from error

    def _at(self, path: str) -> DeltaTable:
        """A table, at one version for all that ask."""
        if path not in self._opened:
            self._opened[path] = opened(path)
        return self._opened[path]

    def _versions(self, guard: Guard) -> list[tuple[str, str]]:
        return [(name, str(self._opened[path].version())) for name, path in guard.tables.items()]


def _texts(shaping: Shaping) -> tuple[str | None, str | None]:
    return shaping.guard, shaping.guard_tables
