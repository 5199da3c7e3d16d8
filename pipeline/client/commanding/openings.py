"""Due times that commands give, within the windows of topics: decided when a command is given."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import numpy as np
import pyarrow as pa

from pipeline.client.clock import clock_of
from pipeline.client.commanding.inforce import Chosen
from pipeline.client.subscribing.calendars import followed_topics
from pipeline.client.subscribing.lives import lives
from pipeline.client.tables.relations import longs_table, relation
from pipeline.delta.deltars import arrow_of, open_table, quoted
from pipeline.storage.arrays import IntArray, longs
from pipeline.subscriptions.incarnations import Incarnation, Name
from pipeline.subscriptions.lines import Topics
from schemas import MESSAGES
from state import tick_bits
from state.windows import place_hashes

_ZONES = """
    SELECT m.ledger_id, m.entry_id, m.properties[{name}] AS zone
    FROM messages m JOIN ({chosen}) w ON m.ledger_id = w.ledger_id AND m.entry_id = w.entry_id
    WHERE m.topic = {topic} AND m.ledger_id BETWEEN {first} AND {last}
"""


class Openings:
    """Moves what a command gives to a time at which the window of its topic is open."""

    def __init__(self, root: str) -> None:
        """The registry is read once, and nothing else before a topic with a window is met."""
        self._root, self._now = root, clock_of(root).wall()

    def of(self, chosen: Chosen, due: IntArray) -> IntArray:
        """When positions are due, ms UTC; what lies in the past would come now.

        What is to come earlier than it was, or as it was, comes no later for it.

        Args:
            chosen: the positions, of one subscription.
            due: when each is to be due.

        Raises:
            NoWarehouse: the folder lacks a table.
        """
        opening = self._topics.of(chosen.of.topic).opening
        if opening is None or not len(due):
            return due
        zones = None if opening.zone.property is None else self._zones(chosen, opening.zone.property)
        comes = np.maximum(due, self._now)
        then = opening.put_off(comes, place_hashes(chosen.ledgers, chosen.entries), self._bits(chosen), zones)
        then = np.where(then > comes, then, due)
        return np.where(due <= chosen.due, np.minimum(then, chosen.due), then)

    @cached_property
    def _topics(self) -> Topics:
        return followed_topics(self._root)

    @cached_property
    def _lives(self) -> Mapping[Name, Incarnation]:
        return lives(self._root)

    def _bits(self, chosen: Chosen) -> int:
        """Of the tick of a subscription, which is the one that its life began with, whatever the registry says now."""
        life = self._lives.get((chosen.of.topic, chosen.of.subscription))
        return 0 if life is None or not life.tick_ms else tick_bits(life.tick_ms)

    def _zones(self, chosen: Chosen, name: str) -> pa.Array:
        """The names of the recipients' zones; NULL where there is none."""
        ends = {"first": int(chosen.ledgers.min()), "last": int(chosen.ledgers.max())}
        places = longs_table(("ledger_id", "entry_id"), [(chosen.ledgers, chosen.entries)])
        with relation("chosen", places) as (rows, more):
            text = _ZONES.format(name=quoted(name), topic=quoted(chosen.of.topic), chosen=rows, **ends)
            found = arrow_of(text, messages=open_table(self._root, MESSAGES), **more)
        named = zip(longs(found, "ledger_id").tolist(), longs(found, "entry_id").tolist(), strict=True)
        known = dict(zip(named, found.column("zone").cast(pa.binary()).to_pylist(), strict=True))
        wanted = zip(chosen.ledgers.tolist(), chosen.entries.tolist(), strict=True)
        return pa.array([known.get(place) for place in wanted], pa.binary())
