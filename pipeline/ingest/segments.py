"""The rows of `segments` for one batch: which positions, encoded how, addressed to whom."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.config.lazyspark import F
from pipeline.delta.reading.messages import Bounds, MessageLog, any_of, messages
from pipeline.storage.arrays import longs
from pipeline.subscriptions.incarnations import (
    Incarnation,
    Joined,
    Name,
    Subscription,
    alive,
    audiences,
    next_lives,
    next_number,
)
from pipeline.worker.audience import Audience
from pipeline.worker.encode import ARROW, ROW, Encoder, Key
from pipeline.worker.express import NOW

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NEAR, LOAD, BACKFILL, EXPRESS = "near", "load", "backfill", "express"
_PLACE = ("topic", "ledger_id", "entry_id")


@dataclass(frozen=True)
class Span:
    """Which positions a batch addresses; times in ms, ledgers as ids.

    Attributes:
        now: the batch's instant.
        loaded: what is due before was addressed by earlier batches.
        load_until: what is due from here on stays parked.
        first_ledger: the first ledger of the batch.
        next_ledger: the first ledger after the batch.
        express: messages of the batch that are due before this time (ms) skip the schedule.
        oldest: the first ledger of which anybody who joins gets older messages.
    """

    now: int
    loaded: int
    load_until: int
    first_ledger: int
    next_ledger: int
    express: int = 0
    oldest: int = 0


@dataclass(frozen=True)
class Membership:
    """Who listens from this batch on, who is new, who is gone, and which lines of the registry are refused.

    `wrong` are topics whose policies cannot be followed, as far as that is new.
    """

    everybody: Mapping[str, Audience]
    backfill: Mapping[str, Audience]
    joined: Mapping[Name, Joined]
    left: frozenset[Name]
    refused: tuple[Subscription, ...] = ()
    wrong: frozenset[str] = frozenset()

    @classmethod
    def of(
        cls,
        registered: Mapping[Name, Subscription],
        known: Mapping[Name, Incarnation],
        first_ledger: int,
        gone: frozenset[Name] = frozenset(),
    ) -> Membership:
        """Compare the registry with what earlier batches saw.

        A new subscription gets ledgers from 0 on (earliest) or from this batch on (latest); so does one that comes
        back, also when nobody saw it gone but the registry's history (`gone`). One of which a seek asks for another
        life leaves, and joins at the position that was sought. A tick that the index does not take
        is refused, and so is another tick within a life: whoever wants one takes another name, or leaves first.
        """
        present = frozenset(alive(known))
        sought = frozenset(name for name in present & registered.keys() if _begins_anew(registered[name], known[name]))
        left = present - frozenset(registered) | present & gone | sought
        still = present - left
        stayed = {name: each for name, each in registered.items() if name in still}
        new = {name: each for name, each in registered.items() if name not in stayed and each.fits}
        joined = {name: _joined(each, known.get(name), first_ledger) for name, each in new.items()}
        joined = {name: replace(each, life=max(each.life, next_number(known, name))) for name, each in joined.items()}
        lives = next_lives(known, joined, left)
        changed = (each for name, each in stayed.items() if each.tick_ms != known[name].tick_ms or each.lost)
        misfits = (each for name, each in registered.items() if name not in stayed and not each.fits)
        listening = (stayed | new).values()
        late = [each for each in new.values() if each.earliest or each.sought]
        return cls(audiences(listening, lives), audiences(late, lives), joined, left, (*changed, *misfits))

    @property
    def oldest(self) -> int:
        """The first ledger of which anybody who joins gets older messages; 0: nobody does."""
        return min((each.since[0] for each in self.backfill.values()), default=0)

    @property
    def changed(self) -> bool:
        """Whether anybody came or went, or was refused: a commit of `segments` remembers it."""
        return bool(self.joined or self.left or self.refused or self.wrong)


def _begins_anew(line: Subscription, life: Incarnation) -> bool:
    """Whether a seek asks for a life that has not begun."""
    return line.sought is not None and line.sought.life > life.number


def _joined(line: Subscription, last: Incarnation | None, first_ledger: int) -> Joined:
    """What the life of a subscription begins with that joins, after its last one, and the number that a seek asks for.

    Where none does the number is 0.
    """
    if line.sought is None:
        return Joined(0 if line.earliest else first_ledger, line.tick_ms)
    asked = line.sought.life if last is None or _begins_anew(line, last) else 0
    return Joined(line.sought.ledger, line.tick_ms, line.sought.entry, asked)


class MembershipCache:
    """The membership of each batch, compared anew only when the registry or what ingest knows of it has moved.

    With a million subscriptions a comparison takes half a minute, and nearly no batch has anything to compare.
    """

    def __init__(self) -> None:
        self._last: tuple[Mapping[Name, Subscription], Mapping[Name, Incarnation], frozenset[Name], int] | None = None
        self._members = Membership({}, {}, {}, frozenset())

    def at(
        self,
        registered: Mapping[Name, Subscription],
        known: Mapping[Name, Incarnation],
        first_ledger: int,
        gone: frozenset[Name],
    ) -> Membership:
        """As `Membership.of`. The mappings are not changed by those who give them, so the same ones say the same."""
        last = self._last
        same = last is not None and last[0] is registered and last[1] is known and last[2] == gone
        # Whoever joins gets the ledgers of one batch and no other.
        if not same or (self._members.joined and last is not None and last[3] != first_ledger):
            self._members = Membership.of(registered, known, first_ledger, gone)
            self._last = registered, known, gone, first_ledger
        return self._members


def segment_rows(log: DataFrame, members: Membership, span: Span, segment_ms: int, kinds: frozenset[str]) -> DataFrame:
    """The rows of `segments`, less `batch_id`, of the kinds asked for. Reads positions and due times, no payloads."""
    where = {kind: bounds(kind, span) for kind in sorted(kinds)}
    # The first one counts.
    named = ({NOW: bounds(NOW, span)} if EXPRESS in kinds else {}) | where
    kind = F.coalesce(*(F.when(each.inside, F.lit(kind)) for kind, each in named.items()), F.lit(None).cast("string"))
    positions = log.where(any_of(where.values())).select(
        kind.alias("kind"), "topic", "ledger_id", "entry_id", F.unix_millis("due_time").alias("due_ms")
    )
    return positions.mapInArrow(Encoder(_heard(members, kinds), segment_ms, span.now).__call__, ROW.struct)


def local_segment_rows(
    log: MessageLog, members: Membership, span: Span, segment_ms: int, kinds: frozenset[str]
) -> Iterator[pa.RecordBatch]:
    """Rows of `segments`, made in the driver. No more is held at once than what the encoder holds.

    Raises:
        NotInDriver: only Spark reaches the log, or it is not what the table says.
    """
    return Encoder(_heard(members, kinds), segment_ms, span.now)(_positions(log, span, kinds))


def _positions(log: MessageLog, span: Span, kinds: frozenset[str]) -> Iterator[pa.RecordBatch]:
    """What the encoder takes."""
    for kind in sorted(kinds):
        for batch in messages(log, bounds(kind, span), (*_PLACE, "due_time")):
            due = np.floor_divide(longs(batch, "due_time"), 1_000)
            named = pc.if_else(pa.array(due <= span.now), NOW, kind) if kind == EXPRESS else pa.repeat(kind, len(due))
            columns = [named, *(batch.column(name) for name in _PLACE), pa.array(due)]
            yield pa.RecordBatch.from_arrays(columns, names=["kind", *_PLACE, "due_ms"])


def pieces(rows: Iterable[pa.RecordBatch], most_bytes: int, schema: pa.Schema = ARROW) -> Iterator[pa.Table]:
    """Rows in pieces of about so many bytes, which shall be files: the schedule takes whole ones of `segments`."""
    held, size = list[pa.RecordBatch](), 0
    for row in rows:
        held.append(row)
        size += row.nbytes
        if size >= most_bytes:
            yield pa.Table.from_batches(held)
            held, size = [], 0
    yield pa.Table.from_batches(held, schema=schema)


def _heard(members: Membership, kinds: frozenset[str]) -> dict[Key, Audience]:
    """Who listens, by kind and topic."""
    heard = kinds | {NOW} if EXPRESS in kinds else kinds
    who = {kind: members.backfill if kind == BACKFILL else members.everybody for kind in heard}
    return {(kind, topic): each for kind, by in who.items() for topic, each in by.items()}


def bounds(kind: str, span: Span) -> Bounds:
    """Where in the log the positions of a kind are. No position is of two kinds, but for what is due now.

    Near is what this batch accepted and did not park. Of that, express is what is due too soon to wait in the state; a
    part of it is due now. Of the older ledgers, what is due before `loaded` was addressed already, to everybody but
    those who come late and want it all; what is due between `loaded` and `load_until` is loaded now.
    """
    if kind == NOW:
        return Bounds(span.first_ledger, span.next_ledger - 1, last_due=span.now)
    if kind == EXPRESS:
        return Bounds(span.first_ledger, span.next_ledger - 1, last_due=span.express - 1)
    if kind == NEAR:
        return Bounds(span.first_ledger, span.next_ledger - 1, span.express, span.load_until - 1)
    if kind == BACKFILL:
        return Bounds(span.oldest, span.first_ledger - 1, last_due=span.loaded - 1)
    return Bounds(last_ledger=span.first_ledger - 1, first_due=span.loaded, last_due=span.load_until - 1)
