"""Packed runs into rows of `redelivery`, by whole arrays."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.storage.arrays import IntArray, arrow_schema
from schemas import REDELIVERY

SAME = ("topic", "subscription", "life", "tick_ms", "instant", "redelivery_count", "round", "cause")
"""What all runs of an answer have in common."""
DUE = "due"
"""The cause of what is released for the first time, by the schedule."""
RUN = arrow_schema(REDELIVERY.schema)
_ROW_BYTES, _MOST_BYTES = 100, 128 << 20
"""Bytes of a row of `redelivery` beside its texts, and of the rows that are made at once."""


@dataclass(frozen=True)
class Unpacker:
    """Answers to rows of `redelivery`, one for each run, by whole arrays.

    Attributes:
        batch: which batch of the stage that releases.
    """

    batch: int

    def __call__(self, answers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Rows of `SAME` and `runs`, for `mapInArrow`."""
        for rows in answers:
            packed = [np.frombuffer(runs, dtype="<i8").reshape(4, -1) for runs in rows.column("runs").to_pylist()]
            texts = pc.add(pc.binary_length(rows.column("topic")), pc.binary_length(rows.column("subscription")))
            lengths = zip(packed, texts.to_pylist(), strict=True)
            sizes = [(each.shape[1], _ROW_BYTES + length) for each, length in lengths]
            for first, last in _few(sizes):
                answer = np.repeat(np.arange(first, last), [count for count, _ in sizes[first:last]])
                runs = np.concatenate(packed[first:last], axis=1)
                # An answer of its own may be too much at once.
                step = max(1, _MOST_BYTES // max(size for _, size in sizes[first:last]))
                for start in range(0, len(answer), step):
                    some = pa.array(answer[start : start + step])
                    same = {name: rows.column(name).take(some) for name in SAME}
                    yield self._rows(same, *runs[:, start : start + step])

    def _rows(
        self, same: dict[str, pa.Array], ledgers: IntArray, firsts: IntArray, lasts: IntArray, dues: IntArray
    ) -> pa.RecordBatch:
        due = pa.array(dues * 1_000)
        told = same | {
            "ledger_id": pa.array(ledgers),
            "first_entry": pa.array(firsts),
            "last_entry": pa.array(lasts),
            "due_time": due,
            "message_due": due,
            "released_at": pc.multiply(same["instant"], 1_000),
            "batch_id": pa.repeat(self.batch, len(dues)),
        }
        return pa.RecordBatch.from_arrays([told[field.name].cast(field.type) for field in RUN], schema=RUN)


def _few(sizes: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Answers, from one to another, whose runs can be held at once; `sizes` are counts of runs, and bytes of one."""
    first, held = 0, 0
    for number, (count, size) in enumerate(sizes):
        if held and held + count * size > _MOST_BYTES:
            yield first, number
            first, held = number, 0
        held += count * size
    if held:
        yield first, len(sizes)
