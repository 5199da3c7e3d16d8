"""Subscriptions that listen alike share an index: who shares, and that each of them gets what the index gave."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from pyspark.sql import DataFrame, SparkSession

from pipeline.schedule.keys import addressed
from pipeline.schedule.stage import Answers, counted, failures, few, held_run_rows, local_run_rows, run_rows
from pipeline.worker.release import RELEASE, pack
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


def segment(topic: str, *listeners: dict[str, object], **columns: object) -> dict[str, object]:
    """A row of `segments`."""
    row = {"topic": topic, "subscriptions": list(listeners), "segment_start": T0, "kind": "near", "chunk": b"chunk"}
    return row | {"count": 1, "batch_id": 0} | columns


def answers(spark: SparkSession, owners: list[str], *, error: str | None = None) -> DataFrame:
    """What the stateful function answers: an error, or n + 1 runs of n + 1 entries in ledger n for the n-th owner."""
    rows = []
    for number, owner in enumerate(owners):
        entries = np.arange(number + 1, dtype=np.int64) * 10
        same = np.ones(number + 1, np.int64)
        runs = b"" if error else pack(Runs(same * T0, same * number, entries, entries + number))
        rows.append((owner, T0, 8, T0 + 1, runs, error, None))
    return spark.createDataFrame(rows, RELEASE)


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
    chunks = {(row["owner"], row["segment_ms"], row["tick_ms"], bytes(row["chunk"])) for row in found}
    alike, alone, other = '["t","a","1","b","12"]', '["t","c","1"]', '["u","a","1"]'
    assert chunks == {
        (alike, T0, 1, b"chunk"),
        (alike, T0 + 1_000, 1, b"next"),
        (alone, T0, 8, b"chunk"),
        (alone, T0 + 1_000, 8, b"next"),
        (other, T0, 1, b"chunk"),
    }
    assert len(found) == len(chunks)
    shards = {(row["owner"], row["shard"]) for row in found}
    assert len(shards) == 3
    assert all(0 <= shard < SHARDS for _, shard in shards)


AGAIN = {"kind": "retry", "redelivery_count": 2, "cause": "ack_timeout"}


def test_what_comes_again_has_an_index_of_its_own_for_each_count_and_cause(spark: SparkSession) -> None:
    """The owner's name tells them, and the names of the others are what they were; a rebuild's rows are alike."""
    rows = rows_of(
        spark,
        SEGMENTS.schema,
        segment("t", listener("s")),
        segment("t", listener("s"), **AGAIN),
        segment("t", listener("s"), **AGAIN | {"redelivery_count": 3}),
        segment("t", listener("s"), **AGAIN | {"cause": "a:b"}),
        segment("t", listener("s"), **AGAIN | {"kind": "rebuild"}),
        segment("t", listener("s"), **AGAIN | {"redelivery_count": 0, "round": 12, "cause": "rescheduled"}),
        segment("t", listener("s"), kind="rebuild"),
    )
    owners = Counter(row["owner"] for row in addressed(rows, SHARDS).collect())
    assert owners == {
        '["t","s","1"]': 2,
        '["t","s","1","2:ack_timeout"]': 2,
        '["t","s","1","3:ack_timeout"]': 1,
        '["t","s","1","2:a:b"]': 1,
        '["t","s","1","0.12:rescheduled"]': 1,
    }
    released = answers(spark, sorted(owners))
    run_lines = local_run_rows(released, 0).to_pylist()
    # As many runs as there are owners before it, and one.
    names = ("subscription", "redelivery_count", "round", "cause")
    assert Counter(tuple(row[name] for name in names) for row in run_lines) == {
        ("s", 0, 12, "rescheduled"): 1,
        ("s", 2, None, "a:b"): 2,
        ("s", 2, None, "ack_timeout"): 3,
        ("s", 3, None, "ack_timeout"): 4,
        ("s", 0, None, "due"): 5,
    }
    assert run_lines == run_rows(released, 0).toArrow().cast(local_run_rows(released, 0).schema).to_pylist()
    held = few(released)
    assert held is not None
    assert (held.size, held.failed, held.rows) == (32 * len(run_lines), 0, len(owners))
    assert held_run_rows(held.held, 0).to_pylist() == run_lines
    assert replace(held, held=()) == counted(released)
    rotten = answers(spark, sorted(owners), error="rotten")
    assert named(failures(rotten, 0)) == {("t", "s"): 5}
    assert few(rotten) == counted(rotten) == Answers(0, 5, 5)


def test_nothing_of_what_is_addressed_is_nullable(spark: SparkSession) -> None:
    """A nullable long reaches the function as a float, which loses the last digits."""
    frame = addressed(rows_of(spark, SEGMENTS.schema, segment("t", listener("a"))), SHARDS)
    assert [field.name for field in frame.schema.fields if field.nullable] == ["chunk"]


def test_names_survive_whatever_they_are_made_of(spark: SparkSession) -> None:
    """As topic and as subscription, beside others of the same index."""
    rows = rows_of(spark, SEGMENTS.schema, *(segment(name, listener(name, life=3), listener("z")) for name in ODD))
    owners = [row["owner"] for row in addressed(rows, SHARDS).collect()]
    everybody = {who for name in ODD for who in ((name, name, 3), (name, "z", 1))}
    assert set(named(run_rows(answers(spark, owners), 0))) == everybody
    refused = failures(answers(spark, owners, error="rotten"), 0).collect()
    assert Counter((row["topic"], row["subscription"]) for row in refused) == {who[:2]: 1 for who in everybody}
    reasons = {row["reason"] for row in refused}
    assert reasons == {f"('{topic}', '{name}', {life}, {T0}): rotten" for topic, name, life in everybody}


def test_each_who_shares_gets_all_runs_of_the_index(spark: SparkSession) -> None:
    """In the driver as in tasks."""
    released = answers(spark, ['["u","a","1"]', '["t","a","1","b","12"]', '["v","c","1"]'])
    rows = local_run_rows(released, 6)
    assert rows.to_pylist() == run_rows(released, 6).toArrow().cast(rows.schema).to_pylist()
    names = ("topic", "subscription", "life", "ledger_id", "first_entry", "last_entry", "tick_ms", "batch_id")
    found = sorted(tuple(row[name] for name in names) for row in rows.to_pylist())
    assert found == [
        ("t", "a", 1, 1, 0, 1, 8, 6),
        ("t", "a", 1, 1, 10, 11, 8, 6),
        ("t", "b", 12, 1, 0, 1, 8, 6),
        ("t", "b", 12, 1, 10, 11, 8, 6),
        ("u", "a", 1, 0, 0, 0, 8, 6),
        *(("v", "c", 1, 2, entry, entry + 2, 8, 6) for entry in (0, 10, 20)),
    ]
    # By this a batch is taken for one that the driver can hold: 32 bytes a run, for each who gets it.
    assert counted(released).size == 32 * len(found)


def test_an_index_from_before_is_that_of_one_subscription(spark: SparkSession) -> None:
    """Its name was written by Python, with blanks, escapes and a number; a checkpoint from then goes on."""
    released = answers(spark, [json.dumps(("ü😀", "s", 4))])
    assert named(run_rows(released, 0)) == {("ü😀", "s", 4): 1}
    assert few(released) is not None
    assert counted(released) == Answers(32, 0, 1)


def test_answers_that_are_many_or_large_are_counted_before_they_come_to_the_driver(spark: SparkSession) -> None:
    """More rows than a few, and one row with more runs than a few have: then the job may have ended early."""
    owners = [json.dumps(("t", f"s{number}", "1")) for number in range(65)]
    assert few(answers(spark, owners[:64])) is not None
    assert few(answers(spark, owners)) is None
    same = np.zeros(1 << 16, np.int64)
    runs = pack(Runs(same, same, same, same))
    assert few(spark.createDataFrame([(owners[0], T0, 8, T0 + 1, runs, None, None)], RELEASE)) is None


def test_a_name_that_cannot_be_read_is_an_error(spark: SparkSession) -> None:
    """It would be nobody's, and what it was given would be gone without a word."""
    released = answers(spark, ['["t","a",'])
    assert counted(released).size == 32
    with pytest.raises(Exception, match="Expecting value"):
        local_run_rows(released, 0)


def test_of_very_many_only_some_share_and_a_newcomer_disturbs_few(spark: SparkSession) -> None:
    """Everybody is in one index and no more; few of these are others when somebody joins, the shards are the same."""
    crowd = [listener(f"s{number}") for number in range(1_000)]
    found = []
    for listeners in (crowd, [*crowd, listener("new")]):
        rows = addressed(rows_of(spark, SEGMENTS.schema, segment("t", *listeners)), SHARDS).collect()
        found.append({row["owner"]: row["shard"] for row in rows})
        names = Counter(name for owner in found[-1] for name in json.loads(owner)[1::2])
        assert names == Counter(each["name"] for each in listeners)
        assert max(len(json.loads(owner)) for owner in found[-1]) < 2 * 128
        assert len(set(found[-1].values())) > 1
    before, after = found
    assert len(before) == len(after)
    assert len(set(before) ^ set(after)) == 2
    assert sorted(before.values()) == sorted(after.values())
