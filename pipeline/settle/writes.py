"""The table `cursors`: what is open of whoever acknowledges, and how far settle has read; and what others read of it.

Each batch adds the rows that have changed, or a version without rows: its note says how far the batch went. The rows
of a new batch replace older ones; when most of what the table holds is replaced, one file takes the place of all.

The tables that others read have each batch once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.config.options import Observer
from pipeline.config.stages import SETTLE
from pipeline.delta.logs.entries import appended, commits, newest, note_of
from pipeline.delta.reading.files import LiveFiles, read_files
from pipeline.delta.warehouse import Warehouse
from pipeline.delta.writing.batchcommits import BatchCommits
from pipeline.delta.writing.oncewriter import Sink
from pipeline.settle.core.fold import Outcome
from pipeline.settle.core.listener import Listener
from pipeline.settle.core.opened import CursorState, Row
from pipeline.settle.letters import DeadLetters
from pipeline.settle.plan import WRITTEN, Plan
from pipeline.storage.arrays import arrow_schema
from pipeline.subscriptions.incarnations import Name
from pipeline.subscriptions.letters import BEFORE_LETTERS, LETTERS
from schemas import CLOSED, CURSORS, INBOX, MESSAGE_MISSING, REJECTED_SETTLE, RESCHEDULED, SEGMENTS
from state import Move, Positions
from state.chunk import Chunk
from state.units import us

_FILES, _REPLACED = 64, 2
"""One file takes the place of all when there are more, and they hold so many times what it would. It is looked at
when so many have come, and at the first batch."""
_PIECE_BYTES = 64 << 20
"""Of the rows of a file."""
_SCHEMA = arrow_schema(CURSORS.columns)
_NOTHING_SENT: Mapping[str, int] = {}


class Cursors:
    """Writes the table for one checkpoint; reads it once."""

    def __init__(self, warehouse: Warehouse) -> None:
        """Look up the last batch."""
        self._sink = Sink(warehouse, CURSORS, SETTLE)
        self._live = LiveFiles(warehouse, CURSORS, _size)
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

    def restored(self, listeners: Mapping[Name, Listener]) -> dict[Name, CursorState]:
        """What is open of subscriptions, as the table says it. One that it does not name has nothing yet."""
        _, files = self._live.look()
        newest: dict[tuple[str, str, int], dict[int, tuple[int, bytes | None]]] = defaultdict(dict)
        for path in files:
            for row in self._live.rows([path]).to_pylist():
                blocks = newest[row["topic"], row["subscription"], row["life"]]
                known = blocks.get(row["block"])
                if known is None or known[0] < row["batch_id"]:
                    blocks[row["block"]] = row["batch_id"], row["bytes"]
        found = {}
        for name, listener in listeners.items():
            blocks = newest.get(listener.incarnation, {})
            own = {block: data for block, (_, data) in blocks.items() if data is not None}
            if own:
                found[name] = CursorState.restored(listener, own)
        return found

    def write(
        self,
        owner: str,
        plan: Plan,
        held: Iterable[CursorState],
        gone: Iterable[CursorState],
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

    def _shrink(self, plan: Plan, held: Iterable[CursorState]) -> None:
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


class Writes:
    """Commits what comes of batches, but for `cursors`, in a stated order."""

    def __init__(self, warehouse: Warehouse, owner: str, after: int, observe: Observer) -> None:
        """Look up once what the tables hold.

        Args:
            warehouse: where they lie.
            owner: the identity of the checkpoint.
            after: the version of `segments` behind which the last batch may have written.
            observe: told of each step.
        """
        self._owner, self._observe = owner, observe
        self._letters, self._inbox = DeadLetters(warehouse), warehouse.path(INBOX)
        self._warehouse, self._files, self._path = warehouse, warehouse.files, warehouse.path(SEGMENTS)
        self._sinks = {t.name: Sink(warehouse, t, SETTLE, after=after if t is SEGMENTS else -1) for t in WRITTEN}
        self._last = [sink.last for sink in self._sinks.values() if sink.last is not None]

    def take_over(self) -> str:
        """Go on as the one who wrote last, if anybody has: its first batch may be torn, and its checkpoint lost."""
        self._owner = next((commit.owner for commit in self._last), self._owner)
        return self._owner

    def plans(self) -> list[Plan]:
        """The plans of the last batches that the tables held at the start."""
        return [Plan.of_note(commit.note) for commit in self._last]

    def moved(self, plan: Plan) -> dict[tuple[str, str, int], list[Move]] | None:
        """What a batch had put into the index at other due times when it was torn apart, by incarnation.

        None: it had put nothing there yet. What it has put there is decided, whatever the tables say by now.
        """
        if self._commits(plan).note(SEGMENTS) is None:
            return None
        for actions in commits(self._files, self._path, newest(self._files, self._path)):
            noted = note_of(actions)
            if noted is not None and (noted.stage, noted.batch) == (SETTLE, plan.batch):
                added = [each["path"] for each in appended(actions)]
                rows = read_files(self._warehouse, SEGMENTS, added)
                return _moves_of(rows.filter(pc.equal(rows.column("cause"), RESCHEDULED)))
        return None

    def write(self, outcome: Outcome, plan: Plan, *, fresh: bool, done: int | None = None) -> dict[str, int]:
        """Commit what is not there yet: dead letters first, then what is to come again, what is not, and why.

        A dead letter without a message is refused.

        Args:
            outcome: what comes of the batch.
            plan: of the batch.
            fresh: nothing of it was committed before.
            done: the last batch that is finished, when letters of later ones may be in `inbox`.

        Returns:
            What the doctor counts dead letters by, for the note in `cursors`; nothing when it cannot be told.
        """
        commits, sent = self._commits(plan), {LETTERS: -self._letters.appended}
        if outcome.letters and fresh:
            sent[BEFORE_LETTERS] = newest(self._files, self._inbox)
        if outcome.letters:
            for listener, positions in self._letters.append(outcome.letters, plan.batch, plan.letters, done):
                outcome.refuse(listener, positions, MESSAGE_MISSING)
            self._observe("settle.inbox", plan.batch)
        if outcome.retries or outcome.moved:
            commits.append(SEGMENTS, _numbered(outcome.retry_rows(), plan), plan.as_dict())
        if outcome.closed:
            commits.append(CLOSED, _numbered(outcome.closed_rows(), plan), plan.as_dict())
        if outcome.refused:
            rows = outcome.refused_rows()
            at = pa.repeat(pa.scalar(us(outcome.now), pa.timestamp("us", "UTC")), rows.num_rows)
            rows = rows.append_column("rejected_at", at)
            commits.append(REJECTED_SETTLE, _numbered(rows, plan), plan.as_dict())
        sent[LETTERS] += self._letters.appended
        return sent if BEFORE_LETTERS in sent else {}

    def _commits(self, plan: Plan) -> BatchCommits:
        return BatchCommits(SETTLE, self._sinks, self._owner, plan.batch, self._observe)


def _numbered(rows: pa.Table, plan: Plan) -> pa.Table:
    return rows.append_column("batch_id", pa.repeat(pa.scalar(plan.batch, pa.int64()), rows.num_rows))


def _moves_of(rows: pa.Table) -> dict[tuple[str, str, int], list[Move]]:
    found: dict[tuple[str, str, int], list[Move]] = defaultdict(list)
    for row in rows.to_pylist():
        (listener,) = row["subscriptions"]
        runs = Chunk.from_bytes(row["chunk"]).runs()
        positions = Positions.of(runs.ledger_ids, runs.first_entries, runs.last_entries)
        own = found[row["topic"], listener["name"], listener["life"]]
        own.append(Move(positions, row["redelivery_count"], row["round"], fresh=True))
    return found
