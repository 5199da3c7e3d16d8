"""What producers do to the inbox beside appending: nothing is lost without a word, and nothing comes twice.

Those who change its columns share a run, with a time of its own for each, so that one inbox stands all of it.
"""

from __future__ import annotations

import logging
import re
from functools import cache
from typing import Any

import pytest
from delta.tables import DeltaTable
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

from pipeline.client.producing.inbox import OutgoingMessage, send
from pipeline.config.errors import InboxColumn
from pipeline.config.settings import Settings
from pipeline.delta.deltars import open_table
from pipeline.service.process import restart_if_possible
from schemas import INBOX, REJECTED_INGEST
from tests.support.examined import found as all_found
from tests.support.spark import session
from tests.support.stream import (
    Step,
    World,
    advance,
    append,
    at,
    check,
    delivered,
    kill_after,
    message,
    play,
    restart,
    subscribe,
)
from tests.support.together import Played, play_together
from tests.support.worlds import Play

T0 = 1_700_000_000_000
SOME_BY_SPARK = Settings(driver_rows=200_000)
"""Rows that were merged are read by Spark, however few they are."""


def keyed(topic: str, key: str, payload: str) -> dict[str, Any]:
    """A row of the inbox with a key."""
    return {**message(payload, topic), "message_key": key}


def frame(*rows: dict[str, Any]) -> DataFrame:
    """Rows of the inbox."""
    return session().createDataFrame([[row.get(n) for n in INBOX.schema.names] for row in rows], INBOX.schema)


def upsert(*rows: dict[str, Any], on: str = "t.message_key = s.message_key") -> Step:
    """Change the rows that match, insert the others."""

    def step(world: World) -> None:
        table = DeltaTable.forPath(session(), world.warehouse.path(INBOX)).alias("t")
        merge = table.merge(frame(*rows).coalesce(1).alias("s"), on)
        merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()

    return step


def overwrite(*rows: dict[str, Any]) -> Step:
    """Replace the whole inbox."""
    return lambda world: (
        frame(*rows).coalesce(1).write.format("delta").mode("overwrite").save(world.warehouse.path(INBOX))
    )


def sql(statement: str) -> Step:
    """Any statement; `inbox` stands for the table."""

    def step(world: World) -> None:
        world.warehouse.spark.sql(statement.replace("inbox", f"delta.`{world.warehouse.path(INBOX)}`"))

    return step


def listed(*expected: tuple[str, str]) -> Step:
    """Exactly these versions are listed as not taken in: operation and number of rows, each with its version."""

    def step(world: World) -> None:
        rows = [dict(row["properties"]) for row in world.rows(REJECTED_INGEST) if row["reason"] == "not_an_append"]
        rows.sort(key=lambda row: int(row["version"]))
        assert [(row["operation"], row["rows"]) for row in rows] == list(expected)
        assert all(row["remedy"] for row in rows)

    return step


def upserted(topic: str, killed: str | None = None) -> list[Step]:
    """Two upserts; the process may die on the first one."""
    return [
        subscribe(topic, "s"),
        append(*(keyed(topic, key, key) for key in "abb"), message("no key", topic)),
        advance(T0),
        delivered("a", "b", "b", "no key", topic=topic),
        upsert(keyed(topic, "a", "changed"), keyed(topic, "c", "c"), keyed(topic, "d", "d")),
        append(keyed(topic, "e", "e")),
        *([kill_after(killed)] if killed else []),
        advance(T0 + 1_000),
        *([restart()] if killed else []),
        delivered("a", "b", "b", "no key", "c", "d", "e", topic=topic),
        listed(("MERGE", "1")),
        upsert(keyed(topic, "f", "f")),
        advance(T0 + 2_000),
        delivered("a", "b", "b", "no key", "c", "d", "e", "f", topic=topic),
        listed(("MERGE", "1")),
    ]


@pytest.mark.soak
def test_what_cannot_be_told_from_old_rows_is_listed_with_its_version(
    spark: SparkSession, folder: str, caplog: pytest.LogCaptureFixture
) -> None:
    """An upsert by something that is no column, an overwrite, a restored version, an update; not a deletion."""
    by_property = "t.properties['id'] = s.properties['id']"
    rows = {name: {**message(name), "properties": {"id": name}} for name in ("a", "b", "c")}
    steps: list[Step] = [
        subscribe("t", "s"),
        append(rows["a"], rows["b"]),
        advance(T0),
        upsert({**rows["a"], "message_key": "changed"}, rows["c"], on=by_property),
        advance(T0 + 1_000),
        listed(("MERGE", "2")),
        sql("UPDATE inbox SET message_key = 'x' WHERE properties['id'] = 'b'"),
        sql("DELETE FROM inbox WHERE properties['id'] = 'a'"),
        sql("OPTIMIZE inbox"),
        overwrite(message("d"), message("e"), message("f")),
        sql("RESTORE inbox TO VERSION AS OF 1"),
        sql("DELETE FROM inbox"),
        sql("RESTORE inbox TO VERSION AS OF 1"),
        append(message("g")),
        advance(T0 + 2_000),
        delivered("a", "b", "g"),
        listed(("MERGE", "2"), ("UPDATE", "1"), ("WRITE", "3"), ("RESTORE", "2"), ("RESTORE", "2")),
    ]
    with caplog.at_level(logging.WARNING):
        play(spark, folder, steps)
    said = [record.getMessage() for record in caplog.records if "is no append" in record.getMessage()]
    assert len(said) == 5
    assert "version 2 (MERGE) is no append, 2 rows are not taken in; remedy: append" in said[0]


