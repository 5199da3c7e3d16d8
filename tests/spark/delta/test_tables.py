"""The tables of a warehouse: made as `schemas` says, once, for readers and writers that know nothing of Spark."""

from __future__ import annotations

import os
from pathlib import Path
from shutil import copytree

import pyarrow as pa
import pytest
from chispa import assert_df_equality
from delta.tables import DeltaTable as SparkTable
from deltalake import DeltaTable, write_deltalake
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pipeline.client.insight.pendingrows import pending_rows
from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from pipeline.config.errors import BadSetting
from pipeline.delta.properties import PROPERTIES
from pipeline.delta.tables import create_all, segment_ms
from pipeline.delta.views import lateness
from pipeline.delta.warehouse import Warehouse
from pipeline.storage.files import Files
from pipeline.subscriptions.registry import Registry
from schemas import DELIVERIES, INBOX, MESSAGES, PUBLICATIONS, SUBSCRIPTIONS, TABLES, Table
from tests.support.client import message_row, put
from tests.support.rows import T0, messages, rows_of
from tests.support.spark import session
from tests.support.stream import empty_warehouse

NO_DELTA_RS_WRITER = {"clustering", "allowColumnDefaults", "rowTracking", "identityColumns", "inCommitTimestamp"}
"""Features of a table that keep delta-rs from appending to it."""


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    """Tables as Spark makes them where delta-rs does not: on HDFS, for instance."""
    made = Warehouse(str(tmp_path_factory.mktemp("made")), session())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Files, "local", lambda *_: None)
        create_all(made, segment_ms=300_000)
    return made


def versions(warehouse: Warehouse) -> dict[str, int]:
    """The version of each table."""
    return {table.name: DeltaTable(warehouse.path(table)).version() for table in TABLES}


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_a_table_is_made_as_its_contract_says(warehouse: Warehouse, table: Table) -> None:
    """Columns, types and nullability of what lies on disk are those of `schemas`, binary columns last.

    The client makes the same tables as Spark does.
    """
    made, alike = (DeltaTable(each.path(table)) for each in (warehouse, Warehouse(empty_warehouse(300_000))))
    assert warehouse.read(table).dtypes == warehouse.spark.createDataFrame([], table.schema).dtypes
    assert alike.schema() == made.schema()
    nullable = {field.name: field.nullable for field in made.schema().fields}
    assert nullable == {field.name: field.nullable for field in table.schema.fields}
    promised = PROPERTIES | table.properties
    for each in (made, alike):
        said = each.metadata().configuration
        assert {key: said.get(key) for key in promised} == promised
        assert not NO_DELTA_RS_WRITER & set(each.protocol().writer_features or [])


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_delta_rs_reads_every_table(warehouse: Warehouse, table: Table) -> None:
    """Consumers and the command need no JVM."""
    read = DeltaTable(warehouse.path(table)).to_pyarrow_table()
    assert (read.num_rows, read.column_names) == (0, table.schema.names)


def test_delta_rs_appends_to_the_inbox_and_reads_what_spark_wrote(spark: SparkSession, folder: str) -> None:
    """Producers may be anything; what they leave out is NULL, and times keep their microseconds both ways."""
    warehouse = Warehouse(folder, spark)
    copytree(empty_warehouse(300_000), folder)
    sent = pa.table(
        {
            "topic": ["t"],
            "deliver_at": pa.array([T0 * 1_000 + 1], pa.timestamp("us", "UTC")),
            "payload": pa.array([b"p"], pa.binary()),
        }
    )
    write_deltalake(warehouse.path(INBOX), sent, mode="append", schema_mode="merge")
    wanted = spark.sql(
        f"SELECT 't' AS topic, timestamp_micros({T0 * 1_000 + 1}) AS deliver_at, "
        "CAST(NULL AS bigint) AS deliver_after_ms, CAST('p' AS binary) AS payload"
    )
    taken = warehouse.read(INBOX).select(*wanted.columns)
    assert_df_equality(taken, wanted, ignore_nullable=True)

    log = messages(spark, {"ledger_id": 2, "entry_id": 3, "due_time": T0 + 7, "payload": bytearray(b"m")})
    log.write.format("delta").mode("append").save(warehouse.path(MESSAGES))
    row = DeltaTable(warehouse.path(MESSAGES)).to_pyarrow_table().to_pylist()[0]
    assert (row["ledger_id"], row["entry_id"], row["payload"]) == (2, 3, b"m")
    assert row["due_time"].timestamp() * 1_000 == T0 + 7


