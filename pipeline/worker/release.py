"""The stateful function of the schedule: chunks come in, and runs of what is due go out."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.config.settings import HOUR_MS
from pipeline.worker import group_state
from pipeline.worker.group_state import State
from state import DelaylineError, IndexGroup, Runs

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql.streaming.state import GroupState

KEY = ("shard", "segment_ms")
RELEASE = "owner string, segment_ms bigint, tick_ms bigint, instant bigint, runs binary, error string, chunk binary"
_COLUMNS = [field.split()[0] for field in RELEASE.split(", ")]
_SENT = ("owner", "tick_ms", "chunk")
NOBODY = '["","","0"]'
"""Owner of an answer that is about a whole state."""
Key = tuple[int, int]
"""Shard, and the segment's start in ms: the `KEY` of a state."""
Sent = tuple[str, int, bytes]
"""Owner, tick in ms, and an encoded chunk for it."""
Answer = list[Any]
"""A row of `RELEASE`."""


def release(key: Key, frames: Iterable[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    """What Spark calls with a key: rows of `_SENT` come in, rows of `RELEASE` go out."""
    from pandas import DataFrame  # noqa: PLC0415 - Spark has frames; who calls `released` need not have them

    leave_out_modules()
    rows = (row for frame in frames for row in zip(*(frame[name] for name in _SENT), strict=True))
    answers = released(key, rows, state)
    if answers:
        yield DataFrame(answers, columns=_COLUMNS)


def released(key: Key, rows: Iterable[Sequence[Any]], state: State) -> list[Answer]:
    """Take in the chunks of a key, let go what is due. What goes wrong becomes a row: an exception would come back.

    Args:
        key: whose state it is.
        rows: (owner, tick, chunk) each; a state that timed out has none.
        state: what is kept of the key.
    """
    instant = group_state.watermark_ms(state)
    sent: list[Sent] = []
    try:
        if not state.hasTimedOut:
            sent = [_sent(*row) for row in rows]
        return _release(key, instant, sent, state)
    except Exception as error:  # noqa: BLE001 - whatever it is, it would come back with every replay
        group_state.keep(state, instant + HOUR_MS)
        lost: list[tuple[str, bytes | None]] = [(owner, chunk) for owner, _, chunk in sent] or [(NOBODY, None)]
        return [_failure(key, owner, instant, error, chunk) for owner, chunk in lost]


def _release(key: Key, instant: int, sent: list[Sent], state: State) -> list[Answer]:
    """Append, pop, save. The state is touched last: what fails before leaves it as it was."""
    pending = group_state.load(state)
    refused = list(_append(key, instant, pending, sent))
    # Before the first tick there is no instant at which anything could be released, not even what was due in 1970.
    answers = list(_pop(key, instant, pending)) if instant else []
    group_state.save(state, pending)
    return [*answers, *refused]


def _append(key: Key, instant: int, pending: IndexGroup, sent: list[Sent]) -> Iterator[Answer]:
    """Append chunks; give a row for each that is refused, with the chunk, so that nothing is lost."""
    for owner, tick, chunk in sent:
        try:
            pending.append_chunk(owner.encode(), tick, chunk)
        except DelaylineError as error:
            yield _failure(key, owner, instant, error, chunk)


def _pop(key: Key, instant: int, pending: IndexGroup) -> Iterator[Answer]:
    """A row for each index of which something is due. One that cannot be read is kept, and looked at again."""
    for name in pending.due(instant):
        owner, tick = name.decode(), pending.tick_ms(name)
        try:
            runs = pending.pop_due_runs(name, instant)
        except DelaylineError as error:
            pending.put_off(name, instant + HOUR_MS)
            yield _failure(key, owner, instant, error, None)
        else:
            if len(runs):
                yield [owner, key[1], tick, instant, pack(runs), None, None]


def _failure(key: Key, owner: str, instant: int, error: Exception, chunk: bytes | None) -> Answer:
    """What is wrong, and the remedy; `failures` says with whose positions."""
    reason = f"{type(error).__name__}: {error}; rebuild the schedule from the tables"
    return [owner, key[1], 0, instant, b"", reason, chunk]


def _sent(owner: str, tick: Any, chunk: Any) -> Sent:  # noqa: ANN401 - as pandas hands it over
    return owner, int(tick), bytes(chunk)


def pack(runs: Runs) -> bytes:
    """Runs as four int64 columns, one after the other."""
    columns = (runs.ledger_ids, runs.first_entries, runs.last_entries, runs.due)
    return np.concatenate([np.asarray(column, dtype="<i8") for column in columns]).tobytes()


@cache
def leave_out_modules() -> None:
    """Leave what is loaded now out of all collections of garbage to come; the first call in a process does it.

    A worker of Spark collects garbage after each task (`pyspark/daemon.py`). It looks at every object then, and most of
    them belong to modules: beside PySpark, pandas and PyArrow a collection takes longer than a usual task of ours.
    """
    gc.collect()
    gc.freeze()
