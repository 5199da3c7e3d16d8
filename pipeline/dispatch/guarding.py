"""Guards at work: what is guarded is let go when it is due, or left out, or waits as they fail (decision 0061).

A guard that fails on some messages is asked about halves of them, and of halves of these, so that the others come
(decision 0114).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.config.errors import BadValue
from pipeline.config.paths import within
from pipeline.dispatch.expiry import LookUp
from pipeline.dispatch.holding import but, coded, cut, mine
from pipeline.dispatch.withdrawn import because, without
from pipeline.storage.arrays import IntArray, arrow_schema, longs
from pipeline.subscriptions.guards import FOLDER, NUMBER, Guard, GuardFailed, seen
from pipeline.subscriptions.guardstates import GuardState, GuardStates
from pipeline.subscriptions.incarnations import Name
from pipeline.subscriptions.policies import Shaping
from schemas import GUARDED, REJECTED_DISPATCH, SUPPRESSED

_LOG = logging.getLogger(__name__)
AGAIN_MS, RESTS = 5_000, 10
"""A guard that failed is tried again after so long, or after so many times as long as it took to fail: so dispatch does
not wait for it all the time."""
QUESTIONS, SEARCH_MS = 200, 2_000
"""To find the messages on which a guard fails, it is asked so often in a batch, and for no longer than so."""
_NONE = np.empty(0, np.int64)
_OF_RUN = ("topic", "subscription", "due_time", "ledger_id", "redelivery_count")
_OF_MESSAGE = ("entry_id", "message_key", "properties", "publish_time", "payload")


class Failed(Exception):
    """The guard of a subscription cannot be evaluated."""

    def __init__(self, name: Name, guard: Shaping, error: str, took_ms: int = 0) -> None:
        """Say of whom, and why, without a value of any row, since others read it, and how long it took (ms)."""
        super().__init__(error)
        self.name, self.guard, self.error, self.took_ms = name, guard, error, took_ms


class Evaluates(Protocol):
    """Evaluates guards: `pipeline.dispatch.evaluator.Evaluator`."""

    def met_by(self, guard: Guard, rows: pa.Table, versions: Mapping[str, int]) -> IntArray:
        """The numbers of the rows that meet a guard, which reads its tables at these versions.

        Raises:
            GuardFailed: it cannot be evaluated.
        """
        ...

    def version(self, path: str) -> int:
        """The newest version of a table.

        Raises:
            GuardFailed: it is not there, or cannot be reached.
        """
        ...


class Answer(NamedTuple):
    """What the guards of a batch say.

    Attributes:
        left: runs that come.
        unmet: runs that do not meet their guard, with the columns `reason` and `GUARDED`.
        undecided: runs whose guard cannot be evaluated on their messages.
    """

    left: pa.Table
    unmet: pa.Table
    undecided: pa.Table


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
        self._asked = dict[Name, Shaping]()
        self._errors = dict[Name, str]()

    def failing(self, shapings: Mapping[Name, Shaping], now: int) -> set[Name]:
        """Those whose guard failed, and is not tried again at a time, ms UTC. Another guard is tried at once."""
        return {
            name
            for name, each in self._failing.items()
            if now < each.until and name in shapings and each.guard == _texts(shapings[name])
        }

    def failed(self, failed: Failed, now: int) -> None:
        """Let a guard rest, at a time in ms UTC; the log says why, once for each reason."""
        until = now + max(AGAIN_MS, RESTS * failed.took_ms)
        self._failing[failed.name] = _Failing(_texts(failed.guard), failed.error, until)
        self._note(GuardState(*failed.name, failed.guard.guard or "", failed.error, now))

    def look(self, undecided: Mapping[Name, int], now: int) -> None:
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

    def parted(self, runs: pa.Table, shapings: Mapping[Name, Shaping], version: int, look_up: LookUp) -> Answer:
        """What the guards of some runs say.

        All guards read a table at one version. A position without a message is let go: it is refused as such.

        Args:
            runs: rows of `redelivery`; those of others than `shapings` names pass.
            shapings: policies of those that have a guard.
            version: of the registry, which has the guards.
            look_up: asked for the messages of what is guarded.

        Raises:
            Failed: a guard cannot be evaluated, whatever the message; nothing is decided.
        """
        numbers = mine(runs, shapings)
        if not len(numbers):
            return Answer(runs, because(runs.slice(0, 0), SUPPRESSED), runs.slice(0, 0))
        some = runs.take(pa.array(numbers))
        work = _Evaluating(some, shapings, self._evaluator, self._folders)
        for piece in look_up(some):
            work.add(piece)
        for name in work.names:
            self._failing.pop(name, None)
            self._asked[name] = shapings[name]
        self._errors |= work.errors
        stays, goes = work.undecided, work.unmet
        left, _ = without(some, *(np.concatenate(each) for each in zip(stays, goes, strict=True)))
        _, undecided = without(some, *stays)
        return Answer(pa.concat_tables([but(runs, numbers), left]).combine_chunks(), work.rows(version), undecided)

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


def searched(ask: Callable[[pa.Table], IntArray], rows: pa.Table) -> tuple[IntArray, IntArray, GuardFailed | None]:
    """Which messages meet a guard, and on which it fails: these are found by halves, within bounds.

    Args:
        ask: evaluates the guard on rows; the numbers of those that meet it.
        rows: the messages, with a column `NUMBER`.

    Returns:
        The numbers of the messages that meet it; of those on which it fails, or which were not asked about in the end;
        and how it fails.

    Raises:
        GuardFailed: it fails on no message, too, or takes too long.
    """
    try:
        return ask(rows), _NONE, None
    except GuardFailed as error:
        failed = error
    if failed.took_ms >= SEARCH_MS:
        raise failed
    ask(rows.slice(0, 0))
    met, undecided, parts = [_NONE], [_NONE], _halves(rows) or [rows]
    hopeless, spent_ms = 2 * rows.num_rows.bit_length() + 8, 0
    for _ in range(QUESTIONS):
        if not parts or spent_ms >= SEARCH_MS or hopeless < 0:
            break
        part = parts.pop()
        try:
            met.append(ask(part))
            hopeless = QUESTIONS
        except GuardFailed as error:
            failed, spent_ms, hopeless = error, spent_ms + error.took_ms, hopeless - 1
            parts += _halves(part)
            undecided += [longs(part, NUMBER)] if part.num_rows == 1 else []
    undecided += [longs(part, NUMBER) for part in parts]
    return np.concatenate(met), np.concatenate(undecided), failed


def _halves(rows: pa.Table) -> list[pa.Table]:
    """Two halves of rows; none of a single one."""
    middle = rows.num_rows // 2
    return [rows.slice(0, middle), rows.slice(middle)] if middle else []


class _Evaluating:
    """The guards of some runs, on the messages of these, piece by piece.

    Attributes:
        names: the subscriptions.
        errors: how a guard fails on some messages.
    """

    def __init__(
        self, runs: pa.Table, shapings: Mapping[Name, Shaping], evaluator: Evaluates, folders: Sequence[str]
    ) -> None:
        self._runs, self._shapings, self._evaluator, self._folders = runs, shapings, evaluator, folders
        self._read: dict[str, int] = {}
        self._code, self.names = coded(runs)
        self.errors: dict[Name, str] = {}
        self._guards = [self._guard(name) for name in self.names]
        self._unmet, self._undecided = ([(_NONE, _NONE)] for _ in range(2))
        self._keys = [pa.array([], pa.string())]

    @property
    def unmet(self) -> tuple[IntArray, IntArray]:
        """Run and entry of what does not meet its guard."""
        return _joined(self._unmet)

    @property
    def undecided(self) -> tuple[IntArray, IntArray]:
        """Run and entry of that on which its guard fails."""
        return _joined(self._undecided)

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
            pa.concat_arrays(self._keys),
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
            versions = {path: self._version(path) for path in guard.tables.values()}
            met, failing, why = searched(lambda part: self._evaluator.met_by(guard, part, versions), rows)
        except GuardFailed as error:
            raise Failed(name, self._shapings[name], str(error), error.took_ms) from error
        unmet = np.setdiff1d(np.arange(len(run)), np.concatenate([met, failing]))
        entry = longs(messages, "entry_id")
        self._unmet.append((run[unmet], entry[unmet]))
        self._undecided.append((run[failing], entry[failing]))
        self._keys.append(messages.column("message_key").take(pa.array(unmet)).combine_chunks().cast(pa.string()))
        if why is not None:
            self.errors[name] = str(why)

    def _guard(self, name: Name) -> Guard:
        """The guard of a subscription, with its tables where they were found to lie."""
        shaping = self._shapings[name]
        try:
            guard = Guard.of(shaping.guard or "", shaping.guard_tables)
        except BadValue as error:
            raise Failed(name, shaping, str(error)) from error
        places = dict[str, str]()
        for table, path in guard.tables.items():
            place = within(path, self._folders)
            if place is None:
                told = f"the table {table} is not in {FOLDER} of the warehouse, nor where settings.guard_tables allows"
                raise Failed(name, shaping, told)
            places[table] = place
        return replace(guard, tables=places)

    def _version(self, path: str) -> int:
        """The version of a table, the same for all that ask."""
        if path not in self._read:
            self._read[path] = self._evaluator.version(path)
        return self._read[path]

    def _versions(self, guard: Guard) -> list[tuple[str, str]]:
        return [(name, str(self._read[path])) for name, path in guard.tables.items()]


def _joined(places: Sequence[tuple[IntArray, IntArray]]) -> tuple[IntArray, IntArray]:
    run, entry = (np.concatenate(each) for each in zip(*places, strict=True))
    return run, entry


def _texts(shaping: Shaping) -> tuple[str | None, str | None]:
    return shaping.guard, shaping.guard_tables
