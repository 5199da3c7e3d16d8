"""Rows that settle reads, as events of each subscription, by whole arrays; and why some cannot be followed.

Consumers append rows with any Delta writer. So everything is looked at before it becomes an event: the core takes what
it is given.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.settle.core.listener import Listener
from pipeline.storage.arrays import IntArray, arrow_schema, filled, first_reason, grouped, longs, rounds
from pipeline.subscriptions.incarnations import Name
from schemas import CONSUMER_EVENTS, NEVER_COMES, RESCHEDULED
from state.buckets import MAX_TIME
from state.leases import LeaseKind, LeaseRow
from state.positions import Positions
from state.positionset import PositionSet
from state.retry import MAX_ROUND
from state.runs import MAX_ENTRY, MAX_LEDGER
from state.settling import Ack, Cancel, Event, LeftOut, Nack, Released, Undeliverable

ACK, NACK = "ack", "nack"
UNKNOWN_KIND, NOT_ACKNOWLEDGING, OTHER_INCARNATION = "unknown_kind", "not_acknowledging", "other_incarnation"
BAD_POSITION, BAD_REDELIVERY_COUNT, BAD_AFTER_MS = "bad_position", "bad_redelivery_count", "bad_after_ms"
EVENT = arrow_schema(CONSUMER_EVENTS.columns)
REFUSED = EVENT.insert(0, pa.field("reason", pa.string()))
"""Columns of `rejected_settle` less those of the batch."""
RELEASED = ("topic", "subscription", "life", "ledger_id", "first_entry", "last_entry", "redelivery_count", "round")
"""What settle reads of `redelivery`."""
_LEASES = tuple(LeaseKind)
_KINDS = {ACK: 1, NACK: 2} | dict.fromkeys(_LEASES, 3)
_CAUSES = (NACK, "ack_timeout", "owner_lost")
"""Why a delivery failed; anything else counts as the first."""
_SAME = ("redelivery_count", "after_ms")
_NOTHING = -1
MOST_LISTED = 10_000
"""Of the rows of one subscription that are looked at together, so many are listed as refused."""
Placed = Ack | Nack | Cancel | Undeliverable | LeftOut
"""Events of positions that were released before."""
_Flags = npt.NDArray[np.bool_]


@dataclass
class ConsumerEvents:
    """What rows of `consumer_events` say, in the order of the log.

    Attributes:
        events: acknowledgements of each subscription.
        leases: rows about leases of each subscription.
        refused: rows that cannot be followed, of `REFUSED`.
        rows: how many there were.
    """

    events: dict[Name, list[Ack | Nack]] = field(default_factory=lambda: defaultdict(list))
    leases: dict[Name, list[LeaseRow]] = field(default_factory=lambda: defaultdict(list))
    refused: list[pa.Table] = field(default_factory=list)
    rows: int = 0


def consumer_events(
    rows: pa.Table, listeners: Mapping[Name, Listener], before: ConsumerEvents | None = None
) -> ConsumerEvents:
    """What consumers say.

    Args:
        rows: of `consumer_events`, in the order of the log.
        listeners: the subscriptions that acknowledge.
        before: what was said in rows before these, to which it is added.
    """
    incoming = ConsumerEvents() if before is None else before
    incoming.rows += rows.num_rows
    for name, number in _by_name(rows):
        own = rows.take(pa.array(number))
        kinds = _kinds(own)
        listener = listeners.get(name) if name is not None else None
        wrong = _wrong(own, kinds, listener)
        if wrong.null_count < len(wrong):
            refused = own.add_column(0, REFUSED.field("reason"), wrong)
            incoming.refused.append(refused.filter(wrong.is_valid()).slice(0, MOST_LISTED))
        if listener is not None and name is not None:
            sound = wrong.is_null().to_numpy(zero_copy_only=False)
            incoming.events[name] += _events(own, kinds, sound & (kinds <= _KINDS[NACK]))
            present = filled(own, "life") == listener.life
            incoming.leases[name] += _lease_rows(own, sound & present & (kinds == _KINDS[LeaseKind.CLAIM]))
    return incoming


def released_by(rows: pa.Table, version: int, listeners: Mapping[Name, Listener]) -> Iterator[tuple[Name, Released]]:
    """What a version of `redelivery` releases, by subscription and round.

    Args:
        rows: the columns `RELEASED` of the version.
        version: its number.
        listeners: whose releases count; those of other incarnations do not.
    """
    for name, own in _of_listeners(rows, listeners):
        numbers = rounds(own)
        for number in np.unique(numbers):
            yield name, Released(_positions(own, numbers == number), int(number), version)


def refused_by(
    rows: pa.Table, listeners: Mapping[Name, Listener]
) -> Iterator[tuple[Name, Cancel | Undeliverable | LeftOut]]:
    """What dispatch refused, or left out for good, or for a later round, by subscription.

    Rows of other lives do not count. Those of an earlier version of this project name none, and count.
    """
    if not rows.num_rows:
        return
    for end in ("first_entry", "last_entry"):
        rows = rows.append_column(end, rows.column("entry_id"))
    for name, number in _by_name(rows):
        if name is None or name not in listeners:
            continue
        own = rows.take(pa.array(number))
        own = own.filter(pc.fill_null(pc.equal(own.column("life"), listeners[name].life), fill_value=True))
        never, moved = (pc.is_in(own.column("reason"), pa.array(each)) for each in (NEVER_COMES, [RESCHEDULED]))
        missing = pc.invert(pc.or_(never, moved))
        for event, some in ((Cancel, own.filter(never)), (Undeliverable, own.filter(missing))):
            if some.num_rows:
                yield name, event(_positions(some, None))
        later = own.filter(moved)
        numbers = rounds(later)
        for left_out in np.unique(numbers):
            yield name, LeftOut(_positions(later, numbers == left_out), int(left_out))


def only_released(
    said: Iterable[tuple[Name, Placed]], happened: Mapping[Name, Sequence[Event]]
) -> Iterator[tuple[Name, Placed]]:
    """Events as far as the release of their positions is among others, by round where a round is named."""
    released: dict[Name, dict[int, PositionSet]] = {}
    for name, each in said:
        known = released.setdefault(name, _by_round(happened.get(name, ())))
        some = known.get(each.round, PositionSet()) if isinstance(each, LeftOut) else PositionSet.union(known.values())
        found = PositionSet.of(each.positions) & some
        if len(found):
            yield name, replace(each, positions=found.positions())


def _by_round(events: Iterable[Event]) -> dict[int, PositionSet]:
    """What was released, by round."""
    found: dict[int, list[PositionSet]] = defaultdict(list)
    for event in events:
        if isinstance(event, Released):
            found[event.round].append(PositionSet.of(event.positions))
    return {number: PositionSet.union(sets) for number, sets in found.items()}


def _of_listeners(rows: pa.Table, listeners: Mapping[Name, Listener]) -> Iterator[tuple[Name, pa.Table]]:
    """The rows of each listener's present incarnation."""
    names = pa.array([each.name[1] for each in listeners.values()], pa.string())
    rows = rows.filter(pc.is_in(rows.column("subscription"), names))
    for name, number in _by_name(rows) if rows.num_rows else ():
        if name is not None and name in listeners:
            own = rows.take(pa.array(number))
            own = own.filter(pc.equal(own.column("life"), listeners[name].life))
            if own.num_rows:
                yield name, own


