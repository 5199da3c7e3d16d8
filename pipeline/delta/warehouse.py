"""A warehouse: the folders of its tables, and how their rows are read and followed."""

from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

from pipeline.delta.commits import added, spelled
from pipeline.delta.offsets import EVERYTHING_BEFORE, Offset, Position
from pipeline.storage.hadoop import session_files
from schemas import (
    Table,
)


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
        files, path = session_files(spark), self.path(table)
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
        files = session_files(spark)
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
