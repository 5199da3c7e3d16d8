"""What is pending by due time, to the tick: what `pending` counts, and fine enough to tell when it comes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from pipeline.client.insight.counting import Counted
from pipeline.client.insight.departures import NOTHING_DUE, DueLoad
from pipeline.delta.deltars import arrow_of
from pipeline.storage.arrays import longs
from pipeline.subscriptions.incarnations import Name
from state import tick_bits
from state.buckets import trim_up

_LOAD = """
    SELECT listener, bucket / {finest} * {finest} AS due_ms, SUM(change) AS messages FROM (
        SELECT listener, ((due_ms + (1 << {bits}) - 1) >> {bits}) << {bits} AS bucket, change
        FROM ({changes}) WHERE due_ms < {end} AND {whose}
    ) GROUP BY 1, 2 HAVING SUM(change) > 0 ORDER BY 1, 2
"""


def due_loads(looked: Counted, ticks: Mapping[Name, int], end: int, precision_ms: int) -> dict[Name, DueLoad]:
    """What is pending of each listener, by due time rounded up to its tick.

    Args:
        looked: tables at fixed versions.
        ticks: the tick of each listener, ms.
        end: what is due later is left out, ms UTC.
        precision_ms: times of a finer tick are cut to multiples of so many ms.
    """
    bits = {name: tick_bits(ticks[name]) for name in looked.listeners}
    names, found = list(bits), dict.fromkeys(bits, NOTHING_DUE)
    for each in sorted(set(bits.values())):
        mine = [number for number, name in enumerate(names) if bits[name] == each]
        whose = "TRUE" if len(mine) == len(names) else f"listener IN ({', '.join(map(str, mine))})"
        values = {"finest": _finest(each, precision_ms), "bits": each, "end": end, "whose": whose}
        with looked.changes(due=(None, end)) as changes:
            rows = arrow_of(_LOAD.format(changes=changes.all, **values), **changes.tables)
        listener, due, counts = (longs(rows, name) for name in ("listener", "due_ms", "messages"))
        for number in mine:
            first, last = np.searchsorted(listener, [number, number + 1])
            found[names[number]] = DueLoad(due[first:last], counts[first:last])
    return found


def rounded(due: Mapping[int, int], tick_ms: int, precision_ms: int) -> DueLoad:
    """Messages by due time (ms UTC), rounded up to a tick as what is pending is."""
    times, counts = (np.fromiter(each, np.int64, len(due)) for each in (due.keys(), due.values()))
    bits = tick_bits(tick_ms)
    finest = _finest(bits, precision_ms)
    return DueLoad.of(trim_up(times, bits) // finest * finest, counts)


def _finest(bits: int, precision_ms: int) -> int:
    return precision_ms if 1 << bits < precision_ms else 1