def test_creating_twice_changes_nothing(spark: SparkSession, folder: str) -> None:
    """A start creates what is missing and leaves the rest alone, also the span of a segment that was set first."""
    warehouse = Warehouse(folder, spark)
    create_all(warehouse, segment_ms=60_000)
    before = versions(warehouse)
    create_all(warehouse)
    assert versions(warehouse) == before == dict.fromkeys(before, 0)
    assert segment_ms(warehouse) == 60_000


@pytest.mark.parametrize("wrong", [999, 86_400_001])
def test_a_segment_that_could_not_work_is_refused(spark: SparkSession, folder: str, wrong: int) -> None:
    """Nothing is created then."""
    with pytest.raises(BadSetting) as raised:
        create_all(Warehouse(folder, spark), segment_ms=wrong)
    assert (raised.value.field, raised.value.value) == ("segment_ms", wrong)
    assert not Path(folder).exists()


def test_a_folder_that_nobody_made_a_warehouse_is_refused(spark: SparkSession, folder: str) -> None:
    """A table of that name without our property would be cut into segments of a guessed span."""
    spark.range(1).write.format("delta").save(f"{folder}/segments")
    with pytest.raises(BadSetting):
        segment_ms(Warehouse(folder, spark))


def test_lateness_is_from_the_bucket_to_the_commit_that_showed_it(spark: SparkSession, folder: str) -> None:
    """One row a delivery: also when two checkpoints counted batches from 0, and before a commit is noted."""
    warehouse = Warehouse(folder, spark)
    copytree(empty_warehouse(300_000), folder)
    same = {"topic": "t", "subscription": "s", "ledger_id": 0, "redelivery_count": 0, "cause": "due", "sequence": 1}
    same |= {"publish_time": T0, "life": 1}
    shown = [
        (0, 0, 0, 100),
        (1, 0, 50, 100),
        (2, 1, 60, 200),
        (3, 0, 0, 9_000),
        (4, 0, 8_900, 9_000),
        (5, 2, 9_100, 9_100),
    ]
    wanted = {0: 130, 1: 80, 2: 190, 3: 9_020, 4: 120, 5: None}
    deliveries = [
        same | {"entry_id": entry, "batch_id": batch, "due_time": T0 + due, "released_at": T0 + released}
        for entry, batch, due, released in shown
    ]
    publications = [
        {"batch_id": batch, "committed_at": T0 + made, "count": 2, "first_due": T0 + first, "last_due": T0 + last}
        for batch, made, first, last in [(0, 130, 0, 50), (1, 250, 60, 60), (0, 9_020, 0, 8_900)]
    ]
    for table, rows in ((DELIVERIES, deliveries), (PUBLICATIONS, publications)):
        rows_of(spark, table.schema, *rows).write.format("delta").mode("append").save(warehouse.path(table))
    found = lateness(warehouse)
    assert {row["entry_id"]: row["late_ms"] for row in found.collect()} == wanted
    assert "payload" not in found.columns


