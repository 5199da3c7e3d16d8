"""Rows of the inbox, as producers with Arrow make them: random payloads, which do not compress."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.delta.deltars import arrow_schema
from schemas import INBOX


def inbox_rows(
    random: np.random.Generator, count: int, published: int, delays: tuple[int, int], payload_bytes: int
) -> pa.Table:
    """So many rows of topic `t`, published at `published` (ms UTC), delays uniform from one to another (ms)."""
    due = (published + random.integers(*delays, count, endpoint=True)) * 1_000
    return inbox_table(random, pa.repeat("t", count), published * 1_000, due, payload_bytes)


def inbox_table(
    random: np.random.Generator, topics: pa.Array, published: int, deliver_at: NDArray[np.int64], payload_bytes: int
) -> pa.Table:
    """A row for each topic and due time; times in microseconds UTC."""
    count = len(deliver_at)
    payload = [None, pa.py_buffer(random.bytes(count * payload_bytes))]
    made = {
        "topic": topics,
        "publish_time": pa.array(np.full(count, published)),
        "deliver_at": pa.array(deliver_at),
        "payload": pa.FixedSizeBinaryArray.from_buffers(pa.binary(payload_bytes), count, payload),
    }
    columns = [made.get(each.name, pa.nulls(count)).cast(each.type) for each in arrow_schema(INBOX)]
    return pa.table(columns, schema=arrow_schema(INBOX))
