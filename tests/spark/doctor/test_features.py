"""Somebody switched something on in a table of a stage: by the commands of the doctor the stage writes again."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from pipeline.client.create import create_all
from pipeline.config.errors import UnknownTableFeature
from pipeline.delta.deltars import path_of, rows_of
from pipeline.delta.logs.logstore import TableLog
from pipeline.delta.writing.appender import Appender
from schemas import PUBLICATIONS
from tests.support.examined import found, publication, wrong

SWITCHED = {
    "feed": "ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')",
    "constraint": "ALTER TABLE {t} ADD CONSTRAINT some CHECK (count > 0)",
    "deletion vectors": "ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')",
    "row tracking": "ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableRowTracking' = 'true')",
    "column mapping": "ALTER TABLE {t} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
}
SOAK = ("constraint", "row tracking", "column mapping")


@pytest.fixture
def path(tmp_path: Path) -> str:
    """The publications of a new warehouse, with a row."""
    create_all(str(tmp_path))
    append(path_of(str(tmp_path), PUBLICATIONS))
    return path_of(str(tmp_path), PUBLICATIONS)


def append(path: str) -> None:
    """One more row."""
    write_deltalake(path, rows_of(PUBLICATIONS, [publication()]), mode="append")


def heals(spark: SparkSession, path: str) -> None:
    """The doctor tells of the table, the stage is refused, somebody gives the commands, and the stage writes."""
    (finding,) = found(str(Path(path).parent))
    assert (finding.what, finding.subject) == ("feature_unknown", "publications")
    with pytest.raises(UnknownTableFeature):
        Appender(spark, path, PUBLICATIONS)
    commands = re.findall(r"(?:ALTER|RESTORE) TABLE (?:(?!; ).)+", finding.remedy)
    assert commands
    for command in commands:
        spark.sql(command)
    assert wrong(str(Path(path).parent)) == set()
    appender = Appender(spark, path, PUBLICATIONS)
    before = DeltaTable(path).to_pyarrow_table().num_rows
    appender.commit(appender.put(rows_of(PUBLICATIONS, [publication()])), "")
    TableLog(spark, path).checkpoint()
    assert spark.read.format("delta").load(path).count() == before + 1
    assert DeltaTable(path).to_pyarrow_table().num_rows == before + 1
    assert wrong(str(Path(path).parent)) == set()


@pytest.mark.parametrize(
    "switched", [pytest.param(name, marks=pytest.mark.soak) if name in SOAK else name for name in SWITCHED]
)
def test_what_was_switched_on_goes_by_the_commands_of_the_doctor(spark: SparkSession, path: str, switched: str) -> None:
    """Delta lowers no protocol: what stays in it is spent, and no reason to refuse the table."""
    spark.sql(SWITCHED[switched].format(t=f"delta.`{path}`"))
    heals(spark, path)


def test_a_property_that_is_not_set_is_set_by_the_statement_of_the_doctor(spark: SparkSession, tmp_path: Path) -> None:
    """A warehouse that is older than the property lacks it."""
    create_all(str(tmp_path))
    spark.sql(f"ALTER TABLE delta.`{tmp_path}/deliveries` UNSET TBLPROPERTIES ('delta.deletedFileRetentionDuration')")
    (finding,) = found(str(tmp_path))
    assert (finding.what, finding.subject) == ("property_unset", "deliveries")
    spark.sql(finding.remedy)
    assert wrong(str(tmp_path)) == set()


def test_partitions_go_by_the_command_of_the_doctor(spark: SparkSession, path: str) -> None:
    """Who makes them writes all rows anew; they come back as they were."""
    rows = DeltaTable(path).to_pyarrow_table()
    write_deltalake(path, rows, mode="overwrite", partition_by=["batch_id"], schema_mode="overwrite")
    heals(spark, path)
