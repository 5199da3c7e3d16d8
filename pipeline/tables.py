"""The tables of a warehouse as Delta folders: create, read, follow, append."""

from collections.abc import Mapping
from dataclasses import dataclass

from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

from pipeline.deltalog import added, spelled
from pipeline.errors import BadSetting
from pipeline.files import Files
from pipeline.progress import EVERYTHING_BEFORE, Offset, Position
from pipeline.settings import DAY_MS, SECOND_MS, check
from pipeline.sizing import DEFAULT_RATE, MOST_RATE, Place, memory_here, segment_for
from schemas import (
    DELIVERIES,
    PUBLICATIONS,
    REJECTED_DISPATCH,
    REJECTED_INGEST,
    REJECTED_SCHEDULE,
    SEGMENTS,
    TABLES,
    Table,
)

SEGMENT_PROPERTY = "delayline.segmentMs"
RATE_PROPERTY = "delayline.rate"

# Checkpoints of the log every 50 commits instead of 10: each takes time inside somebody's batch. The log is kept
# for a year: a stage that starts anew reads its source from a version, and a missing version would be lost rows.
PROPERTIES = {"delta.checkpointInterval": "50", "delta.logRetentionDuration": "interval 365 days"}


@dataclass(frozen=True)
class Warehouse:
    """A folder of Delta tables, with checkpoints and the virtual clock beside them."""

    root: str

    def path(self, table: Table) -> str:
        """The folder of a table."""
        return f"{self.root}/{table.name}"

    def checkpoint(self, stage: str) -> str:
        """The checkpoint folder of a stage."""
        return f"{self.root}/_checkpoints/{stage}"

    def instants(self, stage: str) -> str:
        """The file with a stage's instants of the virtual clock. One for each stage: a replay runs them in lockstep."""
        return f"{self.root}/_clock/{stage}"

    def read(self, spark: SparkSession, table: Table, version: int | None = None) -> DataFrame:
        """A table as it is now, or as it was at a version."""
        reader = spark.read.format("delta")
        if version is not None:
            reader = reader.option("versionAsOf", version)
        return reader.load(self.path(table))

    def between(self, spark: SparkSession, table: Table, begin: Offset, end: Offset) -> DataFrame:
        """The rows that a stream of a table gives between two places: after `begin`, up to and with `end`."""
        files, path = Files(spark), self.path(table)
        names: list[str] = []
        for version in range(begin[0], end[0] + 1):
            mine = added(files, path, version)
            first = begin[1] + 1 if version == begin[0] and begin[1] >= 0 else 0
            past = max(0, end[1] + 1) if version == end[0] else len(mine)
            names += mine[first:past]
        reader = spark.read.schema(table.schema)
        paths = (f"{path}/{name}" for name in names)
        return reader.parquet(*paths) if names else spark.createDataFrame([], table.schema)

    def follow(
        self, spark: SparkSession, table: Table, start: Position | int, max_files: int, max_bytes: int | None = None
    ) -> DataFrame:
        """A stream of the rows appended to a table from a position (or a version) on; never a snapshot.

        A snapshot would order rows by file and repeat, on a new checkpoint, what was taken before. Deletes (retention)
        are not news. A version that is not there yet cannot be named: the stream begins with the last one of which
        anything was taken, and leaves out those of its files.
        """
        if isinstance(start, int):
            start = Position(0, start, EVERYTHING_BEFORE)
        files = Files(spark)
        version = start.version if start.index >= 0 else max(0, start.version - 1)
        taken = added(files, self.path(table), version) if start.version > 0 or start.index >= 0 else []
        taken = taken[: start.index + 1] if start.index >= 0 else taken
        reader = spark.readStream.format("delta").option("startingVersion", version).option("skipChangeCommits", "true")
        reader = reader.option("maxFilesPerTrigger", max_files)
        if max_bytes is not None:
            reader = reader.option("maxBytesPerTrigger", f"{max_bytes}b")
        rows = reader.load(self.path(table))
        if not taken:
            return rows
        name = F.element_at(F.split(F.input_file_name(), "/"), -1)
        return rows.where(~name.isin([spelled(each) for each in taken]))


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


