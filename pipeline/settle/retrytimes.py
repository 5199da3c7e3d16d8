"""When what failed comes again: after its delay, or at the next opening of its topic's window."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from pipeline.config.lazyspark import F
from pipeline.config.routes import NotInDriver
from pipeline.delta.reading.messages import MessageLog
from pipeline.settle.core.listener import Listener
from pipeline.settle.lookup import PLACE, Wanted, bounds_of, gathered, slices
from pipeline.storage.arrays import longs
from pipeline.subscriptions.lines import Topics
from pipeline.subscriptions.windows import ZONE_BYTES
from state import Retry, Runs, tick_bits
from state.windows import place_hashes

_Zone = tuple[tuple[int, int], bytes | None]
"""A position, and the name of its recipient's zone."""


class RetryTimes:
    """Says when positions come again, by the policies of topics as a batch saw them."""

    def __init__(self, log: MessageLog, topics: Topics) -> None:
        """Nothing is read before it is asked."""
        self._log, self._topics = log, topics

    def __call__(self, listener: Listener, retry: Retry) -> Runs:
        """When they are due, before ticks. A recipient's zone is looked up in the messages."""
        whole, topic = retry.positions.due_at(retry.due), listener.name[0]
        opening = self._topics.of(topic).opening
        if opening is None:
            return whole
        each = whole.expanded()
        zones = None if opening.zone.property is None else self._zones(topic, retry, opening.zone.property)
        bits, hashes = tick_bits(listener.tick_ms), place_hashes(each.ledger_ids, each.entry_ids)
        due = opening.put_off(each.due, hashes, bits, zones)
        return Runs(due, each.ledger_ids, each.entry_ids, each.entry_ids).united()

    def _zones(self, topic: str, retry: Retry, name: str) -> pa.Array:
        """The names of zones, in the order of the positions; NULL where there is none, or no message any more."""
        known = dict(zone for wanted in slices(retry.positions) for zone in self._found(topic, wanted, name))
        each = retry.positions.due_at(retry.due).expanded()
        places = zip(each.ledger_ids.tolist(), each.entry_ids.tolist(), strict=True)
        return pa.array([known.get(place) for place in places], pa.binary())

    def _found(self, topic: str, wanted: Wanted, name: str) -> Iterator[_Zone]:
        try:
            found = gathered(self._log, topic, wanted)
        except NotInDriver:
            bounds = bounds_of(wanted)
            zone = F.substring(F.element_at("properties", F.lit(name)).cast("binary"), 1, ZONE_BYTES + 1)
            rows = self._log.read([bounds]).where(bounds.inside & (F.col("topic") == topic))
            for row in rows.select(*PLACE, zone.alias("zone")).toLocalIterator():
                yield (row["ledger_id"], row["entry_id"]), None if row["zone"] is None else bytes(row["zone"])
            return
        zones = found.texts.values(np.arange(found.rows.num_rows), name)
        places = zip(*(longs(found.rows, each).tolist() for each in PLACE[1:]), strict=True)
        yield from zip(places, zones.to_pylist(), strict=True)
