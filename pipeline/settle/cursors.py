"""The table `cursors`: what is open of each subscription that acknowledges, and how far settle has read.

Each batch adds the rows that have changed, or a version without rows: its note says how far the batch went. The rows
of a new batch replace older ones; when most of what the table holds is replaced, one file takes the place of all.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from pipeline.config.stages import SETTLE
from pipeline.delta.reading.files import LiveFiles, read_files
from pipeline.delta.warehouse import Warehouse
from pipeline.delta.writing.oncewriter import Sink
from pipeline.settle.core.listener import Listener
from pipeline.settle.core.opened import Opened, Row
from pipeline.settle.plan import Plan
from pipeline.storage.arrays import arrow_schema
from pipeline.subscriptions.incarnations import Name
from schemas import CURSORS

_FILES, _REPLACED = 64, 2
"""One file takes the place of all when there are more, and they hold so many times what it would. It is looked at
when so many have come, and at the first batch."""
_PIECE_BYTES = 64 << 20
"""Of the rows of a file."""
_SCHEMA = arrow_schema(CURSORS.schema)
_NOTHING_SENT: Mapping[str, int] = {}


class Cursors:
    """Writes the table for one checkpoint; reads it once."""

    def __init__(self, warehouse: Warehouse) -> None:
        """Look up the last batch."""
        self._sink = Sink(warehouse, CURSORS, SETTLE)
        self._warehouse, self._path = warehouse, warehouse.path(CURSORS)
        self._live = LiveFiles(warehouse.session, self._path, CURSORS, _size)
        self._added = _FILES

    @property
    def last(self) -> Plan | None:
        """The plan of the last batch that the table holds."""
        last = self._sink.last
        return None if last is None else Plan.of_note(last.note)

    @property
    def owner(self) -> str | None:
        """The checkpoint that wrote the last batch."""
        return None if self._sink.last is None else self._sink.last.owner

    @property
    def follows(self) -> bool:
        """Whether settle had something to follow after the last batch."""
        return self._sink.last is not None and bool(self._sink.last.note.get("follows"))

    def restored(self, listeners: Mapping[Name, Listener]) -> dict[Name, Opened]:
        """What is open of subscriptions, as the table says it. One that it does not name has nothing yet.

        Raises:
            CursorUnreadable: it is not what settle wrote.
        """
        _, files = self._live.look()
        newest: dict[tuple[str, str, int], dict[int, tuple[int, bytes | None]]] = defaultdict(dict)
        for path in files:
            for row in read_files(self._warehouse, CURSORS, [path]).to_pylist():
                blocks = newest[row["topic"], row["subscription"], row["life"]]
                known = blocks.get(row["block"])
                if known is None or known[0] < row["batch_id"]:
                    blocks[row["block"]] = row["batch_id"], row["bytes"]
        found = {}
        for name, listener in listeners.items():
            blocks = newest.get(listener.incarnation, {})
            own = {block: data for block, (_, data) in blocks.items() if data is not None}
            if own:
                found[name] = Opened.restored(listener, own)
        return found

    def write(
        self,
        owner: str,
        plan: Plan,
        held: Iterable[Opened],
        gone: Iterable[Opened],
        sent: Mapping[str, int] = _NOTHING_SENT,
        *,
        follows: bool = True,
    ) -> None:
        """Commit a batch: what has changed, how far it went, and whether there is something left to follow.

        Then keep the table small.

        Args:
            owner: of the checkpoint.
            plan: of the batch.
            held: what is open.
            gone: incarnations that are over.
            sent: what the note says of dead letters.
            follows: whether something is left to follow.
        """
        held = list(held)
        rows = [row for each in held for row in each.changed_rows()] + [
            row for each in gone for row in each.gone_rows()
        ]
        files = self._sink.appender.put(_tables(rows, plan))
        self._sink.commit(files, owner, plan.batch, plan.as_dict() | {"follows": follows, **sent})
        for each in held:
            each.saved()
        self._sink.appender.checkpoint()
        self._added += len(files)
        if self._added >= _FILES:
            self._added = 0
            self._shrink(plan, held)

    def _shrink(self, plan: Plan, held: Iterable[Opened]) -> None:
        """Put one file in the place of all, when most of what they hold is replaced."""
        version, files = self._live.look()
        if len(files) <= _FILES:
            return
        rows = [row for each in held for row in each.all_rows()]
        size = sum(len(row["bytes"]) for row in rows)
        if sum(files.values()) < _REPLACED * size:
            return
        put = self._sink.appender.put(_tables(rows, plan))
        self._sink.appender.replace(version, dict(files), put, {}, fewer=True)


def _tables(rows: Iterable[Row], plan: Plan) -> Iterable[pa.Table]:
    """Rows of a batch, in pieces that shall be files."""
    places: dict[str, Any] = {"batch_id": plan.batch, "events": plan.events, "released": plan.released}
    piece: list[Row] = []
    size = 0
    for row in rows:
        piece.append(row | places)
        size += len(row["bytes"] or b"")
        if size >= _PIECE_BYTES:
            yield pa.Table.from_pylist(piece, schema=_SCHEMA)
            piece, size = [], 0
    if piece:
        yield pa.Table.from_pylist(piece, schema=_SCHEMA)


def _size(file: Mapping[str, Any]) -> int:
    return int(file["size"])
