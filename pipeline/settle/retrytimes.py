"""When what failed comes again: after its delay, or at the next opening of its topic's window."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.config.lazyspark import F
from pipeline.config.routes import NotInDriver
from pipeline.delta.reading.messages import MessageLog, message_groups
from pipeline.settle.core.listener import Listener
from pipeline.settle.lookup import PLACE, Wanted, bounds_of, chosen, slices
from pipeline.storage.arrays import IntArray, longs
from pipeline.storage.gather import first_items
from pipeline.subscriptions.lines import Topics
from pipeline.subscriptions.windows import ZONE_BYTES
from state import Due, Retry, Runs, tick_bits
from state.positions import Positions
from state.windows import place_hashes

_PROPERTIES = "properties"
_ZONES = pa.schema({"ledger_id": pa.int64(), "entry_id": pa.int64(), "zone": pa.binary()})


@dataclass(frozen=True)
class _Zones:
    """Names of recipients' zones, by position.

    Attributes:
        ledgers: those that have some, ascending.
        keys: the positions, ascending: the number of the ledger among them, and the entry.
        names: of the zones, in this order; NULL: none is named.
    """

    ledgers: IntArray
    keys: IntArray
    names: pa.ChunkedArray

    @classmethod
    def of(cls, found: pa.Table) -> _Zones:
        """From the columns of `_ZONES`, in any order."""
        ledgers = np.unique(longs(found, "ledger_id"))
        keys = _keys(ledgers, longs(found, "ledger_id"), longs(found, "entry_id"))
        order = np.argsort(keys, kind="stable")
        return cls(ledgers, keys[order], found.column("zone").take(pa.array(order)))

    def at(self, places: Due) -> pa.ChunkedArray:
        """The names for positions; NULL where there is none, or no message any more."""
        keys = _keys(self.ledgers, places.ledger_ids, places.entry_ids)
        place = np.searchsorted(self.keys, keys).clip(0, max(len(self.keys) - 1, 0))
        known = self.keys[place] == keys if len(self.keys) else np.zeros(len(keys), np.bool_)
        return self.names.take(pa.array(place, mask=~known))


def _keys(ledgers: IntArray, ledger_ids: IntArray, entry_ids: IntArray) -> IntArray:
    """A number for each position; -1 where its ledger is not among them."""
    number = np.searchsorted(ledgers, ledger_ids).clip(0, max(len(ledgers) - 1, 0))
    there = ledgers[number] == ledger_ids if len(ledgers) else np.zeros(len(ledger_ids), np.bool_)
    return np.where(there, (number << 32) + entry_ids, -1)


class RetryTimes:
    """Says when positions come again, by the policies of topics as a batch saw them."""

    def __init__(self, log: MessageLog, topics: Topics) -> None:
        """Nothing is read before it is asked."""
        self._log, self._topics = log, topics

    def __call__(self, retries: Sequence[tuple[Listener, Retry]]) -> Iterator[Runs]:
        """When they are due, before ticks. The zones of recipients are looked up in the messages, once for a topic."""
        asked: dict[tuple[str, str], list[Positions]] = defaultdict(list)
        for listener, retry in retries:
            name = self._property(listener.name[0])
            if name is not None:
                asked[listener.name[0], name].append(retry.positions)
        zones = {topic: self._zones(topic, name, each) for (topic, name), each in asked.items()}
        for listener, retry in retries:
            yield self._due(listener, retry, zones.get(listener.name[0]))

    def _property(self, topic: str) -> str | None:
        """The property that has the zones of recipients of a topic."""
        opening = self._topics.of(topic).opening
        return None if opening is None else opening.zone.property

    def _due(self, listener: Listener, retry: Retry, zones: _Zones | None) -> Runs:
        whole, opening = retry.positions.due_at(retry.due), self._topics.of(listener.name[0]).opening
        if opening is None:
            return whole
        each = whole.expanded()
        bits, hashes = tick_bits(listener.tick_ms), place_hashes(each.ledger_ids, each.entry_ids)
        due = opening.put_off(each.due, hashes, bits, None if zones is None else zones.at(each))
        return Runs(due, each.ledger_ids, each.entry_ids, each.entry_ids).united()

    def _zones(self, topic: str, name: str, parts: Sequence[Positions]) -> _Zones:
        columns = ("ledger_ids", "first_entries", "last_entries")
        whole = Positions(*(np.concatenate([getattr(each, column) for each in parts]) for column in columns))
        found = (piece for wanted in slices(whole) for piece in self._found(topic, wanted, name))
        return _Zones.of(pa.concat_tables([_ZONES.empty_table(), *found]))

    def _found(self, topic: str, wanted: Wanted, name: str) -> list[pa.Table]:
        try:
            return list(self._found_here(topic, wanted, name))
        except (NotInDriver, pa.ArrowException):
            return [self._found_by_spark(topic, wanted, name)]

    def _found_here(self, topic: str, wanted: Wanted, name: str) -> Iterator[pa.Table]:
        """In the columns of `_ZONES`. Of the texts of messages only properties are read.

        Raises:
            NotInDriver: only Spark reads them.
        """
        for group in message_groups(self._log, bounds_of(wanted)):
            places = group.read(PLACE)
            rows = chosen(places, topic, wanted)
            pieces = group.take((_PROPERTIES,), rows) if len(rows) else ()
            maps = (chunk for piece in pieces for chunk in piece.column(_PROPERTIES).chunks)
            names = [pc.binary_slice(first_items(each, name), 0, ZONE_BYTES + 1) for each in maps]
            zones = pa.chunked_array(names, pa.binary())
            named = places.take(pa.array(rows)).select(PLACE[1:])
            yield named.append_column("zone", zones).cast(_ZONES)

    def _found_by_spark(self, topic: str, wanted: Wanted, name: str) -> pa.Table:
        bounds = bounds_of(wanted)
        zone = F.substring(F.element_at(_PROPERTIES, F.lit(name)).cast("binary"), 1, ZONE_BYTES + 1)
        rows = self._log.read([bounds]).where(bounds.inside & (F.col("topic") == topic))
        found = [
            {"ledger_id": row["ledger_id"], "entry_id": row["entry_id"], "zone": row["zone"]}
            for row in rows.select(*PLACE, zone.alias("zone")).where("zone IS NOT NULL").toLocalIterator()
            if row["entry_id"] in wanted.get(row["ledger_id"], ())
        ]
        return pa.Table.from_pylist(found, schema=_ZONES)