def segment_properties(rate: int, segment_ms: int | None = None) -> dict[str, str]:
    """What the table `segments` says of a new warehouse; without a span the one that goes with the rate.

    Raises:
        BadSetting: the rate is not between 1 and 10 million, or the span not between a second and a day.
    """
    check("rate", rate, 1, MOST_RATE)
    span = segment_for(rate) if segment_ms is None else segment_ms
    check("segment_ms", span, SECOND_MS, DAY_MS)
    return {RATE_PROPERTY: str(rate), SEGMENT_PROPERTY: str(span)}


def segment_ms(spark: SparkSession, warehouse: Warehouse) -> int:
    """The span of a segment, as fixed when the warehouse was created, in ms.

    Raises:
        BadSetting: somebody else made the table.
    """
    return segment_ms_of(_properties(spark, warehouse))


def segment_ms_of(properties: Mapping[str, str]) -> int:
    """The span of a segment, ms, that properties of `segments` state.

    Raises:
        BadSetting: they state none.
    """
    if SEGMENT_PROPERTY not in properties:
        raise BadSetting(SEGMENT_PROPERTY, None, "a warehouse made by create_all")
    return int(properties[SEGMENT_PROPERTY])


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


def rate_of(properties: Mapping[str, str]) -> int:
    """The rate that properties of `segments` state. A warehouse from before there was one has the default.

    Raises:
        BadSetting: it is not a whole number between 1 and 10 million.
    """
    text = properties.get(RATE_PROPERTY, str(DEFAULT_RATE))
    check(RATE_PROPERTY, int(text) if text.isdecimal() else text, 1, MOST_RATE)
    return int(text)


def rejected(spark: SparkSession, warehouse: Warehouse) -> DataFrame:
    """Everything that any stage refused: stage, reason, rejected_at, batch_id, topic, and the source row as JSON."""
    parts = [
        warehouse.read(spark, table).select(
            F.lit(table.writer).alias("stage"), "reason", "rejected_at", "batch_id", "topic", _source_row(table)
        )
        for table in (REJECTED_INGEST, REJECTED_SCHEDULE, REJECTED_DISPATCH)
    ]
    return parts[0].unionByName(parts[1]).unionByName(parts[2])


def lateness(spark: SparkSession, warehouse: Warehouse) -> DataFrame:
    """How late every delivery became visible: its columns less the message, `committed_at` and `late_ms`.

    `late_ms` counts from the bucket (`due_time`), so a coarse tick, which somebody asked for, is not lateness. It is
    never negative. `committed_at` is noted a moment after the commit, and after a restart when the process died between
    the two, so lateness is overstated rather than understated; it is NULL until it is noted. A new checkpoint counts
    batches from 0 again: of several publications of one number the one counts that is nearest to the release.
    """
    due = F.col("due_time")
    commits = F.struct("committed_at", "first_due", "last_due")
    noted = warehouse.read(spark, PUBLICATIONS).groupBy("batch_id").agg(F.collect_list(commits).alias("commits"))

    def fits(commit: Column) -> Column:
        return due.between(commit["first_due"], commit["last_due"]) & (commit["committed_at"] >= due)

    def distance(commit: Column) -> Column:
        off = F.abs(F.unix_micros(commit["committed_at"]) - F.unix_micros("released_at"))
        return F.struct(off.alias("off"), commit["committed_at"].alias("committed_at"))

    nearest = F.array_min(F.transform(F.filter("commits", fits), distance))["committed_at"]
    told = warehouse.read(spark, DELIVERIES).drop("message_key", "properties", "payload")
    shown = told.join(F.broadcast(noted), "batch_id", "left").withColumn("committed_at", nearest).drop("commits")
    return shown.withColumn("late_ms", F.unix_millis("committed_at") - F.unix_millis(due))


def _source_row(table: Table) -> Column:
    columns = [name for name in table.schema.names if name not in ("reason", "rejected_at", "batch_id")]
    return F.to_json(F.struct(*columns)).alias("source")


def _properties(spark: SparkSession, warehouse: Warehouse) -> dict[str, str]:
    """The properties of `segments`."""
    detail = DeltaTable.forPath(spark, warehouse.path(SEGMENTS)).detail().select("properties").first()
    return {} if detail is None else dict(detail["properties"])


def _create(spark: SparkSession, warehouse: Warehouse, table: Table, extra: Mapping[str, str]) -> None:
    building = DeltaTable.createIfNotExists(spark).location(warehouse.path(table)).addColumns(table.schema)
    for key, value in (PROPERTIES | table.properties | dict(extra)).items():
        building = building.property(key, value)
    building.execute()
