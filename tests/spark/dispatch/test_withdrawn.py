"""What is withdrawn is left out by Spark as by arrays, and said with the same rows."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from pipeline.dispatch import release_spark, withdrawn
from pipeline.dispatch.withdrawn import Withdrawn
from pipeline.storage.arrays import arrow_schema
from schemas import REDELIVERY
from state.positions import Positions
from state.positionset import PositionSet
from state.withdrawals import Round
from tests.support.rows import T0, runs

KEYS = ("topic", "subscription", "life", "redelivery_count", "ledger_id")


def singles(rows: pa.Table) -> list[tuple[Any, ...]]:
    """Every position of runs, with its key and when it is due."""
    return sorted(
        (*(row[name] for name in KEYS), entry, row["due_time"])
        for row in rows.to_pylist()
        for entry in range(row["first_entry"], row["last_entry"] + 1)
    )


def test_spark_parts_runs_as_arrays_do(spark: SparkSession) -> None:
    """Position by position, of each round and life for itself; both say the same rows of what they leave out."""
    draw = random.Random(20_261_125)  # noqa: S311 - not a secret
    batch = []
    for _ in range(40):
        first, count = draw.randrange(100), draw.randrange(2)
        named = {"subscription": draw.choice("sz"), "life": draw.choice([1, 2]), "ledger_id": draw.choice([3, 5, 8])}
        run = {"first_entry": first, "last_entry": first + draw.choice([0, 1, 9]), "redelivery_count": count}
        batch.append({"topic": "t", **named, **run, "due_time": T0 + first})
    frame = runs(spark, *batch)
    arrays = frame.toArrow().select(REDELIVERY.schema.names).cast(arrow_schema(REDELIVERY.columns))
    parts = {
        Round("t", name, 2, 0): PositionSet.of(Positions.of_runs([(ledger, 10, 40), (ledger, 60, 61)]))
        for name, ledger in (("s", 3), ("z", 5), ("nobody", 8))
    }
    told = Withdrawn(4, parts)
    left, gone = told.parted(arrays)
    by_spark = release_spark.parted(frame, told.rows())
    for mine, other in zip((left, gone), by_spark, strict=True):
        assert singles(mine) == singles(other.toArrow())
    assert 0 < gone.num_rows < arrays.num_rows
    refused = [
        withdrawn.cancelled_rows(gone, 7, 10_000),
        release_spark.cancelled_rows(by_spark[1], 7).toArrow().cast(withdrawn.cancelled_rows(gone, 7, 10_000).schema),
    ]
    ours, theirs = (sorted(map(str, each.to_pylist())) for each in refused)
    assert ours == theirs
    assert {row["reason"] for row in refused[0].to_pylist()} == {"cancelled"}
