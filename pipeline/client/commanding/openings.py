"""Due times that commands give, within the windows of topics: decided when a command is given."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import pyarrow as pa

from pipeline.client.clock import clock_of
from pipeline.client.commanding.inforce import Chosen
from pipeline.client.subscribing.policysetting import topic_policies
from pipeline.client.subscribing.subscriptions import subscriptions
from pipeline.delta.deltars import arrow_of, open_table, quoted
from pipeline.storage.arrays import IntArray, longs
from schemas import MESSAGES
from state import tick_bits
from state.windows import place_hashes

_ZONES = """
    SELECT ledger_id, entry_id, properties[{name}] AS zone FROM messages
    WHERE topic = {topic} AND ledger_id BETWEEN {first} AND {last} AND properties[{name}] IS NOT NULL
"""


class Openings:
    """Moves what a command gives to a time at which the window of its topic is open."""

    def __init__(self, root: str) -> None:
        """Nothing is read before a topic with a window is met."""
        self._root, self._now = root, clock_of(root).wall()

    def of(self, chosen: Chosen, due: IntArray) -> IntArray:
        """When positions are due, ms UTC; what lies in the past would come now.

        Args:
            chosen: the positions, of one subscription.
            due: when each is to be due.

        Raises:
            NoWarehouse: the folder lacks a table.
        """
        opening = topic_policies(self._root, chosen.of.topic).opening
        if opening is None or not len(due):
            return due
        zones = None if opening.zone.property is None else self._zones(chosen, opening.zone.property)
        bits = tick_bits(self._ticks.get((chosen.of.topic, chosen.of.subscription), 1))
        comes = np.maximum(due, self._now)
        then = opening.put_off(comes, place_hashes(chosen.ledgers, chosen.entries), bits, zones)
        return np.where(then > comes, then, due)

    @cached_property
    def _ticks(self) -> dict[tuple[str, str], int]:
        return {each.named: each.tick_ms for each in subscriptions(self._root)}

    def _zones(self, chosen: Chosen, name: str) -> pa.Array:
        """The names of the recipients' zones; NULL where there is none."""
        ends = {"first": int(chosen.ledgers.min()), "last": int(chosen.ledgers.max())}
        text = _ZONES.format(name=quoted(name), topic=quoted(chosen.of.topic), **ends)
        found = arrow_of(text, messages=open_table(self._root, MESSAGES))
        places = zip(longs(found, "ledger_id").tolist(), longs(found, "entry_id").tolist(), strict=True)
        known = dict(zip(places, found.column("zone").cast(pa.binary()).to_pylist(), strict=True))
        wanted = zip(chosen.ledgers.tolist(), chosen.entries.tolist(), strict=True)
        return pa.array([known.get(place) for place in wanted], pa.binary())
