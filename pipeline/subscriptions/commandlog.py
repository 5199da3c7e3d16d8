"""The rows of `commands` that a stage needs: each file is read once, and held until maintenance takes it out."""

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.delta.reading.files import LiveFiles, read_strangers
from pipeline.delta.reading.messages import Bounds
from pipeline.delta.warehouse import Warehouse
from pipeline.storage.arrays import arrow_schema
from pipeline.subscriptions.commands import READ
from pipeline.subscriptions.settled import SettledMark, read_mark
from schemas import COMMANDS

_NOTHING = arrow_schema(COMMANDS.columns).empty_table().select(READ)


@dataclass(frozen=True)
class Commanded:
    """Rows of `commands`: the columns `READ` of those that are not below the mark of what is settled.

    Attributes:
        version: of the table.
        rows: those that were not there at the version before, or all of them.
        anew: whether they are all, because others are gone since then, or nobody looked before.
    """

    version: int
    rows: pa.Table
    anew: bool


_NEVER = Commanded(-1, _NOTHING, anew=True)


class CommandLog:
    """The files of `commands`.

    Rows below the mark of what is settled are for nobody any more: dispatch has taken their positions for good.
    """

    def __init__(self, warehouse: Warehouse) -> None:
        self._warehouse, self._live = warehouse, LiveFiles(warehouse, COMMANDS, Bounds.of_file)
        self._rows: dict[str, pa.Table] = {}
        self._mark: SettledMark | None = None
        self._known = _NEVER

    def look(self) -> Commanded:
        """What the newest version brought. Without any rows yet, that is a look at the log.

        It is the same object while the version is the same.
        """
        if self._known.version <= 0 and self._live.newest(0) == 0:
            if self._known.version < 0:
                self._known = Commanded(0, _NOTHING, anew=True)
            return self._known
        version, files = self._live.look()
        if version != self._known.version:
            self._known = self._above(version, files)
        return self._known

    def forget(self) -> None:
        """Let go what is below the mark by now, with the next look."""
        self._known, self._mark = _NEVER, None

    def _above(self, version: int, files: Mapping[str, Bounds]) -> Commanded:
        mark = read_mark(self._warehouse.files, self._warehouse.root)
        above = (path for path, held in files.items() if not mark.covers_all(held.last_due, held.last_ledger))
        unread = [path for path in above if path not in self._rows]
        fresh = {path: _needed(self._read(path, version), mark) for path in unread}
        anew = mark != self._mark or not self._rows.keys() <= files.keys()
        if anew:
            self._rows = {path: _needed(rows, mark) for path, rows in self._rows.items() if path in files}
        self._rows, self._mark = self._rows | fresh, mark
        news = self._rows if anew else fresh
        return Commanded(version, pa.concat_tables([_NOTHING, *news.values()]), anew)

    def _read(self, path: str, version: int) -> pa.Table:
        """The rows of a file; none of one that cannot be followed, which changes nothing."""
        added = [{"path": path, "version": version}]
        return read_strangers(self._warehouse, COMMANDS, added, READ)[0]


def _needed(rows: pa.Table, mark: SettledMark) -> pa.Table:
    """The rows that are not below a mark."""
    return rows.filter(pc.invert(mark.below(rows, "due_time")))
