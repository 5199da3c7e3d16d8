"""The rows of `inbox` for occurrences, column by column: a plan of many schedules has a million of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.planner.cursors import Planned
from pipeline.storage.arrays import IntArray, arrow_schema
from pipeline.subscriptions.schedules import OCCURRENCE, PLACE_OF_OCCURRENCE, SCHEDULE
from schemas import INBOX


def inbox_rows(planned: Sequence[Planned], partitions: Mapping[str, int]) -> pa.Table:
    """The rows of occurrences. Each is sent when it occurs, so a delay that its topic asks for counts from then.

    Args:
        planned: the occurrences of schedules.
        partitions: how many each topic has that is divided.
    """
    counts = np.array([len(found) for _, found in planned])
    whose = pa.array(np.repeat(np.arange(len(planned)), counts))
    at = np.fromiter(chain.from_iterable(found for _, found in planned), np.int64, int(counts.sum()))
    schema, texts = arrow_schema(INBOX.columns), iso_texts(at)
    columns = {
        "topic": _topics(planned, whose, at, partitions),
        "message_key": pa.array([schedule.message_key for schedule, _ in planned], pa.string()).take(whose),
        "properties": _properties(planned, counts, texts),
        "payload": _payloads(planned, texts),
        "publish_time": pa.array(at * 1_000).cast(schema.field("publish_time").type),
        "deliver_at": _asked(planned, at).cast(schema.field("deliver_at").type),
    }
    # Not `pa.table`, which loads pandas.
    arrays = [column.cast(schema.field(name).type) for name, column in columns.items()]
    return pa.Table.from_arrays(arrays, names=list(columns))


def _topics(planned: Sequence[Planned], whose: pa.Array, at: IntArray, partitions: Mapping[str, int]) -> pa.Array:
    """Where messages go: of a topic that is divided to one of its partitions each."""
    topics = [schedule.topic for schedule, _ in planned]
    if partitions.keys().isdisjoint(topics):
        return pa.array(topics, pa.string()).take(whose)
    schedules = (planned[number][0] for number in whose.to_pylist())
    found = (
        each.partition(then, partitions.get(each.topic, 0)) for each, then in zip(schedules, at.tolist(), strict=True)
    )
    return pa.array(found, pa.string())


def iso_texts(at: IntArray) -> list[str]:
    """Instants (ms UTC) as ISO text, as `iso_text` spells them."""
    texts: list[str] = pc.strftime(pa.array(at).cast(pa.timestamp("ms")), "%Y-%m-%dT%H:%M:%SZ").to_pylist()
    return texts


def _asked(planned: Sequence[Planned], at: IntArray) -> pa.Array:
    """When messages ask to be due, microseconds; NULL: when they are sent."""
    later = (schedule.recurrence.due(schedule.name, each) for schedule, found in planned for each in found)
    due = np.fromiter(later, np.int64, len(at))
    return pa.array(due * 1_000, mask=due == at)


def _properties(planned: Sequence[Planned], counts: IntArray, texts: Sequence[str]) -> pa.Array:
    """Those of schedules, and the two that say by which one a message comes, and for when."""
    sizes = np.repeat([len(schedule.properties) + 2 for schedule, _ in planned], counts)
    names = chain.from_iterable([*each.properties, SCHEDULE, OCCURRENCE] * len(found) for each, found in planned)
    values, place = list[str | None](), 0
    for schedule, found in planned:
        own = [*schedule.properties.values(), schedule.name]
        for text in texts[place : place + len(found)]:
            values += own
            values.append(text)
        place += len(found)
    offsets = pa.array(np.append(0, np.cumsum(sizes)), pa.int32())
    return pa.MapArray.from_arrays(offsets, pa.array(list(names), pa.string()), pa.array(values, pa.string()))


def _payloads(planned: Sequence[Planned], texts: Sequence[str]) -> pa.Array:
    """The payload of each message, with the time of its occurrence in it."""
    found, place = list[str](), 0
    for schedule, own in planned:
        parts = schedule.payload.split(PLACE_OF_OCCURRENCE)
        found += [text.join(parts) for text in texts[place : place + len(own)]]
        place += len(own)
    return pa.array(found, pa.string()).cast(pa.binary())
