"""Storage that fails for a while.

One run has a topic and a time of its own for each test, so that one world stands all of it.
"""

from __future__ import annotations

import errno
import os
from functools import cache
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException

from pipeline.delta import deltars
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
    restart,
    subscribe,
)
from tests.support.together import Played, play_together

T0 = 1_700_000_000_000


def away(topic: str, begin: int) -> list[Step]:
    """The files of messages are away when some are due."""

    def move(world: World, old: str, new: str) -> None:
        files = list(Path(world.warehouse.root, MESSAGES.name).glob(f"**/*{old}"))
        assert files
        for file in files:
            file.rename(file.with_name(file.name.removesuffix(old) + new))

    def failing(world: World) -> None:
        move(world, ".parquet", ".away")
        with pytest.raises(StreamingQueryException, match="parquet"):
            advance(begin + 1_000)(world)
        world.end()
        assert world.rows(REJECTED_DISPATCH) == []
        move(world, ".away", ".parquet")

    return [
        subscribe(topic, "s"),
        append(
            *(message(f"{i}", topic, after=1_000) for i in range(3)),
            message("now", topic),
            message("later", topic, after=2_000),
        ),
        advance(begin),
        check(failing),
        delivered("now", topic=topic),
        restart(),
        delivered("now", "0", "1", "2", topic=topic),
        advance(begin + 2_000),
        delivered("now", "0", "1", "2", "later", topic=topic),
    ]


def gone(topic: str, begin: int) -> list[Step]:
    """Messages are deleted before they are due; the process dies before it could say that."""

    def lose(world: World) -> None:
        log = deltars.open_table(world.warehouse.root, MESSAGES)
        log.delete(f"topic = '{topic}' AND CAST(payload AS VARCHAR) LIKE 'gone%'")

    def refused(*counts: int) -> Step:
        def step(world: World) -> None:
            rows = [row for row in world.rows(REJECTED_DISPATCH) if row["topic"] == topic]
            assert [row["reason"] for row in rows] == ["message_missing"] * sum(counts)
            released = [row["rejected_at"] for row in rows]
            assert sorted(released.count(each) for each in set(released)) == sorted(counts)

        return check(step)

    def published(world: World) -> None:
        mine = [row for row in world.rows(PUBLICATIONS) if row["first_due"].timestamp() * 1_000 >= begin]
        assert sorted(row["count"] for row in mine) == [1, 2]

    return [
        subscribe(topic, "s"),
        append(*(message(each, topic, after=1_000) for each in ("a", "gone 1", "b"))),
        append(message("gone 2", topic, after=2_000), message("c", topic, after=3_000)),
        advance(begin),
        check(lose),
        kill_after("dispatch.deliveries"),
        advance(begin + 1_000),
        restart(),
        delivered("a", "b", topic=topic),
        refused(1),
        advance(begin + 2_000),
        refused(1, 1),
        advance(begin + 3_000),
        delivered("a", "b", "c", topic=topic),
        refused(1, 1),
        check(published),
    ]


def full(topic: str, begin: int) -> list[Step]:
    """The disk is full when each stage writes."""
    write = appender._write

    def failing(table: Table, instant: int) -> Step:
        def cut(rows: pa.Table, where: Path) -> None:
            if table.name not in where.parts:
                write(rows, where)
                return
            where.write_bytes(b"PAR1")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(where))

        def step(world: World) -> None:
            no_room = pytest.raises(StreamingQueryException, match="No space left on device")
            with patch.object(appender, "_write", cut), no_room:
                advance(instant)(world)
            world.end()
            assert [file for file in Path(world.warehouse.path(table)).rglob("part-*") if file.stat().st_size < 9] == []

        return check(step)

    return [
        subscribe(topic, "s"),
        append(message("now", topic), message("soon", topic, after=1_000), message("later", topic, after=2_000)),
        failing(MESSAGES, begin),
        restart(),
        delivered("now", topic=topic),
        failing(REDELIVERY, begin + 1_000),
        restart(),
        delivered("now", "soon", topic=topic),
        failing(DELIVERIES, begin + 2_000),
        restart(),
        delivered("now", "soon", "later", topic=topic),
    ]


@cache
def minute() -> Played:
    """The run."""
    return play_together(
        {"away": away("away", T0), "gone": gone("gone", T0 + 10_000), "full": full("full", T0 + 20_000)}
    )


def test_payloads_that_cannot_be_read_for_a_while_are_all_delivered() -> None:
    """A file that is away stops the stage and settles nothing: when it is back, everything comes, once, in order."""
    minute().shows("away")


def test_positions_whose_messages_are_gone_become_rejected_rows() -> None:
    """What is left of a release is delivered, also when the process dies before it could say what is not."""
    minute().shows("gone")


def test_a_disk_that_is_full_stops_each_stage_and_loses_nothing() -> None:
    """A file that was cut is nobody's and does not stay; with room again each batch is written whole, once."""
    minute().shows("full")
