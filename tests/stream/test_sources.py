"""Sources with the stages: what comes in by one is delivered when it is due, and several stand side by side."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from pipeline.client.create import create_all
from pipeline.config.errors import BadSetting, StageRunning
from pipeline.config.options import Options
from pipeline.config.settings import LiveClock
from pipeline.config.sources import Source
from pipeline.delta.warehouse import Warehouse
from pipeline.sources import running
from tests.support.sources import following, inbox, take_all


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A new warehouse."""
    create_all(str(tmp_path / "warehouse"))
    return str(tmp_path / "warehouse")


@pytest.fixture
def table(tmp_path: Path) -> str:
    """The folder of a table of somebody else."""
    return str(tmp_path / "theirs")


def append(table: str, *names: str) -> None:
    """Rows of it, by one version."""
    write_deltalake(table, pa.table({"name": names, "wait": [1_000] * len(names)}), mode="append")


def source(table: str, name: str = "theirs", **told: str) -> Source:
    """What a profile says of it."""
    columns: Mapping[str, str] = {"topic": "'t'", "payload": "name", "deliver_after_ms": "wait"} | told
    return Source(name, f"delta:{table}", **columns)  # type: ignore[arg-type] # texts all


def payloads(root: str) -> list[str]:
    """What was taken."""
    return [row["payload"].decode() for row in inbox(root)]


def test_a_table_is_followed_from_its_first_row_and_each_row_is_taken_once(
    spark: SparkSession, root: str, table: str
) -> None:
    """Over starts, each of which has a new checkpoint; a version may be in the middle of a batch."""
    append(table, "a", "b")
    append(table, "c")
    take_all(spark, root, source(table))
    append(table, "d")
    take_all(spark, root, source(table))
    take_all(spark, root, source(table))
    assert payloads(root) == ["a", "b", "c", "d"]
    assert {row["deliver_after_ms"] for row in inbox(root)} == {1_000}


def test_a_source_may_begin_with_what_is_new(spark: SparkSession, root: str, table: str) -> None:
    """What is there stays where it is."""
    append(table, "old")
    with following(spark, root, source(table, start="latest")) as loop:
        assert loop.query is not None
        append(table, "new")
        loop.query.processAllAvailable()
    assert payloads(root) == ["new"]


def test_several_sources_stand_side_by_side(spark: SparkSession, root: str, table: str) -> None:
    """Each knows its own place; one that cannot be followed leaves none running."""
    append(table, "a")
    both = [source(table, "one"), source(table, "two", payload="concat(name, '2')")]
    options = Options(LiveClock(), trigger="0 seconds")
    with running.following(spark, Warehouse(root), both, options) as loops:
        for loop in loops:
            assert loop.query is not None
            loop.query.processAllAvailable()
        with pytest.raises(StageRunning):
            take_all(spark, root, both[0])
    assert payloads(root) == ["a", "a2"]
    wrong = source(f"{table}-not-there", "wrong")
    with pytest.raises(BadSetting) as refused, running.following(spark, Warehouse(root), [both[0], wrong], options):
        pass
    assert refused.value.field == "source.wrong.from"
    take_all(spark, root, both[0])
    assert payloads(root) == ["a", "a2"]
