"""The log of `consumer_events`, as far as it says who leases which slots: one replay for each subscription."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.client.consuming.events import ACK, NACK
from pipeline.client.consuming.rows import chosen
from pipeline.client.following.closedlog import Key
from pipeline.client.following.cursorlog import CursorSnapshot
from pipeline.client.following.tail import Actions, Follower
from pipeline.config.errors import VersionGone
from pipeline.config.routes import NotInDriver
from pipeline.delta.deltars import path_of
from pipeline.delta.logs.entries import entry
from pipeline.delta.logs.filestats import greatest
from pipeline.delta.logs.logfiles import appended
from pipeline.delta.reading.strangers import FOREIGN, broken, left_out
from pipeline.storage.arrays import arrow_schema
from pipeline.storage.files import Files
from schemas import CONSUMER_EVENTS
from state import LeaseReplay, LeaseRow

_COLUMNS = ["kind", "topic", "subscription", "life", "consumer", "session", "counter", "slot", "handed", "priority",
            "lease_ms"]  # fmt: skip


@dataclass
class _Folded:
    """A replay that has all rows up to a version."""

    replay: LeaseReplay
    upto: int


class LeaseLog(Follower):
    """Follows `consumer_events`."""

    def __init__(self, root: str, files: Files) -> None:
        """Stand behind the newest version."""
        super().__init__(files, path_of(root, CONSUMER_EVENTS))
        self._folded: dict[Key, _Folded] = {}
        self._begin_anew()

    def replay(self, key: Key) -> LeaseReplay | None:
        """Who leases the slots of a subscription; None when that has to begin with what settle says."""
        found = self._folded.get(key)
        return None if found is None else found.replay

    def begin(self, key: Key, snapshot: CursorSnapshot) -> LeaseReplay:
        """The same from what settle says, and what was said since.

        Raises:
            VersionGone: what was said since is gone; settle has said something newer.
        """
        folded = _Folded(snapshot.leases, snapshot.events)
        for version in range(folded.upto + 1, self.next):
            actions = entry(self._files, self._folder, version)
            if actions is None:
                raise VersionGone(CONSUMER_EVENTS.name, version, "_delta_log")
            self._fold({key: folded}, version, actions)
        self._folded[key] = folded
        return folded.replay

    def keep(self, keys: AbstractSet[Key]) -> None:
        """Forget all replays but these."""
        for key in self._folded.keys() - keys:
            del self._folded[key]

    def _take(self, version: int, actions: Actions) -> None:
        self._fold(self._folded, version, actions)

    def _begin_anew(self) -> None:
        """As well, all replays have to begin anew."""
        super()._begin_anew()
        self._folded = {}

    def _fold(self, replays: dict[Key, _Folded], version: int, actions: Actions) -> None:
        wanted = {key: each for key, each in replays.items() if each.upto < version}
        added = [add["path"] for add in appended(actions) if _may_have_leases(add)] if wanted else []
        # All of them first: a row that is folded in twice may not be void.
        tables = [self._leases(path, version) for path in added]
        for key, folded in wanted.items():
            for table in tables:
                folded.replay.apply(map(_row, chosen(table, key).to_pylist()))
            folded.upto = version

    def _leases(self, path: str, version: int) -> pa.Table:
        """The rows of a file that say who leases which slots."""
        table = self._readable(path, version)
        acks, nacks = (pc.not_equal(table.column("kind"), kind) for kind in (ACK, NACK))
        return table.filter(pc.and_(acks, nacks))

    def _readable(self, path: str, version: int) -> pa.Table:
        """The rows of a file; none of one that settle does not read either, since a stranger has left it."""
        added = [{"path": path, "version": version}]
        if any(each.reason == FOREIGN for each in left_out(self._files, self._folder, added)):
            return _no_rows()
        try:
            return self._small_rows(CONSUMER_EVENTS, path, version, _COLUMNS)
        except (NotInDriver, OSError, pa.ArrowException):
            if broken(self._files, self._folder, CONSUMER_EVENTS, added):
                return _no_rows()
            raise


def _no_rows() -> pa.Table:
    """A file without rows. Made when it is needed, since pyarrow loads pandas for it, which a client does not pay."""
    return arrow_schema(CONSUMER_EVENTS.columns).empty_table().select(_COLUMNS)


def _may_have_leases(add: dict[str, Any]) -> bool:
    """Whether a file may have rows of leases: in the order of their names, `ack` comes before all of those."""
    return bool(greatest(add.get("stats"), "kind") != ACK)


def _row(row: dict[str, Any]) -> LeaseRow:
    """A row as the fold takes it; what nobody should write is void there."""
    named = {name: row[name] for name in ("session", "counter", "slot", "handed")}
    more = {name: row[name] or 0 for name in ("priority", "lease_ms")}
    return LeaseRow(row["kind"], row["consumer"] or "", **named, **more)