def _by_name(rows: pa.Table) -> Iterator[tuple[Name | None, IntArray]]:
    """The numbers of the rows of each subscription, ascending; None: topic or subscription is NULL."""
    for key, numbers in grouped(rows, ("topic", "subscription")):
        topic, name = key.values()
        yield (topic, name) if topic is not None and name is not None else None, numbers


def _kinds(rows: pa.Table) -> IntArray:
    codes = rows.column("kind").combine_chunks().dictionary_encode()
    known = np.array([*(_KINDS.get(kind, 0) for kind in codes.dictionary.to_pylist()), 0], np.int64)
    found: IntArray = known[_indices(codes)]
    return found


def _indices(codes: pa.DictionaryArray) -> IntArray:
    """The number of each text in the dictionary; -1: NULL."""
    found: IntArray = pc.fill_null(codes.indices, _NOTHING).to_numpy(zero_copy_only=False).astype(np.int64)
    return found


def _wrong(rows: pa.Table, kinds: IntArray, listener: Listener | None) -> pa.Array:
    """Why rows cannot be followed; NULL: they can."""
    if listener is None:
        return pa.repeat(NOT_ACKNOWLEDGING, rows.num_rows)
    placed, failed = (kinds == _KINDS[ACK]) | (kinds == _KINDS[NACK]), kinds == _KINDS[NACK]
    ledger, first, last = (filled(rows, name) for name in ("ledger_id", "first_entry", "last_entry"))
    inside = (ledger >= 0) & (ledger <= MAX_LEDGER) & (first >= 0) & (first <= last) & (last <= MAX_ENTRY)
    count, after = filled(rows, "redelivery_count"), filled(rows, "after_ms")
    asked = rows.column("after_ms").is_valid().to_numpy()
    flags = (
        (UNKNOWN_KIND, kinds == 0),
        (OTHER_INCARNATION, placed & (filled(rows, "life") != listener.life)),
        (BAD_POSITION, placed & ~inside),
        (BAD_REDELIVERY_COUNT, failed & ~((count >= 0) & (count <= MAX_ROUND))),
        (BAD_AFTER_MS, failed & asked & ~((after >= 0) & (after <= MAX_TIME))),
    )
    return first_reason([(reason, pa.array(are)) for reason, are in flags])


