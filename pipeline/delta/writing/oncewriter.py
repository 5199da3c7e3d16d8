"""Writes that happen once: every commit says which batch of which query made it, and a start looks that up.

Spark repeats the last batch after a crash. A table whose last commit names that batch is left alone; the look-up
happens once, at the start of a query, because only its first batch can be a repetition. After that the answer is
kept in memory. (`txnAppId` / `txnVersion` ask the table on every write, at several times the cost.)
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from pipeline.config.errors import CheckpointBehind, ForeignOwner
from pipeline.config.options import Observer, nobody
from pipeline.delta.logs.entries import Commit, commits, last_note, newest, note_of
from pipeline.delta.warehouse import Warehouse
from pipeline.delta.writing.appender import Appender
from pipeline.delta.writing.datafiles import DataFile
from schemas import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NO_FILES: Mapping[str, int] = {}
Rows: TypeAlias = "DataFrame | pa.Table | Iterable[pa.Table]"
"""Rows of Spark, or of this process: pieces that shall be files, made as they are written."""


def last_commit(warehouse: Warehouse, table: Table, stage: str, after: int = -1) -> Commit | None:
    """The last commit of a stage to a table, after a version; None when there is none. Others' are passed over."""
    files, path = warehouse.files, warehouse.path(table)
    return last_note(files, path, stage, newest(files, path), after)


class Sink:
    """One table of one stage. Knows the last batch that the table holds.

    Attributes:
        last: what the stage noted in its last commit; None: there is none.
        version: of that commit; until this process has committed it may be a later one, which others made.
    """

    def __init__(
        self,
        warehouse: Warehouse,
        table: Table,
        stage: str,
        wrote: Observer = nobody,
        after: int = -1,
    ) -> None:
        """Look up what the table holds. The only look-up of the sink's life.

        Args:
            warehouse: where the table lies.
            table: the table.
            stage: who writes.
            wrote: told of each batch that was appended, with the name of the table.
            after: commits of the stage up to this version are not looked for.
        """
        self._path, self._table, self._stage, self._files = warehouse.path(table), table, stage, warehouse.files
        self._wrote = wrote
        self.appender = Appender(warehouse.session, self._path, table, self._alone)
        self.appender.open()
        self.last = last_commit(warehouse, table, stage, after)
        self.version = self.appender.newest()

    @property
    def name(self) -> str:
        """The name of the table."""
        return self._table.name

    def check_owner(self, owner: str | None, after: Collection[str] = ()) -> None:
        """Refuse a table that another checkpoint wrote, but for those that this one was told to take over from.

        Raises:
            ForeignOwner: the last commit names another owner; `owner` is None for a checkpoint not yet begun.
        """
        if self.last is not None and self.last.owner not in (owner, *after):
            raise ForeignOwner(self._stage, self._table.name, self.last.owner, owner)

    def found(self, owner: str, batch_id: int) -> Commit | None:
        """The commit of a batch, when the table holds it.

        Raises:
            CheckpointBehind: the table holds a later batch: somebody set the checkpoint back.
        """
        if self.last is None or self.last.owner != owner or self.last.batch < batch_id:
            return None
        if self.last.batch > batch_id:
            raise CheckpointBehind(self._stage, self._table.name, self.last.batch, batch_id)
        return self.last

    def since(self, version: int) -> list[tuple[int, Commit]]:
        """The commits of the stage after a version, each with its own, in order."""
        newest = self.appender.newest()
        back = zip(range(newest, version, -1), commits(self._files, self._path, newest), strict=False)
        noted = ((each, note_of(actions)) for each, actions in back)
        return [(each, commit) for each, commit in noted if commit is not None and commit.stage == self._stage][::-1]

    def append(self, rows: Rows, owner: str, batch_id: int, note: Mapping[str, Any]) -> Commit:
        """Append a batch, of Spark or of this process, in one commit, unless the table holds it; give that commit."""
        found = self.found(owner, batch_id)
        if found is not None:
            return found
        self.put(rows, owner, batch_id, note)
        self._wrote(self.name, batch_id)
        self.appender.checkpoint()
        assert self.last is not None  # noqa: S101 - a commit sets it
        return self.last

    def put(self, rows: Rows, owner: str, batch_id: int, note: Mapping[str, Any]) -> None:
        """Append rows in one commit, whatever the table holds."""
        files = self.appender.put(rows) if isinstance(rows, pa.Table | Iterable) else self.appender.write(rows)
        self.commit(files, owner, batch_id, note)

    def commit(
        self,
        files: Iterable[DataFile],
        owner: str,
        batch_id: int,
        note: Mapping[str, Any],
        gone: Mapping[str, int] = _NO_FILES,
    ) -> int:
        """Make files of a batch visible by one commit; give its version.

        Files may go by the same commit (`gone`: their sizes, by path), of a table that the stage alone writes.
        """
        commit = Commit(self._stage, owner, batch_id, note)
        version = self.appender.commit(files, commit.dumps(), gone)
        self.last, self.version = commit, version
        return version

    def _alone(self, owner: str | None) -> None:
        """Stop before a commit when another process has committed for this stage since the start.

        Maintenance may repeat the last note, so that the log before it can go.

        Raises:
            ForeignOwner: it has. On a file system without locks nothing else would stop the two.
        """
        commit = Commit.loads(owner)
        if commit is not None and commit.stage == self._stage and not self._knows(commit):
            ours = None if self.last is None else self.last.owner
            raise ForeignOwner(self._stage, self._table.name, commit.owner, ours)

    def _knows(self, commit: Commit) -> bool:
        return self.last is not None and (commit.owner, commit.batch) == (self.last.owner, self.last.batch)
