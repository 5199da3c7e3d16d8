"""A batch of settle: what happened to each subscription changes what is open of it, and something comes of that."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from pipeline.settle.core.events import ConsumerEvents
from pipeline.settle.core.listener import Listener
from pipeline.settle.core.opened import Opened
from pipeline.settle.core.outcome import Outcome, bounded
from pipeline.subscriptions.incarnations import Incarnation, Name
from pipeline.subscriptions.policies import Policies
from state import LeftOut, Move, Moved, Outstanding, Runs
from state.settling import Effect, Event, Released


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
        earlier: what consumers of those who are new said before the batch begins.
        torn: what an attempt at the same batch has put into the index already, by incarnation; None: there was none.
        refused: rows of `rejected_settle` that are known before.
    """

    now: int
    segment_ms: int
    happened: Mapping[Name, Sequence[Event]]
    consumers: ConsumerEvents
    earlier: Mapping[Name, Sequence[Event]] = field(default_factory=dict)
    torn: Mapping[tuple[str, str, int], Sequence[Move]] | None = None
    refused: Sequence[pa.Table] = ()


def fold(held: Mapping[Name, Opened], batch: Batch, moves: Rescheduling) -> Outcome:
    """Change what is open of each subscription by what happened; give what comes of it."""
    outcome = Outcome(batch.now, batch.segment_ms, refused=list(batch.refused))
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


def followed(known: Mapping[Name, Opened], present: Mapping[Name, Listener], released: int) -> dict[Name, Opened]:
    """The state of each listener: what is known, or nothing yet.

    Args:
        known: the states before the batch.
        present: who is followed in it.
        released: the version of `redelivery` up to which all counts as settled for who is new, and says no other one.
    """
    held: dict[Name, Opened] = {}
    for name, listener in present.items():
        own = known.get(name)
        if own is not None and own.listener.life != listener.life:
            own = None
        if own is None or own.acknowledges != listener.policies.ack:
            after = listener.policies.ack_after
            own = Opened.begun(listener, released if after is None else after, own)
        own.follow(listener)
        held[name] = own
    return held


def gone(known: Mapping[Name, Opened], present: Mapping[Name, Listener]) -> list[Opened]:
    """Those whose incarnation is over, or that nobody follows any longer."""
    return [each for name, each in known.items() if name not in present or present[name].life != each.listener.life]


def idle(held: Mapping[Name, Opened]) -> set[Name]:
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
