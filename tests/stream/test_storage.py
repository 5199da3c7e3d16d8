"""Storage that fails for a while."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pyarrow as pa
import pytest
from delta.tables import DeltaTable
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from pipeline.delta.writing import appender
from schemas import DELIVERIES, MESSAGES, PUBLICATIONS, REDELIVERY, REJECTED_DISPATCH, Table
from tests.support.stream import (
    Step,
    World,
    advance,
    append,
    check,
    delivered,
    kill_after,
    message,
    play,
    restart,
    subscribe,
)

T0 = 1_700_000_000_000


def test_payloads_that_cannot_be_read_for_a_while_are_all_delivered(spark: SparkSession, folder: str) -> None:
    """A file that is away stops the stage and settles nothing: when it is back, everything comes, once, in order."""

    def move(world: World, old: str, new: str) -> None:
        files = list(Path(world.warehouse.root, MESSAGES.name).glob(f"**/*{old}"))
        assert files
        for file in files:
            file.rename(file.with_name(file.name.removesuffix(old) + new))

    def failing(world: World) -> None:
        move(world, ".parquet", ".away")
        with pytest.raises(StreamingQueryException, match="parquet"):
            advance(T0 + 1_000)(world)
        world.end()
        assert world.rows(REJECTED_DISPATCH) == []
        move(world, ".away", ".parquet")

    play(
        spark,
        folder,
        [
            subscribe("t", "s"),
            append(*(message(f"{i}", after=1_000) for i in range(3)), message("now"), message("later", after=2_000)),
            advance(T0),
            check(failing),
            delivered("now"),
            restart(),
            delivered("now", "0", "1", "2"),
            advance(T0 + 2_000),
            delivered("now", "0", "1", "2", "later"),
        ],
    )


def test_a_disk_that_is_full_stops_each_stage_and_loses_nothing(
    spark: SparkSession, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that was cut is nobody's and does not stay; with room again each batch is written whole, once."""

    def failing(table: Table, instant: int) -> Step:
        def cut(rows: pa.Table, where: Path) -> None:
            if table.name not in where.parts:
                write(rows, where)
                return
            where.write_bytes(b"PAR1")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(where))

        def step(world: World) -> None:
            with monkeypatch.context() as disk:
                disk.setattr(appender, "_write", cut)
                with pytest.raises(StreamingQueryException, match="No space left on device"):
                    advance(instant)(world)
                world.end()
            assert [file for file in Path(world.warehouse.path(table)).rglob("part-*") if file.stat().st_size < 9] == []

        return check(step)

    write = appender._write
    play(
        spark,
        folder,
        [
            subscribe("t", "s"),
            append(message("now"), message("soon", after=1_000), message("later", after=2_000)),
            failing(MESSAGES, T0),
            restart(),
            delivered("now"),
            failing(REDELIVERY, T0 + 1_000),
            restart(),
            delivered("now", "soon"),
            failing(DELIVERIES, T0 + 2_000),
            restart(),
            delivered("now", "soon", "later"),
        ],
    )


def test_positions_whose_messages_are_gone_become_rejected_rows(spark: SparkSession, folder: str) -> None:
    """What is left of a release is delivered, also when the process dies before it could say what is not."""

    def lose(world: World) -> None:
        log = DeltaTable.forPath(world.spark, world.warehouse.path(MESSAGES))
        log.delete("CAST(payload AS STRING) LIKE 'gone%'")

    def refused(*counts: int) -> Step:
        def step(world: World) -> None:
            rows = world.rows(REJECTED_DISPATCH)
            assert [row["reason"] for row in rows] == ["message_missing"] * sum(counts)
            released = [row["rejected_at"] for row in rows]
            assert sorted(released.count(each) for each in set(released)) == sorted(counts)

        return check(step)

    def published(world: World) -> None:
        assert sorted(row["count"] for row in world.rows(PUBLICATIONS)) == [1, 2]

    play(
        spark,
        folder,
        [
            subscribe("t", "s"),
            append(message("a", after=1_000), message("gone 1", after=1_000), message("b", after=1_000)),
            append(message("gone 2", after=2_000), message("c", after=3_000)),
            advance(T0),
            check(lose),
            kill_after("dispatch.deliveries"),
            advance(T0 + 1_000),
            restart(),
            delivered("a", "b"),
            refused(1),
            advance(T0 + 2_000),
            refused(1, 1),
            advance(T0 + 3_000),
            delivered("a", "b", "c"),
            refused(1, 1),
            check(published),
        ],
    )