def widened(topic: str) -> list[Step]:
    """A producer adds columns; the stage begins anew, and later Spark takes in what comes."""

    def widen(world: World) -> None:
        rows = frame(message("b", topic)).withColumns({"instant": F.lit("mine"), "arrival_file": F.lit(1)})
        path = world.warehouse.path(INBOX)
        rows.write.format("delta").mode("append").option("mergeSchema", "true").save(path)
        with pytest.raises(StreamingQueryException, match="ColumnsChanged"):
            advance(T0 + 4_000)(world)
        world.running = [restart_if_possible(stage) for stage in world.running]
        world.drain()

    def sent(world: World) -> None:
        send(world.warehouse.root, [OutgoingMessage(topic, b"c", at(world.instant))])
        assert open_table(world.warehouse.root, INBOX).schema().to_arrow().names[-2:] == ["instant", "arrival_file"]

    return [
        subscribe(topic, "s"),
        append(message("a", topic)),
        advance(T0 + 3_000),
        check(widen),
        delivered("a", "b", topic=topic),
        check(sent),
        advance(T0 + 5_000),
        delivered("a", "b", "c", topic=topic),
        # With the other script of the run.
        advance(T0 + 6_000),
        restart(driver_rows=0),
        append(message("d", topic)),
        advance(T0 + 8_000),
        delivered("a", "b", "c", "d", topic=topic),
    ]


def spoiled() -> list[Step]:
    """Somebody overwrites the inbox, with a column of another type, and does what the page says."""

    def spoil(world: World) -> None:
        rows = frame(message("b")).withColumn("deliver_after_ms", F.lit("soon"))
        writer = rows.write.format("delta").mode("overwrite").option("overwriteSchema", "true")
        writer.save(world.warehouse.path(INBOX))
        with pytest.raises(StreamingQueryException):
            advance(T0 + 7_000)(world)
        with pytest.raises(InboxColumn) as refused:
            [restart_if_possible(stage) for stage in world.running]
        found = refused.value
        assert (found.column, found.found, found.allowed) == ("deliver_after_ms", "string", "long")

    def heal(world: World) -> None:
        world.end()
        (finding,) = (each for each in all_found(world.warehouse.root) if each.what == "column_changed")
        command = re.search(r"RESTORE TABLE \S+ TO VERSION AS OF \d+", finding.remedy)
        assert command is not None
        world.warehouse.spark.sql(command[0])
        assert "column_changed" not in {each.what for each in all_found(world.warehouse.root)}

    return [
        subscribe("spoiled", "s"),
        append(message("a", "spoiled")),
        advance(T0 + 6_000),
        check(spoil),
        check(heal),
        restart(driver_rows=0),
        append(message("b", "spoiled")),
        advance(T0 + 8_000),
        delivered("a", "b", topic="spoiled"),
    ]


class Words(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said = list[str]()

    def emit(self, record: logging.LogRecord) -> None:
        """Keep it."""
        self.said.append(record.getMessage())


WORDS = Words()


@cache
def seconds() -> Played:
    """The run, in which one inbox stands all of it."""
    logging.getLogger().addHandler(WORDS)
    try:
        return play_together({"widened": widened("widened"), "spoiled": spoiled()})
    finally:
        logging.getLogger().removeHandler(WORDS)


def test_the_new_rows_of_an_upsert_are_delivered_and_the_changed_ones_are_named(play: Play) -> None:
    """A row that was delivered is not delivered again because somebody changed it; also when the process dies on it."""
    play(upserted("t", "ingest.rejected_ingest"), SOME_BY_SPARK)


@pytest.mark.soak
@pytest.mark.parametrize("killed", [None, "ingest.messages"])
def test_the_new_rows_of_an_upsert_are_delivered_wherever_the_process_dies(
    spark: SparkSession, folder: str, killed: str | None
) -> None:
    """Or nowhere."""
    play(spark, folder, upserted("t", killed))


def test_a_producer_adds_a_column_and_everybody_goes_on() -> None:
    """The stage begins anew by itself, `send` writes by name, and one line says what is not read."""
    seconds().shows("widened")
    said = {each for each in WORDS.said if each.startswith("inbox: columns")}
    assert said == {"inbox: columns that are not read: instant, arrival_file"}


def test_a_column_of_another_type_is_named_and_restored() -> None:
    """Not a wall of Spark's: which column, what it is now, what it has to be."""
    seconds().shows("spoiled")
