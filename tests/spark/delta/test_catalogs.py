"""Tables of a warehouse in the catalog of a session: by the SQL that the command prints."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.client.create import create_all
from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from pipeline.delta.deltars import open_table
from schemas import DELIVERIES, INBOX, TABLES
from tests.support.invoked import output
from tests.support.stages import Stages

SCHEMA, NOON = "lake", 2_000_000_000_000


@pytest.fixture
def schema(spark: SparkSession, tmp_path: Path) -> Iterator[str]:
    """An empty schema of the session's catalog."""
    spark.sql(f"CREATE SCHEMA {SCHEMA} LOCATION '{tmp_path / 'catalog'}'")
    yield SCHEMA
    spark.sql(f"DROP SCHEMA {SCHEMA} CASCADE")


def test_a_warehouse_is_used_by_the_names_of_a_catalog_after_the_printed_sql(
    spark: SparkSession, tmp_path: Path, schema: str
) -> None:
    """A row is inserted by name and delivered, and what the catalog drops is there still."""
    root = str(tmp_path / "ann's warehouse")
    create_all(root)
    subscribe(root, Subscription("t", "s", tick_ms=1))
    for statement in output(root, "ddl", "--schema", schema).split(";\n")[:-1]:
        spark.sql(statement)
    assert {row.tableName for row in spark.sql(f"SHOW TABLES IN {schema}").collect()} == {each.name for each in TABLES}
    stages = Stages(root)
    stages.instant = NOON
    stages.work()
    spark.sql(f"INSERT INTO {schema}.inbox (topic, payload, deliver_after_ms) VALUES ('t', X'61', 1000)")  # noqa: S608
    stages.work()
    stages.instant += 1_000
    stages.work()
    rows = spark.sql(f"SELECT topic, subscription, payload FROM {schema}.deliveries").collect()  # noqa: S608
    assert [tuple(row) for row in rows] == [("t", "s", bytearray(b"a"))]
    before = open_table(root, INBOX).version()
    spark.sql(f"DROP TABLE {schema}.inbox")
    assert open_table(root, INBOX).version() == before
    assert open_table(root, DELIVERIES).to_pyarrow_table().num_rows == 1