def _events(rows: pa.Table, kinds: IntArray, chosen: _Flags) -> Iterator[Ack | Nack]:
    """One event for neighbours of one kind, redelivery count, delay and cause."""
    numbers = np.flatnonzero(chosen)
    if not len(numbers):
        return
    own, kind = rows.take(pa.array(numbers)), kinds[numbers]
    # A cause that nobody knows would be a name of its own in the metrics, for ever.
    cause = pc.index_in(own.column("cause"), pa.array(_CAUSES)).fill_null(0).to_numpy()
    count, after = (filled(own, name) for name in _SAME)
    # Why, and after which delay, is nothing that an acknowledgement says.
    same = [count, *(np.where(kind == _KINDS[NACK], each, 0) for each in (after, cause))]
    steps = np.logical_or.reduce([np.diff(each) != 0 for each in (kind, *same)])
    for part in np.split(np.arange(len(numbers)), np.flatnonzero(steps) + 1):
        some = own.slice(int(part[0]), len(part))
        if kind[part[0]] == _KINDS[ACK]:
            had = int(count[part[0]])
            yield Ack(_positions(some, None), had if had >= 0 else None)
            continue
        failed, wait, why = (int(each[part[0]]) for each in same)
        asked = some.column("after_ms")[0].is_valid
        yield Nack(
            _positions(some, None),
            failed,
            wait if asked else None,
            _CAUSES[why],
        )


def _lease_rows(rows: pa.Table, chosen: _Flags) -> Iterable[LeaseRow]:
    """Rows about leases; what is wrong in them makes them void, and nobody else is told."""
    numbers = np.flatnonzero(chosen)
    names = ("kind", "consumer", "session", "counter", "slot", "handed", "priority", "lease_ms")
    for row in rows.select(names).take(pa.array(numbers)).to_pylist() if len(numbers) else ():
        yield LeaseRow(
            LeaseKind(row["kind"]),
            row["consumer"] or "",
            _NOTHING if row["session"] is None else row["session"],
            _NOTHING if row["counter"] is None else row["counter"],
            row["slot"],
            row["handed"],
            row["priority"] or 0,
            row["lease_ms"] or 0,
        )


def _positions(rows: pa.Table, chosen: _Flags | None) -> Positions:
    columns = [longs(rows, name) for name in ("ledger_id", "first_entry", "last_entry")]
    return Positions.of(*(columns if chosen is None else [each[chosen] for each in columns]))
