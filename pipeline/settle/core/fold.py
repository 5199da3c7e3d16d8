"""A batch of settle: what happened to each subscription changes what is open of it, and what comes of that, as rows."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import pyarrow as pa

from pipeline.settle.core.events import REFUSED, ConsumerEvents
from pipeline.settle.core.listener import Listener
from pipeline.settle.core.opened import CursorState
from pipeline.storage.arrays import arrow_schema, completed
from pipeline.subscriptions.incarnations import Incarnation, Name
from pipeline.subscriptions.policies import Policies
from schemas import CLOSED, RESCHEDULED, SEGMENTS, Table
from state import LeftOut, Move, Outstanding, tick_bits
from state.buckets import trim_up
from state.chunk import chunk_of_runs
from state.positions import Positions
from state.runs import Runs
from state.settling import Ack, Cause, Closed, DeadLetter, Effect, Event, Ignored, Moved, Nack, Reason, Released, Retry
from state.units import Ms

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


Times = Callable[[Sequence[tuple[Listener, Retry]]], Iterable[Runs]]
"""Says of each of some retries when its positions come again, before ticks. It is given all of a batch at once."""


def after_its_delay(retries: Sequence[tuple[Listener, Retry]]) -> Iterator[Runs]:
    """Nothing but the delay counts."""
    return (retry.positions.due_at(retry.due) for _, retry in retries)


@dataclass
class Outcome:
    """What a batch gives, by table.

    Attributes:
        now: the instant of the batch, ms UTC.
        segment_ms: span of due time of a segment, ms.
        times: when what comes again is due.
        retries: what comes again, with its subscription.
        moved: what got another due time: its subscription, round and redelivery count, and when it is due.
        letters: what is given up, with its subscription.
        closed: what dispatch must leave out, with its subscription.
        refused: rows of `rejected_settle` less those of the batch.
        figures: how many positions of a subscription were acknowledged, put back by cause, and given up.
    """

    now: Ms
    segment_ms: int
    times: Times = after_its_delay
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
        for (listener, each), runs in zip(self.retries, self.times(self.retries), strict=True):
            whole = replace(runs, due=trim_up(runs.due, tick_bits(listener.tick_ms)))
            together[listener, each.redelivery_count, each.round, each.reason].append(whole)
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


def bounded(opened: CursorState, said: Ack | Nack, outcome: Outcome) -> Ack | Nack:
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
    return pa.schema([field for field in arrow_schema(table.columns) if field.name != "batch_id"])


class Rescheduling(Protocol):
    """What commands say of other due times."""

    def of(self, name: Name, life: int, open_: Outstanding, left_out: Iterable[LeftOut]) -> Iterable[Move]:
        """What is to be put into the index for a subscription."""

    def due(self, name: Name, life: int, moved: Moved) -> Runs:
        """When positions are due that were moved."""


@dataclass(frozen=True)
class Batch:
    """What a batch takes in.

    Attributes:
        now: its instant, ms UTC.
        segment_ms: span of due time of a segment, ms.
        happened: what was released, left out or refused, by subscription.
        consumers: what consumers said.
        times: when what comes again is due.
        earlier: what consumers of those who are new said before the batch begins.
        torn: what an attempt at the same batch has put into the index already, by incarnation; None: there was none.
        refused: rows of `rejected_settle` that are known before.
    """

    now: Ms
    segment_ms: int
    happened: Mapping[Name, Sequence[Event]]
    consumers: ConsumerEvents
    times: Times = after_its_delay
    earlier: Mapping[Name, Sequence[Event]] = field(default_factory=dict)
    torn: Mapping[tuple[str, str, int], Sequence[Move]] | None = None
    refused: Sequence[pa.Table] = ()


def fold(held: Mapping[Name, CursorState], batch: Batch, moves: Rescheduling) -> Outcome:
    """Change what is open of each subscription by what happened; give what comes of it."""
    outcome = Outcome(batch.now, batch.segment_ms, batch.times, refused=list(batch.refused))
    happened = defaultdict(list, batch.happened)
    for name, opened in held.items():
        listener, own = opened.listener, happened[name]
        outcome.take(listener, opened.handle(own, batch.consumers.leases[name], batch.now))
        if batch.torn is None:
            left_out = [each for each in own if isinstance(each, LeftOut) and each.waits]
            put = list(moves.of(listener.name, listener.life, opened.outstanding, left_out))
        else:
            put = list(batch.torn.get(listener.incarnation, ()))
        said = [bounded(opened, each, outcome) for each in batch.consumers.events[name]]
        effects = opened.handle([*put, *batch.earlier.get(name, ()), *said], (), batch.now)
        outcome.take(listener, effects)
        if batch.torn is None:
            outcome.moved += _due(listener, effects, moves)
    return outcome


def followed(
    known: Mapping[Name, CursorState], present: Mapping[Name, Listener], released: int
) -> dict[Name, CursorState]:
    """The state of each listener: what is known, or nothing yet.

    Args:
        known: the states before the batch.
        present: who is followed in it.
        released: the version of `redelivery` up to which all counts as settled for who is new, and says no other one.
    """
    held: dict[Name, CursorState] = {}
    for name, listener in present.items():
        own = known.get(name)
        if own is not None and own.listener.life != listener.life:
            own = None
        if own is None or own.acknowledges != listener.policies.ack:
            after = listener.policies.ack_after
            own = CursorState.begun(listener, released if after is None else after, own)
        own.follow(listener)
        held[name] = own
    return held


def gone(known: Mapping[Name, CursorState], present: Mapping[Name, Listener]) -> list[CursorState]:
    """Those whose incarnation is over, or that nobody follows any longer."""
    return [each for name, each in known.items() if name not in present or present[name].life != each.listener.life]


def idle(held: Mapping[Name, CursorState]) -> set[Name]:
    """Those who do not acknowledge, and for whom nothing waits any more."""
    return {name for name, each in held.items() if not each.acknowledges and not any(each.outstanding.counts)}


def mute(name: Name, life: Incarnation) -> Listener:
    """A subscription that does not acknowledge."""
    return Listener(name, life.number, life.tick_ms, 1, Policies())


def unheard(events: Iterable[Event]) -> Iterator[Event]:
    """What counts for who does not acknowledge: what waits for another due time, until it is released."""
    for event in events:
        if isinstance(event, LeftOut):
            yield event
        elif isinstance(event, Released) and event.round:
            yield from (event, LeftOut(event.positions, event.round, waits=False))


def _due(listener: Listener, effects: Iterable[Effect], moves: Rescheduling) -> list[tuple[Listener, Moved, Runs]]:
    """When positions are due that are put into the index at another time."""
    moved = (each for each in effects if isinstance(each, Moved))
    return [(listener, each, moves.due(listener.name, listener.life, each)) for each in moved]
