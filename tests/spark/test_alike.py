"""Subscriptions that listen alike share an index: who shares, and that each of them gets what the index gave."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest
from pyspark.sql import DataFrame, SparkSession

from pipeline.schedule import RELEASE, addressed, failures, local_run_rows, pack, run_rows
from schemas import SEGMENTS
from state import Runs
from tests.support.rows import T0, rows_of

SHARDS = 7
WHO = ("topic", "subscription", "life")
ODD = ['"', "\\", "a,b", "[", "\n\t\x00", "ä€😀", "", " ", "null", "1"]
"""Names that a text of names might mistake for something else."""


def listener(name: str, tick_ms: int = 1, life: int = 1) -> dict[str, object]:
    """Somebody to whom a chunk is addressed."""
    return {"name": name, "life": life, "tick_ms": tick_ms}


def segment(topic: str, *listeners: dict[str, object], **told: object) -> dict[str, object]:
    """A row of `segments`."""
    row = {"topic": topic, "subscriptions": list(listeners), "segment_start": T0, "kind": "near", "chunk": b"chunk"}
    return row | {"count": 1, "batch_id": 0} | told


def answers(spark: SparkSession, owners: list[str], *, entries: int = 1, error: str | None = None) -> DataFrame:
    """What the stateful function answers for each owner: a run of entry 0 to the last one, or an error."""
    one, last = np.array([5], np.int64), np.array([entries - 1], np.int64)
    runs = b"" if error else pack(Runs(np.array([T0], np.int64), one, one * 0, last))
    return spark.createDataFrame([(owner, T0, 8, T0 + 1, runs, error, None) for owner in owners], RELEASE)


def named(rows: DataFrame) -> Counter[tuple[object, ...]]:
    """Who is named in rows, with the life where the table has one."""
    return Counter(tuple(row) for row in rows.select(*(name for name in WHO if name in rows.columns)).collect())


def test_those_of_one_tick_share_a_chunk_and_the_others_have_their_own(spark: SparkSession) -> None:
    """A chunk goes once to all who listen alike, in whatever order they are named; markers go to nobody."""
    a, b, fine = listener("a"), listener("b", life=12), listener("c", tick_ms=8)
    rows = rows_of(
        spark,
        SEGMENTS.schema,
        segment("t", b, fine, a),
        segment("t", a, b, fine, segment_start=T0 + 1_000, chunk=b"next"),
        segment("u", a),
        segment("t", a, kind="marker"),
        segment("t"),
    )
    found = [row.asDict() for row in addressed(rows, SHARDS).collect()]
    told = {(row["owner"], row["segment_ms"], row["tick_ms"], bytes(row["chunk"])) for row in found}
    alike, alone, other = '["t","a","1","b","12"]', '["t","c","1"]', '["u","a","1"]'
    assert told == {
        (alike, T0, 1, b"chunk"),
        (alike, T0 + 1_000, 1, b"next"),
        (alone, T0, 8, b"chunk"),
        (alone, T0 + 1_000, 8, b"next"),
        (other, T0, 1, b"chunk"),
    }
    assert len(found) == len(told)
    shards = {(row["owner"], row["shard"]) for row in found}
    assert len(shards) == 3
    assert all(0 <= shard < SHARDS for _, shard in shards)


def test_nothing_of_what_is_addressed_is_nullable(spark: SparkSession) -> None:
    """A nullable long reaches the function as a float, which loses the last digits."""
    frame = addressed(rows_of(spark, SEGMENTS.schema, segment("t", listener("a"))), SHARDS)
    nullable = [field.name for field in frame.schema.fields if field.nullable]
    assert nullable in ([], ["chunk"])


@pytest.mark.parametrize("name", ODD)
def test_names_survive_whatever_they_are_made_of(spark: SparkSession, name: str) -> None:
    """As topic and as subscription, beside others of the same index."""
    rows = rows_of(spark, SEGMENTS.schema, segment(name, listener(name, life=3), listener("z")))
    owners = [row["owner"] for row in addressed(rows, SHARDS).collect()]
    everybody = {(name, name, 3): 1, (name, "z", 1): 1}
    assert named(run_rows(answers(spark, owners), 0)) == everybody
    assert named(failures(answers(spark, owners, error="rotten"), 0)) == {who[:2]: 1 for who in everybody}


def test_each_who_shares_gets_all_runs_of_the_index(spark: SparkSession) -> None:
    """In the driver as in tasks."""
    released = answers(spark, ['["t","a","1","b","12"]', '["u","a","1"]'], entries=4)
    rows = local_run_rows(released, 6)
    assert rows.to_pylist() == run_rows(released, 6).toArrow().cast(rows.schema).to_pylist()
    found = [(row["topic"], row["subscription"], row["life"], row["last_entry"]) for row in rows.to_pylist()]
    assert sorted(found) == [("t", "a", 1, 3), ("t", "b", 12, 3), ("u", "a", 1, 3)]
    assert set(rows.column("batch_id").to_pylist()) == {6}
    assert set(rows.column("tick_ms").to_pylist()) == {8}


def test_an_index_from_before_is_that_of_one_subscription(spark: SparkSession) -> None:
    """Its name was written by Python, with blanks, escapes and a number; a checkpoint from then goes on."""
    owner = json.dumps(("ü", "s", 4))
    assert named(run_rows(answers(spark, [owner]), 0)) == {("ü", "s", 4): 1}
