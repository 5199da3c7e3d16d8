"""Guards are asked about the messages of runs, piece by piece: who meets them, on whom they fail, who has to wait."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.config.errors import BadValue
from pipeline.config.paths import within
from pipeline.dispatch.core.holding import coded, cut
from pipeline.dispatch.core.runs import with_reason
from pipeline.dispatch.core.suspects import Place, Slow
from pipeline.dispatch.searching import growing, searched
from pipeline.storage.arrays import IntArray, arrow_schema, longs
from pipeline.subscriptions.guards import FOLDER, NUMBER, Guard, GuardFailed, Starting, seen
from pipeline.subscriptions.incarnations import Name
from pipeline.subscriptions.policies import Policies
from schemas import GUARDED, REJECTED_DISPATCH, SUPPRESSED

_NONE = np.empty(0, np.int64)
_OF_RUN = ("topic", "subscription", "due_time", "ledger_id", "redelivery_count")
_OF_MESSAGE = ("entry_id", "message_key", "properties", "publish_time", "payload")


class Failed(Exception):
    """The guard of a subscription cannot be evaluated.

    Attributes:
        also: other guards that cannot be, either.
    """

    def __init__(self, name: Name, guard: Policies, error: str, took_ms: int = 0) -> None:
        """Say of whom, and why, without a value of any row, since others read it, and how long it took (ms)."""
        super().__init__(error)
        self.name, self.guard, self.error, self.took_ms = name, guard, error, took_ms
        self.also: tuple[Failed, ...] = ()


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


class Asking:
    """The guards of some runs, on the messages of these, piece by piece.

    Attributes:
        names: the subscriptions.
        errors: how a guard fails on some messages.
        apart: the positions that are asked about apart from others, and whether they are now.
        asked, unasked: those of them that came, and all positions that are undecided.
        slow, slow_apart: a failure that took long, and one of what is asked apart.
        unsure: those whose guard is asked about no message first: it has ended its process, and so that was not asked.
        waiting: those of which something is postponed.
        failed: those whose guard cannot be evaluated, whatever the message.
    """

    def __init__(
        self, runs: pa.Table, shapings: Mapping[Name, Policies], evaluator: Evaluates, folders: Sequence[str]
    ) -> None:
        """Nothing is asked yet.

        Args:
            runs: of `redelivery`, all of those who have a guard.
            shapings: their policies.
            evaluator: is asked.
            folders: the tables that guards read lie in these.
        """
        self._runs, self._shapings, self._evaluator, self._folders = runs, shapings, evaluator, folders
        self._read: dict[str, int] = {}
        self._code, self._numbered = coded(runs)
        self.names = set(self._numbered)
        self.errors: dict[Name, str] = {}
        self.failed: dict[Name, Failed] = {}
        self._guards = dict[int, Guard]()
        for number, name in enumerate(self._numbered):
            with self._noting(name):
                self._guards[number] = self._guard(name)
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
        for number, name in enumerate(self._numbered):
            here = np.flatnonzero(code == number)
            if len(here) and name not in self.failed:
                with self._noting(name):
                    self._add(name, self._guards[number], messages.take(pa.array(here)).combine_chunks())

    def rows(self, version: int) -> pa.Table:
        """A run for each position that does not meet its guard."""
        run, entry = self.unmet
        found = with_reason(cut(self._runs, run, entry, entry), SUPPRESSED)
        kinds = arrow_schema(REJECTED_DISPATCH.columns)
        versions = [self._versions(self._guards[number]) for number in self._code[run].tolist()]
        columns = (
            pa.concat_arrays(self._keys),
            pa.repeat(version, len(run)),
            pa.array(versions, kinds.field(GUARDED[2]).type),
        )
        for name, column in zip(GUARDED, columns, strict=True):
            found = found.append_column(name, column)
        return found

    @contextmanager
    def _noting(self, name: Name) -> Iterator[None]:
        """What is asked of others does not end when a guard fails: so all that fail are known at once."""
        try:
            yield
        except Failed as failed:
            self.failed[name] = failed

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
                reason = (
                    f"the table {table} is not in {FOLDER} of the warehouse, nor where settings.guard_tables allows"
                )
                raise Failed(name, shaping, reason)
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
