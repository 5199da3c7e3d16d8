"""What rows of `replaced` say: positions that come to no subscription that did not get them before."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from pipeline.storage.arrays import grouped, longs
from pipeline.subscriptions.incarnations import Name
from pipeline.subscriptions.topicnames import topic_of
from state.positionset import PositionSet
from state.withdrawals import Parts, Round

POSITIONS = ("topic", "ledger_id", "entry_id")
"""The columns that say it."""


def by_topic(rows: pa.Table) -> dict[str, PositionSet]:
    """The positions of rows of `replaced`, by topic."""
    found = {}
    for values, numbers in grouped(rows, ["topic"]):
        ledgers, entries = (longs(rows, name)[numbers] for name in POSITIONS[1:])
        found[values["topic"]] = PositionSet.at(ledgers, entries)
    return found


def of_lives(held: Mapping[str, PositionSet], lives: Mapping[Name, int]) -> Parts:
    """What is replaced for each of some lives of subscriptions: what commands would name it by."""
    found: Parts = {}
    for (topic, name), life in lives.items() if held else ():
        # A partition may have had policies of its own for a time.
        own = [held[each] for each in {topic, topic_of(topic)} if each in held]
        if own:
            found[Round(topic, name, life, 0)] = own[0] if len(own) == 1 else PositionSet.union(own)
    return found
