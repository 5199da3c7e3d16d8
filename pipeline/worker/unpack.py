"""Answers of the stateful function: who gets them, and packed runs into rows of `redelivery`, by whole arrays."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.storage.arrays import IntArray, arrow_schema
from schemas import REDELIVERY, REJECTED_SCHEDULE

SAME = ("topic", "subscription", "life", "tick_ms", "instant", "redelivery_count", "round", "cause")
"""What all runs of an answer have in common."""
DUE = "due"
"""The cause of what is released for the first time, by the schedule."""
RUN = arrow_schema(REDELIVERY.columns)
_REFUSED = arrow_schema(REJECTED_SCHEDULE.columns)
_ROW_BYTES, _MOST_BYTES = 100, 128 << 20
"""Bytes of a row of `redelivery` beside its texts, and of the rows that are made at once."""


class Listener(NamedTuple):
    """A subscription that gets what an index releases; fields as in `redelivery`."""

    topic: str
    subscription: str
    life: int
    redelivery_count: int
    round: int | None
    cause: str


_LISTENER = pa.schema([RUN.field(name) for name in Listener._fields])


@lru_cache(4_096)
def listeners(owner: str) -> tuple[Listener, ...]:
    """Who shares an index, by the name of its owner (`pipeline.schedule.keys.addressed`).

    Raises:
        ValueError: it is no such name.
    """
    topic, *names = json.loads(owner)
    again = names.pop() if len(names) % 2 else f"0:{DUE}"
    numbers, _, cause = again.partition(":")
    count, _, number = numbers.partition(".")
    order = int(number) if number else None
    if not names:
        raise ValueError(f"{owner}: this index has no subscription")
    each = zip(names[::2], names[1::2], strict=True)
    return tuple(Listener(topic, name, int(life), int(count), order, cause) for name, life in each)


def fan_out(answers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Answers, once for each subscription that shares their index: what its `owner` says, and their other columns."""
    for rows in answers:
        owners, lengths = rows.column("owner").to_pylist(), pc.binary_length(rows.column("runs")).to_pylist()
        who = [(number, each) for number, owner in enumerate(owners) for each in listeners(owner)]
        names = [name for name in rows.schema.names if name != "owner"]
        others = rows.select(names)
        for first, last in _few([(1, _ROW_BYTES + (lengths[number] or 0)) for number, _ in who]):
            some = who[first:last]
            own = others.take(pa.array([number for number, _ in some]))
            batch = pa.RecordBatch.from_pylist([each._asdict() for _, each in some], schema=_LISTENER)
            yield pa.RecordBatch.from_arrays([*batch.columns, *own.columns], names=[*_LISTENER.names, *names])


@dataclass(frozen=True)
class Refusals:
    """Answers that are errors, to rows of `rejected_schedule`, one for each subscription.

    Attributes:
        batch: which batch of the schedule.
    """

    batch: int

    def __call__(self, answers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Rows of `pipeline.worker.release.RELEASE` in, for `mapInArrow`."""
        for rows in fan_out(answers):
            yield pa.RecordBatch.from_pylist([self._row(each) for each in rows.to_pylist()], schema=_REFUSED)

    def _row(self, values: dict[str, Any]) -> dict[str, Any]:
        where = "('{topic}', '{subscription}', {life}, {segment_ms})".format_map(values)
        same = {name: values[name] for name in ("topic", "subscription", "chunk")}
        times = {"rejected_at": values["instant"] * 1_000, "segment_start": values["segment_ms"] * 1_000}
        return {"reason": f"{where}: {values['error']}", "batch_id": self.batch} | same | times


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

    def of_owners(self, answers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Rows of `redelivery` from answers that name the owner of their index."""
        return self(fan_out(answers))

    def _rows(
        self, same: dict[str, pa.Array], ledgers: IntArray, firsts: IntArray, lasts: IntArray, dues: IntArray
    ) -> pa.RecordBatch:
        due = pa.array(dues * 1_000)
        columns = same | {
            "ledger_id": pa.array(ledgers),
            "first_entry": pa.array(firsts),
            "last_entry": pa.array(lasts),
            "due_time": due,
            "message_due": due,
            "released_at": pc.multiply(same["instant"], 1_000),
            "batch_id": pa.repeat(self.batch, len(dues)),
        }
        return pa.RecordBatch.from_arrays([columns[field.name].cast(field.type) for field in RUN], schema=RUN)


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
