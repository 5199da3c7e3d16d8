"""Reading what settle follows, version by version, by whole arrays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from pipeline.delta.logs.entries import appended, entry, versions
from pipeline.delta.reading.files import LiveFiles, read_files, read_strangers
from pipeline.delta.reading.strangers import LeftOut
from pipeline.delta.warehouse import Warehouse
from pipeline.settle.core.events import REFUSED
from schemas import COMMANDS, CONSUMER_EVENTS, Table


class Source:
    """A table that settle follows.

    Attributes:
        table: which one.
    """

    def __init__(self, warehouse: Warehouse, table: Table, columns: Sequence[str]) -> None:
        self._warehouse, self._files, self._path = warehouse, warehouse.files, warehouse.path(table)
        self.table, self._columns = table, list(columns)
        # The others are written by the stages: a file of theirs that cannot be read is no stranger's.
        self._strangers = table in (CONSUMER_EVENTS, COMMANDS)
        self._left = list[LeftOut]()

    def versions(self, after: int, upto: int) -> Iterator[tuple[int, pa.Table]]:
        """The rows that each version added, in the order of the log; versions without any are left out.

        Raises:
            VersionGone: the log does not have one of them any more.
        """
        for version, actions in versions(self._files, self._path, after, upto):
            if added := appended(actions):
                yield version, self._rows(version, added)

    def left_out(self) -> list[LeftOut]:
        """The files that were not read since the last time."""
        left, self._left = self._left, []
        return left

    def since(self, after: int, upto: int) -> Iterator[tuple[int, pa.Table]]:
        """The versions after one, with their rows.

        Where the log does not reach back so far, all that the table holds comes first, as of `after`.
        """
        if after < upto and entry(self._files, self._path, after + 1) is None:
            _, live = LiveFiles(self._warehouse, self.table, lambda _: None).look()
            yield upto, self._rows(upto, [{"path": path} for path in live])
            return
        yield from self.versions(after, upto)

    def _rows(self, version: int, added: Sequence[Mapping[str, Any]]) -> pa.Table:
        where = (self._warehouse, self.table)
        if not self._strangers:
            return read_files(*where, [each["path"] for each in added], self._columns)
        rows, left = read_strangers(*where, [{**each, "version": version} for each in added], self._columns)
        self._left += left
        return rows


def refused_files(sources: Iterable[Source]) -> Iterator[pa.Table]:
    """Rows of `rejected_settle` without their batch, about the files of sources that were not read."""
    for source in sources:
        files = [(each, each.path.encode(errors="backslashreplace").decode()) for each in source.left_out()]
        where = f"{source.table.name} version"
        rows = [{"reason": f"{each.reason}: {where} {each.version}, {path}: {each.text}"} for each, path in files]
        if rows:
            yield pa.Table.from_pylist(rows, schema=REFUSED)
