"""Sources under test: what a profile says of one, and the rows that it has appended."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import SparkSession

from pipeline.config.options import Observer, Options, nobody
from pipeline.config.settings import LiveClock
from pipeline.config.sources import Source
from pipeline.delta.deltars import open_table, query
from pipeline.delta.warehouse import Warehouse
from pipeline.sources.loop import SourceLoop
from pipeline.sources.running import door_of
from schemas import INBOX


@contextmanager
def following(spark: SparkSession, root: str, source: Source, observe: Observer = nobody) -> Iterator[SourceLoop]:
    """A source that was begun, and is not begun again when its query ends."""
    options = Options(LiveClock(), trigger="0 seconds", observe=observe)
    loop = SourceLoop(Warehouse(root, spark), source, door_of(source), options)
    loop.begin()
    try:
        yield loop
    finally:
        loop.stop()


def take_all(spark: SparkSession, root: str, source: Source, observe: Observer = nobody) -> None:
    """Take what is there, and stop."""
    with following(spark, root, source, observe) as loop:
        assert loop.query is not None
        loop.query.processAllAvailable()


def inbox(root: str, columns: str = "*") -> list[dict[str, Any]]:
    """The rows of `inbox`, by their payloads."""
    return query(f"SELECT {columns} FROM t ORDER BY payload", t=open_table(root, INBOX))  # noqa: S608 - of a test
