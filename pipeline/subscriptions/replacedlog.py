"""What newer messages have replaced, as it is followed: rows of `replaced` (decision 0145)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.delta.logs.filestats import count
from pipeline.delta.reading.files import LiveFiles, read_files
from pipeline.delta.reading.messages import Bounds
from pipeline.delta.warehouse import Warehouse
from pipeline.subscriptions.replacedrows import POSITIONS, by_topic
from schemas import REPLACED
from state.positionset import PositionSet

_SLACK = 1 << 20
"""So many positions that are over may be held for nothing, and as many as there are others."""


class ReplacedLog:
    """The files of `replaced`: each is read once, and of what it says positions alone are held."""

    def __init__(self, warehouse: Warehouse) -> None:
        self._warehouse, self._live = warehouse, LiveFiles(warehouse, REPLACED, _file)
        self._read = set[str]()
        self._held: dict[str, PositionSet] = {}
        self._version = -1

    def look(self) -> Mapping[str, PositionSet]:
        """The positions that are replaced, by topic, as of the newest version; partitions are named by their topic.

        While nothing is replaced, that is a look at the log. It costs what came since the last look. Positions whose
        messages are gone may be missing.
        """
        if self._version <= 0 and self._live.newest(0) == 0:
            return self._held
        version, files = self._live.look()
        if version != self._version:
            self._follow(files)
            self._version = version
        return self._held

    def waiting(self, after: int, before: int) -> Iterator[pa.Table]:
        """Positions that were due after an instant (ms UTC), and were replaced by messages of ledgers before one."""
        _, files = self._live.look()
        for path, (held, _) in files.items():
            if held.last_due > after:
                rows = self._live.rows([path], ("ledger_id", "entry_id", "due_time", "by_ledger_id"))
                waits = pc.and_(
                    pc.greater(rows.column("due_time").cast(pa.int64()), after * 1_000),
                    pc.less(rows.column("by_ledger_id"), before),
                )
                yield rows.filter(waits)

    def _follow(self, files: Mapping[str, tuple[Bounds, int]]) -> None:
        """Read what is new. Files that were merged are read once more, and say the same."""
        rows = {path: count for path, (_, count) in files.items()}
        if sum(map(len, self._held.values())) > 2 * sum(rows.values()) + _SLACK:
            self._held, self._read = {}, set()
        for path in sorted(rows.keys() - self._read):
            found = by_topic(read_files(self._warehouse, REPLACED, [path], POSITIONS))
            # Those who look at what was held before see no change.
            self._held = self._held | {topic: _both(self._held.get(topic), own) for topic, own in found.items()}
        self._read = set(rows)


def _file(file: Mapping[str, Any]) -> tuple[Bounds, int]:
    return Bounds.of_file(file), count(file.get("stats")) or 0


def _both(held: PositionSet | None, more: PositionSet) -> PositionSet:
    """What is in one of both; only the ledgers that have more are made anew."""
    if held is None:
        return more
    return PositionSet({**dict(held.by_ledger()), **{each: held.entries(each) | own for each, own in more.by_ledger()}})
