"""Guards at work: what is guarded is let go when it is due, or left out, or waits as they fail (decision 0061).

A guard that fails on some messages is asked about halves of them, and of halves of these, so that the others come
(decision 0114). What is not decided then is asked about apart from what comes later (decision 0100).
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
from pipeline.dispatch.searching import growing, searched
from pipeline.dispatch.suspects import RESTS, Place, Slow, Suspects
from pipeline.dispatch.withdrawn import because, without
from pipeline.storage.arrays import IntArray, arrow_schema, longs
from pipeline.subscriptions.guards import FOLDER, NUMBER, Guard, GuardFailed, Starting, seen
from pipeline.subscriptions.guardstates import GuardState, GuardStates
from pipeline.subscriptions.incarnations import Name
from pipeline.subscriptions.policies import Shaping
from schemas import GUARDED, REJECTED_DISPATCH, SUPPRESSED

_LOG = logging.getLogger(__name__)
AGAIN_MS = 5_000
"""A guard that failed is tried again after so long at the earliest."""
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
            Starting: nothing can, for some seconds.
        """
        ...

    def version(self, path: str) -> int:
        """The newest version of a table.

        Raises:
            GuardFailed: it is not there, or cannot be reached.
            Starting: nothing can be evaluated, for some seconds.
        """
        ...

    def ready(self) -> bool:
        """Whether it does not start just now. It does so meanwhile."""
        ...


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
        self._asked = dict[Name, Shaping]()
        self._errors = dict[Name, str]()
        self._suspects = dict[Name, Suspects]()
        self._unsure = dict[Name, tuple[str | None, str | None]]()

    def failing(self, shapings: Mapping[Name, Shaping], now: int) -> set[Name]:
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
        self._suspects = {name: each for name, each in self._suspects.items() if undecided.get(name)}

    def parted(
        self, runs: pa.Table, shapings: Mapping[Name, Shaping], version: int, look_up: LookUp, now: int
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
            Failed: a guard cannot be evaluated, whatever the message; nothing is decided.
        """
        numbers = mine(runs, shapings)
        if not len(numbers):
            nothing = runs.slice(0, 0)
            return Answer(runs, because(nothing, SUPPRESSED), nothing, nothing)
        some = runs.take(pa.array(numbers))
        suspects = {name: self._suspected(name, each) for name, each in shapings.items()}
        work = _Evaluating(some, shapings, self._evaluator, self._folders)
        work.apart = {name: each.ready(now) for name, each in suspects.items() if each.places}
        work.unsure = {name for name, each in shapings.items() if self._unsure.get(name) == _texts(each)}
        for piece in look_up(some):
            work.add(piece)
        for name in work.names:
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
        stays, waits, goes = work.undecided, work.postponed, work.unmet
        left, _ = without(some, *(np.concatenate(each) for each in zip(stays, waits, goes, strict=True)))
        left = pa.concat_tables([but(runs, numbers), left]).combine_chunks()
        return Answer(left, work.rows(version), *(without(some, *each)[1] for each in (stays, waits)))

    def _suspected(self, name: Name, shaping: Shaping) -> Suspects:
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


class _Evaluating:
    """The guards of some runs, on the messages of these, piece by piece.

    Attributes:
        names: the subscriptions.
        errors: how a guard fails on some messages.
        apart: the positions that are asked about apart from others, and whether they are now.
        asked, unasked: those of them that came, and all positions that are undecided.
        slow, slow_apart: a failure that took long, and one of what is asked apart.
        unsure: those whose guard is asked about no message first: it has ended its process, and so that was not asked.
        waiting: those of which something is postponed.
    """

    def __init__(
        self, runs: pa.Table, shapings: Mapping[Name, Shaping], evaluator: Evaluates, folders: Sequence[str]
    ) -> None:
        self._runs, self._shapings, self._evaluator, self._folders = runs, shapings, evaluator, folders
        self._read: dict[str, int] = {}
        self._code, self.names = coded(runs)
        self.errors: dict[Name, str] = {}
        self._guards = [self._guard(name) for name in self.names]
        self.apart: Mapping[Name, Mapping[Place, bool]] = {}
        self.asked, self.unasked = ({name: set[Place]() for name in self.names} for _ in range(2))
        self.slow, self.slow_apart = dict[Name, Slow](), dict[Name, Slow]()
        self.unsure, self.waiting = set[Name](), set[Name]()
        self._unmet, self._undecided, self._postponed = ([(_NONE, _NONE)] for _ in range(3))
        self._keys = [pa.array([], pa.string())]

    @property
    def unmet(self) -> tuple[IntArray, IntArray]:
        """Run and entry of what does not meet its guard."""
        return _joined(self._unmet)

    @property
    def undecided(self) -> tuple[IntArray, IntArray]:
        """Run and entry of that on which its guard fails."""
        return _joined(self._undecided)

    @property
    def postponed(self) -> tuple[IntArray, IntArray]:
        """Run and entry of that of which nothing can be said yet."""
        return _joined(self._postponed)

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
        entry = longs(messages, "entry_id")
        met, failing, waits = self._searched(name, guard, rows, lambda numbers: _places(own, entry, numbers))
        asked = np.setdiff1d(np.arange(len(run)), waits)
        if self.apart.get(name):
            self.asked[name].update(_places(own, entry, asked))
        self.unasked[name].update(_places(own, entry, failing))
        unmet = np.setdiff1d(asked, np.concatenate([met, failing]))
        self._unmet.append((run[unmet], entry[unmet]))
        self._undecided.append((run[failing], entry[failing]))
        self._postponed.append((run[waits], entry[waits]))
        self.waiting |= {name} if len(waits) else set()
        self._keys.append(messages.column("message_key").take(pa.array(unmet)).combine_chunks().cast(pa.string()))

    def _searched(
        self, name: Name, guard: Guard, rows: pa.Table, places_of: Callable[[IntArray], list[Place]]
    ) -> tuple[IntArray, IntArray, IntArray]:
        """The numbers of the rows that meet a guard, of those on which it fails or is not asked, and of the others.

        Of these nothing can be said yet.
        """
        others, apart, resting = self._split(name, rows, places_of)
        met, undecided = [_NONE], [longs(resting, NUMBER)]

        def look(parts: Sequence[pa.Table], slow: dict[Name, Slow]) -> None:
            found = searched(lambda part: self._evaluator.met_by(guard, part, versions), parts)
            met.append(found.met)
            undecided.append(found.undecided)
            if found.failed is not None:
                self.errors[name] = str(found.failed)
                if len(found.slow):
                    slow[name] = Slow(found.failed.took_ms, places_of(found.slow))
                self.unsure |= {name} if found.failed.ended else set()

        try:
            versions = {path: self._version(path) for path in guard.tables.values()}
            if name in self.unsure and name not in self.slow.keys() | self.slow_apart.keys():
                self._evaluator.met_by(guard, rows.slice(0, 0), versions)
                self.unsure.discard(name)
            if others.num_rows and name not in self.slow:
                look([others], self.slow)
            else:
                undecided.append(longs(others, NUMBER))
            if apart.num_rows and name not in self.slow and name not in self.slow_apart:
                look(growing(apart), self.slow_apart)
            else:
                undecided.append(longs(apart, NUMBER))
        except Starting:
            decided = np.concatenate(met), np.concatenate(undecided)
            return *decided, np.setdiff1d(longs(rows, NUMBER), np.concatenate(decided))
        except GuardFailed as error:
            raise Failed(name, self._shapings[name], str(error), error.took_ms) from error
        return np.concatenate(met), np.concatenate(undecided), _NONE

    def _split(
        self, name: Name, rows: pa.Table, places_of: Callable[[IntArray], list[Place]]
    ) -> tuple[pa.Table, pa.Table, pa.Table]:
        """Rows that are asked about together, those that are apart from these, and those that are not asked about."""
        known = self.apart.get(name)
        if not known:
            return rows, rows.slice(0, 0), rows.slice(0, 0)
        is_ready = pa.array([known.get(place) for place in places_of(longs(rows, NUMBER))], pa.bool_())
        return rows.filter(pc.is_null(is_ready)), rows.filter(is_ready), rows.filter(pc.invert(is_ready))

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


def _places(runs: pa.Table, entries: IntArray, numbers: IntArray) -> list[Place]:
    """The positions of some rows."""
    columns = longs(runs, "ledger_id"), entries, longs(runs, "redelivery_count")
    return list(zip(*(column[numbers].tolist() for column in columns), strict=True))


def _joined(places: Sequence[tuple[IntArray, IntArray]]) -> tuple[IntArray, IntArray]:
    run, entry = (np.concatenate(each) for each in zip(*places, strict=True))
    return run, entry


def _texts(shaping: Shaping) -> tuple[str | None, str | None]:
    return shaping.guard, shaping.guard_tables
