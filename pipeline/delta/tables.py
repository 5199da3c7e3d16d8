"""The tables of a warehouse as Delta folders: create, read, follow, append."""

from collections.abc import Mapping

from delta.tables import DeltaTable
from pyspark.sql import SparkSession

from pipeline.config.sizing import DEFAULT_RATE, Place, memory_here
from pipeline.delta.properties import PROPERTIES, rate_of, segment_ms_of, segment_properties
from pipeline.delta.tablelog import TableLog
from pipeline.delta.warehouse import Warehouse
from schemas import (
    SEGMENTS,
    TABLES,
    Table,
)


def create_all(
    spark: SparkSession,
    warehouse: Warehouse,
    *,
    rate: int = DEFAULT_RATE,
    segment_ms: int | None = None,
    database: str | None = None,
) -> None:
    """Create the tables that are missing; those that exist are left as they are.

    Args:
        spark: a session with Delta.
        warehouse: where the tables lie.
        rate: messages a second that the busiest topic is expected to get; sizes are chosen for it.
        segment_ms: span of due time that one state value covers, fixed for the warehouse's life. None: by the rate.
        database: a database of the session's catalog in which the tables are named too.

    Raises:
        BadSetting: the rate is not between 1 and 10 million, or the span not between a second and a day.
    """
    extra = segment_properties(rate, segment_ms)
    for table in TABLES:
        _create(spark, warehouse, table, extra if table is SEGMENTS else {})
        if database is not None:
            name = f"`{database}`.`{table.name}`"
            spark.sql(f"CREATE TABLE IF NOT EXISTS {name} USING DELTA LOCATION '{warehouse.path(table)}'")


def segment_ms(spark: SparkSession, warehouse: Warehouse) -> int:
    """The span of a segment, as fixed when the warehouse was created, in ms.

    Raises:
        BadSetting: somebody else made the table.
    """
    return segment_ms_of(_properties(spark, warehouse))


def rate(spark: SparkSession, warehouse: Warehouse) -> int:
    """Messages a second that the busiest topic is expected to get, as stated when the warehouse was created.

    Raises:
        BadSetting: somebody wrote something else there since.
    """
    return rate_of(_properties(spark, warehouse))


def place(spark: SparkSession, warehouse: Warehouse) -> Place:
    """What the sizes of a warehouse follow from, in a session.

    Raises:
        BadSetting: the warehouse states a rate that is none, or no span of its segments.
    """
    told, cores = _properties(spark, warehouse), spark.sparkContext.defaultParallelism
    return Place(rate_of(told), segment_ms_of(told), cores, memory_here())


def _properties(spark: SparkSession, warehouse: Warehouse) -> dict[str, str]:
    """The properties of `segments`."""
    return dict(TableLog(spark, warehouse.path(SEGMENTS)).head().metadata["configuration"])


def _create(spark: SparkSession, warehouse: Warehouse, table: Table, extra: Mapping[str, str]) -> None:
    building = DeltaTable.createIfNotExists(spark).location(warehouse.path(table)).addColumns(table.schema)
    for key, value in (PROPERTIES | table.properties | dict(extra)).items():
        building = building.property(key, value)
    building.execute()
