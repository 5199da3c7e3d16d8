"""The backlog of dispatch: positions that are due and held back, in the table `held` (decision 0059).

The table has what is held now and nothing else, as runs in the columns of `redelivery`, and with the time at which a
run is tried again whose guard could not be evaluated (decision 0114). Dispatch alone writes it: each of its batches
takes out files and puts others in by one commit. What a batch with deliveries does to it is part of that batch's note
on the shelf, and done right after it, or at the next start.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.config.lazyspark import raised
from pipeline.config.stages import DISPATCH
from pipeline.delta.checkpoints import Offset
from pipeline.delta.logs.entries import Commit, entry, last_note, newest, note_of
from pipeline.delta.reading.files import LiveFiles, read_files
from pipeline.delta.warehouse import Warehouse
from pipeline.delta.writing.oncewriter import Sink
from pipeline.dispatch.backlogchange import HELD_KINDS, BacklogChange, as_held
from pipeline.dispatch.core.fairness import split_chosen
from pipeline.dispatch.core.holding import (
    AGAIN,
    Allowance,
    Share,
    Who,
    counted,
    in_order,
    rows_except,
    rows_of_subscriptions,
    split_by_allowance,
)
from pipeline.dispatch.prepared import HeldChange, PreparedStore
from pipeline.dispatch.turns import LooksUp, Served, Turns, of_incarnation
from pipeline.storage.arrays import IntArray
from pipeline.subscriptions.fairness import FairRule
from pipeline.subscriptions.incarnations import Name
from schemas import HELD

_ROWS = 1 << 16
"""A file has no more runs."""
_NOTHING = Allowance(0)
_SMALL, _MANY = 1 << 13, 32
"""Files with fewer runs are merged when there are so many."""


@dataclass(frozen=True)
class HeldFile:
    """A file of the table: its size in bytes, its rows, what it holds of whom, and on how many messages guards fail."""

    size: int
    rows: int
    shares: Mapping[Who, Share]
    undecided: Mapping[Name, int]


class Backlog:
    """What is held, known by file; rows are read when some of them are taken."""

    def __init__(self, warehouse: Warehouse, sink: Sink, values: LooksUp | None = None) -> None:
        """Read who has how much in which file. Nothing was ever held: a look at the log.

        Args:
            warehouse: where the table lies.
            sink: writes it.
            values: looks values up, of subscriptions that have turns; None: nothing is taken.
        """
        self._warehouse, self._store, self._path, self._sink = warehouse, warehouse.files, warehouse.path(HELD), sink
        self._live = LiveFiles(warehouse, HELD, lambda file: int(file["size"]))
        self._files: dict[str, HeldFile] = {}
        self._held: dict[Who, Share] = {}
        self.version = newest(self._store, self._path)
        self._turns = Turns(values, () if sink.last is None else sink.last.note.get("turns", ()))
        self._written = BacklogChange()
        if self.version:
            self._look()

    @property
    def waiting(self) -> Mapping[Who, Share]:
        """What is held of each incarnation of a subscription."""
        return self._held

    @property
    def undecided(self) -> Mapping[Name, int]:
        """On how many messages that are held the guard of a subscription fails."""
        found: dict[Name, int] = {}
        for each in self._files.values():
            for name, count in each.undecided.items():
                found[name] = found.get(name, 0) + count
        return found

    def split_by_allowance(
        self, runs: pa.Table, allowed: Mapping[Name, Allowance], lives: Mapping[Name, int]
    ) -> tuple[pa.Table, BacklogChange]:
        """Runs of a batch that are taken now, with those that come from the backlog; and what becomes of it.

        Args:
            runs: rows of `redelivery`; those of nobody named pass through.
            allowed: how much may be taken of those whose runs are held, or may have to be.
            lives: the present life of each subscription; what is held for another one goes.
        """
        if not allowed:
            return runs, BacklogChange()
        served = self._turns.served(allowed, lives)
        numbers = rows_of_subscriptions(runs, allowed)
        paths = self._wanted(allowed, lives, served)
        if not len(numbers) and not paths:
            return runs, BacklogChange()
        old, new = _living(self._rows(paths), lives), as_held(runs.take(pa.array(numbers)))
        own = old.take(pa.array(rows_of_subscriptions(old, allowed)))
        concerned = {(topic, name) for each in (own, new) for topic, name, _ in counted(each)}
        bounds, new = {name: allowed[name] for name in allowed if name in concerned}, _living(new, lives)
        taken, stays = self._split(own, new, allowed, served)
        rest = rows_except(old, rows_of_subscriptions(old, allowed))
        passing = pa.concat_tables([rows_except(runs, numbers), taken.select(runs.column_names)]).combine_chunks()
        fresh = new.take(pa.array(rows_of_subscriptions(new, dict.fromkeys(self._turns.names))))
        held = in_order(pa.concat_tables([rest, stays]))
        return passing, BacklogChange(tuple(paths), held, bounds, served, fresh)

    def unready(
        self,
        rules: Mapping[Name, FairRule],
        allowed: Mapping[Name, Allowance],
        lives: Mapping[Name, int],
        *,
        whole: bool = False,
    ) -> set[Name]:
        """Those of whom something may be taken in turn, and not all that is held is looked up.

        A portion of it is looked up now, or the whole.

        Args:
            rules: those who have turns.
            allowed: how much may be taken.
            lives: the present life of each subscription.
            whole: all of it.
        """
        self._turns.follow(rules, self._held)
        found = set[Name]()
        for who in self._held if rules else ():
            name, most = who[:2], allowed.get(who[:2], _NOTHING)
            if name in rules and most.positions > 0 and lives.get(name) == who[2]:
                rows = partial(self._rows_of, who)
                found |= set() if self._turns.ready(who, rules[name], rows, whole=whole) else {name}
        return found

    def _rows_of(self, who: Who) -> pa.Table:
        """All that is held of an incarnation."""
        return of_incarnation(self._rows([path for path, file in self._files.items() if who in file.shares]), who)

    def _split(
        self, own: pa.Table, new: pa.Table, allowed: Mapping[Name, Allowance], served: Mapping[Who, Served]
    ) -> tuple[pa.Table, pa.Table]:
        """Runs that are taken, and those that stay, of what was held and of what is new.

        Of who has turns, and of whom something is held, nothing is taken that is new: it is held, and chosen from then
        on. That is so whether values are known or not: a repetition may know fewer than the batch did.
        """
        ruled = dict.fromkeys(self._turns.ruled)
        if not ruled:
            return split_by_allowance(pa.concat_tables([own, new]), allowed)
        names = {who[:2]: None for who in served}
        old = rows_except(own, rows_of_subscriptions(own, names))
        fresh = rows_of_subscriptions(new, ruled)
        taken, stays = split_by_allowance(pa.concat_tables([old, rows_except(new, fresh)]), allowed)
        chosen = [split_chosen(of_incarnation(own, who), each.choice.keys) for who, each in served.items()]
        taken = pa.concat_tables([taken, *(each for each, _ in chosen)])
        return taken, pa.concat_tables([stays, *(rest for _, rest in chosen), new.take(pa.array(fresh))])

    def written(self, change: BacklogChange) -> HeldChange:
        """Write the files of a change, which nobody sees yet."""
        files = self._sink.appender.put(
            change.held.slice(start, _ROWS) for start in range(0, change.held.num_rows, _ROWS)
        )
        self._written = change
        gone = {path: self._files[path].size for path in change.gone}
        return HeldChange(self.version, gone, tuple(files), self._turns.noted(change.served))

    def commit(
        self, change: HeldChange, owner: str, batch: int, ends: tuple[Offset | None, Offset], since: int | None = None
    ) -> None:
        """Let a change be, by one commit, which notes where its batch begins and ends in `redelivery`.

        It notes `since`, too: the version of the table before the first change of which something is not visible, if
        that was before this one.
        """
        _commit(self._sink, change, owner, batch, ends, since)
        self._sink.appender.checkpoint()
        self._look()
        done, self._written = self._written, BacklogChange()
        gone = {name for name, most in done.allowed.items() if not most.is_nothing} - {who[:2] for who in done.served}
        self._turns.done(done.served, done.back, done.fresh, gone)

    def _wanted(
        self, allowed: Mapping[Name, Allowance], lives: Mapping[Name, int], served: Mapping[Who, Served]
    ) -> list[str]:
        """The files that have what may be taken, or what is nobody's any more; and small ones that are too many."""
        found = set[str]()
        for who in self._held:
            most = allowed.get(who[:2], _NOTHING)
            if lives.get(who[:2]) != who[2]:
                found |= {path for path, file in self._files.items() if who in file.shares}
            elif who in served:
                found |= self._with(who, served[who].choice.keys.due)
            elif not most.is_nothing:
                found |= self._first_of(who, most)
        small = {path for path, file in self._files.items() if file.rows < _SMALL} - found
        return sorted(found | small if len(small) >= _MANY else found)

    def _with(self, who: Who, due: IntArray) -> set[str]:
        """The files in which positions of an incarnation may be that are due at some times, us UTC."""
        times = np.unique(due // 1_000)
        shares = ((path, file.shares[who]) for path, file in self._files.items() if who in file.shares)
        ends = ((path, *np.searchsorted(times, (each.first_due, each.last_due + 1))) for path, each in shares)
        return {path for path, first, end in ends if first < end}

    def _first_of(self, who: Who, most: Allowance) -> set[str]:
        """The files in which the first positions of an incarnation may be."""
        shares = [(file.shares[who], path) for path, file in self._files.items() if who in file.shares]
        found, count, until = set[str](), 0, most.due_until
        for share, path in sorted(shares, key=lambda each: each[0].first_due):
            if share.first_due > until:
                break
            found.add(path)
            if count < most.positions + most.expired <= count + share.positions:
                # What is taken is due no later than what these files have.
                until = min(until, max(self._files[each].shares[who].last_due for each in found))
            count += share.positions
        return found

    def _look(self) -> None:
        self.version, live = self._live.look()
        fresh = {path: self._read(path, size) for path, size in live.items() if path not in self._files}
        self._files = {path: each for path, each in (self._files | fresh).items() if path in live}
        self._held = {}
        for each in self._files.values():
            for who, share in each.shares.items():
                self._held[who] = self._held[who] | share if who in self._held else share

    def _read(self, path: str, size: int) -> HeldFile:
        rows = self._rows([path])
        failed = counted(rows.filter(pc.is_valid(rows.column(AGAIN))))
        undecided: dict[Name, int] = {}
        for (topic, name, _), share in failed.items():
            undecided[topic, name] = undecided.get((topic, name), 0) + share.positions
        return HeldFile(size, rows.num_rows, counted(rows), undecided)

    def _rows(self, paths: list[str]) -> pa.Table:
        if not paths:
            return HELD_KINDS.empty_table()
        return as_held(read_files(self._warehouse, HELD, paths))


def finish(warehouse: Warehouse, shelf: PreparedStore) -> None:
    """Do to `held` what the last batch on the shelf was to do, when it died before it had."""
    noted = [each for each in shelf.all() if each.held is not None]
    last = max(noted, key=lambda each: each.number, default=None)
    if last is None or last.held is None:
        return
    sink = Sink(warehouse, HELD, DISPATCH, after=last.held.version)
    # Others may have added versions, by a VACUUM or a property; none of them has a note of dispatch.
    if sink.last is None:
        since = min(each.held.version for each in noted if each.held is not None)
        _commit(sink, last.held, last.owner, last.batch, (last.begin, last.source), since)


def hidden_since(warehouse: Warehouse, shown: Commit | None) -> int | None:
    """The version of `held` after which batches changed it of which something may not be visible.

    A batch hands over at once what it takes out of `held`: that is visible when a later one shows anything.

    Args:
        warehouse: where the table lies.
        shown: the last commit of dispatch to `deliveries`; None: there is none.

    Returns:
        The version; None: the last commit is of an earlier release, which did not say it.
    """
    files, path = warehouse.files, warehouse.path(HELD)
    version = newest(files, path)
    last = last_note(files, path, DISPATCH, version)
    if last is None or _is_shown(last, shown):
        return version
    since = last.note.get("since")
    return None if since is None else int(since)


def taken_since(warehouse: Warehouse, shown: Commit | None) -> pa.Table | None:
    """The runs in the files that such batches took out of `held`, those that they put in again among them.

    None: nobody can tell, since the log, or a file, is gone.
    """
    files, path = warehouse.files, warehouse.path(HELD)
    since, last, names = hidden_since(warehouse, shown), newest(files, path), list[str]()
    if since is None:
        return None
    for version in range(since + 1, last + 1):
        actions = entry(files, path, version)
        if actions is None:
            return None
        commit = note_of(actions)
        if commit is None or not _is_shown(commit, shown):
            names += [unquote(each["remove"]["path"]) for each in actions if "remove" in each]
    try:
        return read_files(warehouse, HELD, names) if names else HELD_KINDS.empty_table()
    except raised("AnalysisException", FileNotFoundError):
        # The latter is what Spark says where only it reaches the files.
        return None


def _is_shown(commit: Commit, shown: Commit | None) -> bool:
    """Whether a commit to `held` is of a batch up to the one that is visible."""
    if shown is None:
        return False
    mine = commit.owner == shown.owner and commit.batch <= shown.batch
    return mine or tuple(commit.note["source"]) < tuple(shown.note["source"])


def _commit(
    sink: Sink, change: HeldChange, owner: str, batch: int, ends: tuple[Offset | None, Offset], since: int | None
) -> None:
    begin, source = ends
    note: dict[str, object] = {"begin": begin, "source": source, "since": change.version if since is None else since}
    note |= {"turns": change.turns} if change.turns else {}
    sink.commit(change.added, owner, batch, note, change.gone)


def _living(rows: pa.Table, lives: Mapping[Name, int]) -> pa.Table:
    """The runs of present lives."""
    gone = {(topic, name, life) for topic, name, life in counted(rows) if lives.get((topic, name)) != life}
    if not gone:
        return rows
    columns = (rows.column(name).to_pylist() for name in ("topic", "subscription", "life"))
    return rows.filter(pa.array([each not in gone for each in zip(*columns, strict=True)]))
