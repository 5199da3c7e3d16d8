"""Messages at positions, as settle looks them up: a few ledgers at a time, with texts that may stay in their files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from pipeline.delta.reading.messages import Bounds, MessageLog, message_groups
from pipeline.storage.arrays import IntArray, longs
from pipeline.storage.gather import Gathered
from schemas import MESSAGES
from state.positions import Positions

PLACE = ("topic", "ledger_id", "entry_id")
PIECE_BYTES = 64 << 20
"""Of texts that are held at once."""
_MOST_PLACES = 1 << 18
"""Messages that are looked for at once, but for those of one ledger."""
Wanted = Mapping[int, BitMap]
"""The entries of each ledger."""


def slices(positions: Positions) -> Iterator[dict[int, BitMap]]:
    """The entries of each ledger, ascending, some ledgers at a time."""
    piece, size = dict[int, BitMap](), 0
    for ledger, entries in positions.by_ledger():
        if piece and size + len(entries) > _MOST_PLACES:
            yield piece
            piece, size = {}, 0
        piece[ledger] = entries
        size += len(entries)
    if piece:
        yield piece


def bounds_of(wanted: Wanted) -> Bounds:
    """Where they are in the log."""
    return Bounds(min(wanted), max(wanted))


def gathered(log: MessageLog, topic: str, wanted: Wanted) -> Gathered:
    """The messages of a topic at some positions, in any order. Texts that are many stay in their files.

    Raises:
        NotInDriver: only Spark reads them, or they are too many.
    """
    groups = ((group, chosen(group.read(PLACE), topic, wanted)) for group in message_groups(log, bounds_of(wanted)))
    return Gathered.read(MESSAGES, ((group, numbers) for group, numbers in groups if len(numbers)), PIECE_BYTES)


def chosen(rows: pa.Table, topic: str, wanted: Wanted) -> IntArray:
    """The numbers of the rows at some positions of a topic."""
    ledgers, entries = longs(rows, "ledger_id"), longs(rows, "entry_id")
    topics = rows.column("topic").to_pylist() if len(ledgers) else []
    near = np.flatnonzero(np.isin(ledgers, np.fromiter(wanted, np.int64)))
    found = [n for n in near.tolist() if topics[n] == topic and int(entries[n]) in wanted[int(ledgers[n])]]
    return np.array(found, np.int64)
