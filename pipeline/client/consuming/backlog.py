"""What was there before slots were taken: the rows of the table that are open by settle's word, in order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

import numpy as np
import pyarrow as pa

from pipeline.client.tables.datarows import READ, DataFile
from pipeline.client.tables.deliveryset import DeliverySet
from pipeline.client.tables.rows import Key, Mask, Rows, SlotsOf, chosen, rows_of
from pipeline.client.tables.tail import DeliveryLog
from pipeline.storage.arrays import IntArray
from state.lease_events import Handed

_ANNOUNCED, _ANNOUNCED_BYTES = 1_000, 16 << 20
"""So many rows, or bytes, are announced at once, where somebody died with rows of these slots."""
Place = dict[int, int]
"""A place by slot."""


class BacklogState(Enum):
    """Where a backlog is. Each line is a transition; `Backlog` makes all of them.

    | from | to | when |
    |---|---|---|
    | `WAITING` | `READING` | settle has read all that counts, and nobody was lost (`read`) |
    | `WAITING` | `PAYING` | the same, and an owner of these slots was lost (`pay`) |
    | `PAYING` | `READING` | a failure is counted for whatever that owner may have handed out (`read`) |
    | `READING` | `ANNOUNCING` | it was read what the log has to say before it is handed out (`next`) |
    | `ANNOUNCING` | `READING` | the log says it (`next`) |
    | `READING` | `READ` | there are no more rows (`next`) |
    """

    WAITING = auto()
    PAYING = auto()
    READING = auto()
    ANNOUNCING = auto()
    READ = auto()


@dataclass
class Backlog:
    """The rows of slots that were just taken, up to a version of `deliveries`.

    Attributes:
        slots: the slots.
        version: of `deliveries`.
        events: the version of `consumer_events` that settle must have read before it is asked what is open.
        released: the same of `redelivery`.
        owed: of slots whose owner was lost: up to which place what is open counts as failed.
        announces: whether the lease is to be told how far this is.
        mark: what this process has said so far, which settle must have read, too (`EventWriter.asked`).
        exclude: what the application had when the slots were taken.
        state: where it is.
        still_open: what was open when settle had read so far.
        paying: looks for what is owed; None: nobody has begun to.
        lost: what was found of it.
    """

    slots: set[int]
    version: int
    events: int
    released: int
    owed: Place
    announces: bool
    mark: int
    exclude: DeliverySet
    state: BacklogState = BacklogState.WAITING
    still_open: DeliverySet = field(default_factory=DeliverySet)
    paying: Iterator[Rows] | None = None
    lost: DeliverySet = field(default_factory=DeliverySet)
    _noted: Place = field(default_factory=dict)
    _rows: Iterator[Rows] = field(default_factory=lambda: iter(()))
    _held: Rows | None = None

    def pay(self) -> None:
        """Settle has read all that counts; an owner was lost."""
        self.state = BacklogState.PAYING

    def read(self, rows: Iterator[Rows]) -> None:
        """Give these rows from now on."""
        self.state, self._rows = BacklogState.READING, rows

    def announced(self, slot: int, upto: int) -> None:
        """The log has it that messages of a slot up to a place may have been handed out."""
        self._noted[slot] = max(upto, self._noted.get(slot, 0))

    def next(self) -> tuple[Rows | None, list[Handed]]:
        """The next rows, or None when there are none now; and what to tell the lease before they are handed out."""
        match self.state:
            case BacklogState.READING:
                return self._next()
            case BacklogState.ANNOUNCING if self._held is not None and self._is_noted(self._held):
                rows, self._held, self.state = self._held, None, BacklogState.READING
                return rows.of_slots(self.slots), []
            case _:
                return None, []

    def _next(self) -> tuple[Rows | None, list[Handed]]:
        found = next(self._rows, None)
        if found is None:
            self.state = BacklogState.READ
            return None, []
        rows = found.of_slots(self.slots)
        says = [Handed(place, slot) for slot, place in _places(rows).items()] if self.announces else []
        if self.owed and len(rows):
            self._held, self.state = rows, BacklogState.ANNOUNCING
            return None, says
        return rows, says

    def _is_noted(self, rows: Rows) -> bool:
        due = _places(rows).items()
        return all(self._noted.get(slot, 0) >= place for slot, place in due if slot in self.slots)


def _places(rows: Rows) -> Place:
    """The last place of each slot."""
    return {slot: int(rows.places[rows.slots == slot].max()) for slot in np.unique(rows.slots).tolist()}


def open_rows(
    log: DeliveryLog, key: Key, slots_of: SlotsOf, backlog: Backlog, columns: Sequence[str] = READ
) -> Iterator[Rows]:
    """The rows of a backlog that are open, those that are owed included, as the table has them."""

    def mine(table: pa.Table) -> pa.Table:
        rows = rows_of(chosen(table, key), slots_of)
        return rows.where(backlog.still_open.holds(rows)).of_slots(backlog.slots).table

    files = [each for each in log.table(backlog.version) if each.is_for(key)] if backlog.still_open else []
    ledgers = backlog.still_open.ledgers
    wanted = [each for each in files if _may_hold(each, ledgers, backlog.still_open)]
    for table in log.data.of(wanted, backlog.version, mine, columns):
        yield rows_of(table, slots_of)


def _may_hold(file: DataFile, ledgers: IntArray, still_open: DeliverySet) -> bool:
    low, high = file.low.get("ledger_id"), file.high.get("ledger_id")
    if low is None or high is None:
        return True
    if np.searchsorted(ledgers, low) == np.searchsorted(ledgers, high, "right"):
        return False
    first, last = file.low.get("entry_id"), file.high.get("entry_id")
    return low != high or first is None or last is None or still_open.has_between(low, first, last)


def behind(rows: Rows, owed: Mapping[int, int]) -> Mask:
    """Which rows lie behind what is owed of their slots."""
    upto = np.array([owed.get(slot, -1) for slot in rows.slots.tolist()], np.int64)
    found: Mask = rows.places > upto
    return found


def careful(parts: Iterator[Rows]) -> Iterator[Rows]:
    """Rows in parts that may be announced at once: what has failed before comes alone, it may have killed somebody.

    An announcement takes a commit, and a file may have few rows of a slot. A part without rows comes as it is.
    """
    for rows in _gathered(parts):
        if not len(rows):
            yield rows
        start = 0
        while start < len(rows):
            stop = min(start + _ANNOUNCED, len(rows))
            failed = np.flatnonzero(rows.counts[start:stop])
            if len(failed):
                stop = start + max(1, int(failed[0]))
            yield rows.part(start, stop)
            start = stop


def _gathered(parts: Iterator[Rows]) -> Iterator[Rows]:
    """The same rows in parts of at least `_ANNOUNCED` rows or so many bytes, but for the last one."""
    held: list[Rows] = []
    for rows in parts:
        if not len(rows):
            yield rows
            continue
        held.append(rows)
        if sum(map(len, held)) >= _ANNOUNCED or sum(each.table.nbytes for each in held) >= _ANNOUNCED_BYTES:
            yield Rows.concat(held)
            held = []
    if held:
        yield Rows.concat(held)
