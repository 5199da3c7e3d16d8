"""Bytes that rot: a row names the key and the remedy, the rest goes on, and a rebuild brings everything back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention
from pyspark.sql.streaming.state import GroupState

from pipeline.config.stages import SCHEDULE
from pipeline.schedule import keys
from pipeline.schedule import stage as schedule
from pipeline.worker import group_state
from pipeline.worker import release as worker
from schemas import REJECTED_SCHEDULE
from tests.support.stream import World, advance, append, check, delivered, message, play, restart, stop, subscribe

T0 = 1_700_000_100_000
MINUTE = 60_000


def rotting_state() -> Any:  # noqa: ANN401 - a function as Spark takes it
    """The stateful function, on a disk that loses what it keeps."""
    inner = worker.release

    def release(key: tuple[Any, ...], frames: Iterable[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        yield from inner(key, frames, state)
        if state.exists:
            *scalars, data = state.get
            state.update((*scalars, bytes(data[:-1]) + b"?"))
            group_state._wake_at(state, scalars[1] - 1)

    return release


def rotting_chunks() -> Callable[[DataFrame, int], DataFrame]:
    """What the schedule reads of `segments`, from a disk that loses bytes of the first segment only."""
    inner = keys.addressed

    def addressed(segments: DataFrame, count: int) -> DataFrame:
        lost = F.col("segment_ms") == T0 + 10 * MINUTE
        rotten = F.concat(F.expr("substring(chunk, 1, octet_length(chunk) - 1)"), F.lit(b"?"))
        return inner(segments, count).withColumn("chunk", F.when(lost, rotten).otherwise(F.col("chunk")))

    return addressed


ALL = ["now", "a", "c", "b"]
"""In the order in which they are due. A state keeps even what is due at once, until the batch behind its tick."""
PLANTED = {"state": ("release", rotting_state), "chunk": ("addressed", rotting_chunks)}


@pytest.mark.parametrize(("what", "lost"), [("state", ALL), ("chunk", ["a"])])
def test_what_rots_is_named_with_its_remedy_and_a_rebuild_brings_it_back(
    spark: SparkSession, folder: str, monkeypatch: pytest.MonkeyPatch, what: str, lost: list[str]
) -> None:
    """A message on a bad disk is late until somebody rebuilds; it is never gone, and never comes twice."""
    name, plant = PLANTED[what]
    monkeypatch.setattr(schedule, name, plant())

    def heal(_: World) -> None:
        monkeypatch.undo()

    def named(world: World) -> None:
        rows = world.rows(REJECTED_SCHEDULE)
        assert {(row["topic"], row["subscription"]) for row in rows} == {("t", "s")}
        assert {int(row["segment_start"].timestamp() * 1_000) for row in rows} >= {T0 + 10 * MINUTE}
        assert all("('t', 's', " in row["reason"] and "rebuild the schedule" in row["reason"] for row in rows)

    def remedy(world: World) -> None:
        world.end()
        world.rebuild(SCHEDULE)

    healthy, late = ([each for each in ALL if (each in lost) is there] for there in (False, True))
    play(
        spark,
        folder,
        [
            subscribe("t", "s"),
            append(message("now"), message("a", after=10 * MINUTE), message("b", after=20 * MINUTE)),
            advance(T0),
            stop(),
            check(heal),
            restart(),
            append(message("c", after=11 * MINUTE)),
            advance(T0 + 1_000),
            delivered(*healthy[:1]),
            advance(T0 + 30 * MINUTE),
            delivered(*healthy),
            check(named),
            check(remedy),
            restart(),
            advance(T0 + 31 * MINUTE),
            delivered(*healthy, *late),
        ],
    )
