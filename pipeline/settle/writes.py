"""The tables that others read of what settle does; each batch is in each of them once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.config.options import Observer
from pipeline.config.stages import SETTLE
from pipeline.delta.logs.entries import appended, commits, newest, note_of
from pipeline.delta.reading.files import read_files
from pipeline.delta.warehouse import Warehouse
from pipeline.delta.writing.oncewriter import Sink
from pipeline.settle.core.outcome import Outcome
from pipeline.settle.letters import DeadLetters
from pipeline.settle.plan import Plan
from pipeline.subscriptions.letters import BEFORE_LETTERS, LETTERS
from schemas import CLOSED, INBOX, MESSAGE_MISSING, REJECTED_SETTLE, RESCHEDULED, SEGMENTS
from state import Move, Positions
from state.chunk import Chunk


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
        self._segments = Sink(warehouse, SEGMENTS, SETTLE, after=after)
        self._closed, self._rejected = (Sink(warehouse, table, SETTLE) for table in (CLOSED, REJECTED_SETTLE))

    @property
    def sinks(self) -> tuple[Sink, ...]:
        """The tables that are appended to."""
        return self._segments, self._closed, self._rejected

    def take_over(self) -> str:
        """Go on as the one who wrote last, if anybody has: its first batch may be torn, and its checkpoint lost."""
        self._owner = next((sink.last.owner for sink in self.sinks if sink.last is not None), self._owner)
        return self._owner

    def plans(self) -> Iterator[Plan]:
        """The plans of the last batches that the tables hold."""
        for sink in self.sinks:
            if sink.last is not None:
                yield Plan.of_note(sink.last.note)

    def moved(self, plan: Plan) -> dict[tuple[str, str, int], list[Move]] | None:
        """What a batch had put into the index at other due times when it was torn apart, by incarnation.

        None: it had put nothing there yet. What it has put there is decided, whatever the tables say by now.
        """
        if self._segments.found(self._owner, plan.batch) is None:
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
        sent = {LETTERS: -self._letters.appended}
        if outcome.letters and fresh:
            sent[BEFORE_LETTERS] = newest(self._files, self._inbox)
        if outcome.letters:
            for listener, positions in self._letters.append(outcome.letters, plan.batch, plan.letters, done):
                outcome.refuse(listener, positions, MESSAGE_MISSING)
            self._observe("settle.inbox", plan.batch)
        if outcome.retries or outcome.moved:
            self._append(self._segments, outcome.retry_rows(), plan)
        if outcome.closed:
            self._append(self._closed, outcome.closed_rows(), plan)
        if outcome.refused:
            rows = outcome.refused_rows()
            at = pa.repeat(pa.scalar(outcome.now * 1_000, pa.timestamp("us", "UTC")), rows.num_rows)
            self._append(self._rejected, rows.append_column("rejected_at", at), plan)
        sent[LETTERS] += self._letters.appended
        return sent if BEFORE_LETTERS in sent else {}

    def _append(self, sink: Sink, rows: pa.Table, plan: Plan) -> None:
        numbered = rows.append_column("batch_id", pa.repeat(pa.scalar(plan.batch, pa.int64()), rows.num_rows))
        sink.append(numbered, self._owner, plan.batch, plan.as_dict())
        self._observe(f"settle.{sink.name}", plan.batch)


def _moves_of(rows: pa.Table) -> dict[tuple[str, str, int], list[Move]]:
    found: dict[tuple[str, str, int], list[Move]] = defaultdict(list)
    for row in rows.to_pylist():
        (listener,) = row["subscriptions"]
        runs = Chunk.from_bytes(row["chunk"]).runs()
        positions = Positions.of(runs.ledger_ids, runs.first_entries, runs.last_entries)
        own = found[row["topic"], listener["name"], listener["life"]]
        own.append(Move(positions, row["redelivery_count"], row["round"], fresh=True))
    return found
