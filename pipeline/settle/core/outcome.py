"""What comes of a batch, as rows of the tables that settle writes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from pipeline.settle.core.events import REFUSED
from pipeline.settle.core.listener import Listener
from pipeline.settle.core.opened import Opened
from pipeline.storage.arrays import arrow_schema, completed
from pipeline.subscriptions.incarnations import Name
from schemas import CLOSED, RESCHEDULED, SEGMENTS, Table
from state import tick_bits
from state.buckets import trim_up
from state.chunk import chunk_of_runs
from state.positions import Positions
from state.runs import Runs
from state.settling import Ack, Cause, Closed, DeadLetter, Effect, Ignored, Moved, Nack, Reason, Retry

RETRY = "retry"
"""The kind of the rows of `segments` that settle writes."""
_MOST_NAMED = 1 << 16
"""Positions that an event may name without a look at what is open."""
_PARTS, _LEAST, _MOST = 32, 1_024, 1 << 16
"""What comes again in a batch is cut into about so many parts, of so many messages at least, and about so many at most:
a segment is not cut."""


@dataclass
class Figures:
    """What a batch did for a subscription, in positions.

    Attributes:
        acked: were acknowledged.
        returned: were put back, by cause.
        dead_letters: were given up.
    """

    acked: int = 0
    returned: Counter[str] = field(default_factory=Counter)
    dead_letters: int = 0

    def count(self, effect: Effect) -> None:
        """Add what an effect did."""
        match effect:
            case Closed(cause=Cause.ACK):
                self.acked += effect.positions.messages
            case Retry():
                self.returned[effect.reason] += effect.positions.messages
            case DeadLetter():
                self.dead_letters += effect.positions.messages


@dataclass
class Outcome:
    """What a batch gives, by table.

    Attributes:
        now: the instant of the batch, ms UTC.
        segment_ms: span of due time of a segment, ms.
        retries: what comes again, with its subscription.
        moved: what got another due time: its subscription, round and redelivery count, and when it is due.
        letters: what is given up, with its subscription.
        closed: what dispatch must leave out, with its subscription.
        refused: rows of `rejected_settle` less those of the batch.
        figures: how many positions of a subscription were acknowledged, put back by cause, and given up.
    """

    now: int
    segment_ms: int
    retries: list[tuple[Listener, Retry]] = field(default_factory=list)
    moved: list[tuple[Listener, Moved, Runs]] = field(default_factory=list)
    letters: list[tuple[Listener, DeadLetter]] = field(default_factory=list)
    closed: list[tuple[Listener, Closed]] = field(default_factory=list)
    refused: list[pa.Table] = field(default_factory=list)
    figures: dict[Name, Figures] = field(default_factory=lambda: defaultdict(Figures))

    def take(self, listener: Listener, effects: Iterable[Effect]) -> None:
        """Sort effects of a subscription by what is to be written."""
        for effect in effects:
            self.figures[listener.name].count(effect)
            match effect:
                case Retry():
                    self.retries.append((listener, effect))
                case DeadLetter():
                    self.letters.append((listener, effect))
                case Closed(withdrawn=True) | Closed(late=True):
                    self.closed.append((listener, effect))
                case Ignored(reason=Reason.NEVER_DELIVERED):
                    self.refuse(listener, effect.positions, Reason.NEVER_DELIVERED)

    @property
    def is_seen(self) -> bool:
        """Whether anybody but settle reads of it: it takes more than one commit."""
        return bool(self.retries or self.moved or self.letters or self.closed or self.refused)

    def refuse(self, listener: Listener, positions: Positions, reason: str) -> None:
        """Say of positions why nothing came of them."""
        self.refused.append(_rows(REFUSED, listener, positions, {"reason": reason}))

    def retry_rows(self) -> pa.Table:
        """Rows of `segments` less their batch; what comes again together, equally often, is one."""
        together: dict[tuple[Listener, int, int, str], list[Runs]] = defaultdict(list)
        for listener, each in self.retries:
            due = int(trim_up(each.due, tick_bits(listener.tick_ms)))
            together[listener, each.redelivery_count, each.round, each.reason].append(each.positions.due_at(due))
        for listener, moved, runs in self.moved:
            # Nothing is due before it is put into the index.
            times = np.asarray(trim_up(np.maximum(runs.due, self.now), tick_bits(listener.tick_ms)))
            whole = Runs(times, runs.ledger_ids, runs.first_entries, runs.last_entries)
            together[listener, moved.redelivery_count, moved.round, RESCHEDULED].append(whole)
        rows = [
            self._retry_row(*key, segment, part)
            for key, runs in together.items()
            for segment, part in self._parts(_joined(runs))
        ]
        return pa.Table.from_pylist(rows, schema=_without_batch(SEGMENTS))

    def _parts(self, runs: Runs) -> Iterator[tuple[int, Runs]]:
        """Runs cut by due time into parts of whole segments that follow one another, each with its first segment.

        The schedule calls its function once for each part, which takes milliseconds, whatever is in it (decision 0071).
        """
        segments = np.maximum(runs.due, self.now) // self.segment_ms
        order = np.argsort(segments, kind="stable")
        messages = (runs.last_entries - runs.first_entries + 1)[order]
        before = np.cumsum(messages) - messages
        size = min(max(int(messages.sum()) // _PARTS, _LEAST), _MOST)
        firsts, place = np.unique(segments[order], return_index=True)
        numbers = before[place] // size
        heads = np.flatnonzero(np.diff(numbers, prepend=-1))
        for segment, rows in zip(firsts[heads].tolist(), np.split(order, place[heads[1:]]), strict=True):
            yield segment, runs[rows]

    def _retry_row(
        self, listener: Listener, count: int, number: int, cause: str, segment: int, runs: Runs
    ) -> dict[str, object]:
        topic, name, life = listener.incarnation
        chunk = chunk_of_runs(runs, tick_bits(listener.tick_ms), strict=True)
        return {
            "topic": topic,
            "subscriptions": [{"name": name, "life": life, "tick_ms": listener.tick_ms}],
            "segment_start": segment * self.segment_ms * 1_000,
            "count": chunk.count,
            "first_due": int(runs.due.min()) * 1_000,
            "last_due": int(runs.due.max()) * 1_000,
            "kind": RETRY,
            "redelivery_count": count,
            "round": None if number == count else number,
            "cause": cause,
            "chunk": chunk.to_bytes(),
        }

    def closed_rows(self) -> pa.Table:
        """Rows of `closed` less their batch."""
        schema = _without_batch(CLOSED)
        rows = [
            _rows(
                schema,
                listener,
                each.positions,
                {"redelivery_count": each.redelivery_count, "cause": str(each.cause), "closed_at": self.now * 1_000},
            )
            for listener, each in self.closed
        ]
        return pa.concat_tables([schema.empty_table(), *rows])

    def refused_rows(self) -> pa.Table:
        """Rows of `rejected_settle` less those of the batch."""
        return pa.concat_tables([REFUSED.empty_table(), *self.refused])


def refused_line(name: Name, reason: str) -> pa.Table:
    """A row of `rejected_settle`, less those of its batch: why a line of the registry is not followed as it is."""
    row = {"reason": reason, "topic": name[0], "subscription": name[1]}
    return pa.Table.from_pylist([row], schema=REFUSED)


def bounded(opened: Opened, said: Ack | Nack, outcome: Outcome) -> Ack | Nack:
    """What a consumer says, cut to what may be open of its subscription, when it names more than anybody holds.

    What lies behind all that was released is refused, as it is where little is named.
    """
    if said.positions.messages <= _MOST_NAMED:
        return said
    near, behind = opened.outstanding.within(said.positions)
    if len(behind):
        outcome.refuse(opened.listener, behind, Reason.NEVER_DELIVERED)
    return replace(said, positions=near)


def _rows(schema: pa.Schema, listener: Listener, positions: Positions, columns: dict[str, object]) -> pa.Table:
    """A row for each run; columns that nothing is said of are NULL."""
    named = dict(zip(("topic", "subscription", "life"), listener.incarnation, strict=True)) | columns
    runs = {
        "ledger_id": positions.ledger_ids,
        "first_entry": positions.first_entries,
        "last_entry": positions.last_entries,
    }
    return completed(schema, runs, named, len(positions))


def _joined(runs: Sequence[Runs]) -> Runs:
    columns = zip(*((each.due, each.ledger_ids, each.first_entries, each.last_entries) for each in runs), strict=True)
    return Runs(*(np.concatenate(column) for column in columns))


def _without_batch(table: Table) -> pa.Schema:
    return pa.schema([field for field in arrow_schema(table.schema) if field.name != "batch_id"])