def test_spark_takes_the_rows_of_what_waits(spark: SparkSession, folder: str) -> None:
    """As on the page: any engine asks them by SQL."""
    subscribe(copytree(empty_warehouse(300_000), folder), Subscription("t", "s", start="earliest"))
    put(folder, MESSAGES, *({**message_row(1, each, each * 40_000), "properties": [("a", "b")]} for each in range(3)))
    rows = spark.createDataFrame(pending_rows(folder, payload=True))
    rows.createOrReplaceTempView("pending_rows")
    minutes = (
        "SELECT date_trunc('MINUTE', due_time) AS minute, count(*) AS messages FROM pending_rows GROUP BY 1 ORDER BY 1"
    )
    assert [row["messages"] for row in spark.sql(minutes).collect()] == [2, 1]
    assert rows.collect()[0]["properties"] == {"a": "b"}


def test_a_version_of_the_registry_can_be_read_however_old_it_is(spark: SparkSession, folder: str) -> None:
    """A batch that is repeated after weeks goes by the registry that it noted; Delta allows for one week."""
    subscribe(copytree(empty_warehouse(300_000), folder), Subscription("t", "s"))
    subscribe(folder, Subscription("t", "z"))
    for entry in Path(folder, SUBSCRIPTIONS.name, "_delta_log").glob("*.json"):
        os.utime(entry, (0, 0))
    assert [Warehouse(folder, spark).read(SUBSCRIPTIONS, version).count() for version in range(3)] == [0, 1, 2]


@pytest.mark.parametrize("vectors", [pytest.param("false", marks=pytest.mark.soak), "true"])
def test_the_registry_is_read_without_a_job_as_spark_reads_it(
    spark: SparkSession, folder: str, vectors: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each of its versions, whoever wrote them: the command, SQL that changes lines, or SQL that deletes some."""
    warehouse = Warehouse(copytree(empty_warehouse(300_000), folder), spark)
    path = warehouse.path(SUBSCRIPTIONS)
    spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.enableDeletionVectors' = '{vectors}')")
    for name, start in (("a", "earliest"), ("b", "latest"), ("c", "latest")):
        subscribe(folder, Subscription("t", name, start=start))
    lines = SparkTable.forPath(spark, path)
    lines.update("subscription = 'b'", {"active": "false"})
    lines.delete("subscription = 'a'")
    lines.update("subscription = 'c'", {"tick_ms": "7", "start": "'earliest'"})
    registry = Registry(warehouse)
    versions = range(registry.version() + 1)
    with monkeypatch.context() as patch:
        patch.setattr(Warehouse, "read", lambda *_: pytest.fail("read by Spark"))
        found = [registry.at(version).subscriptions for version in versions]
    assert [sorted(name for _, name in each) for each in found[-4:]] == [[*"abc"], [*"ac"], ["c"], ["c"]]
    assert found[-1]["t", "c"].tick_ms == 7
    monkeypatch.setattr(Files, "local", lambda *_: None)
    other, some = Registry(warehouse), (0, *versions[-4:])
    assert [other.at(version).subscriptions for version in some] == [found[version] for version in some]


def test_a_version_that_begins_before_a_cut_log_is_left_to_spark(
    spark: SparkSession, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Delta-rs gives what the rest of the log says for a version whose beginning is gone, which may be less."""
    warehouse = Warehouse(copytree(empty_warehouse(300_000), folder), spark)
    for number in range(4):
        subscribe(folder, Subscription("t", f"s{number}"))
    assert len(Registry(warehouse).at(4).lines) == 4
    log = Path(folder, SUBSCRIPTIONS.name, "_delta_log")
    spark.sql(f"ALTER TABLE delta.`{warehouse.path(SUBSCRIPTIONS)}` SET TBLPROPERTIES ('a' = 'b')")
    subscribe(folder, Subscription("t", "s4"))
    DeltaTable(warehouse.path(SUBSCRIPTIONS)).create_checkpoint()
    for version in range(5):
        (log / f"{version:020d}.json").unlink()
    registry = Registry(warehouse)
    with monkeypatch.context() as patch:
        patch.setattr(Warehouse, "read", lambda *_: pytest.fail("read by Spark"))
        assert len(registry.at(registry.version()).lines) == 5
    with pytest.raises(PySparkException):
        registry.at(5)
