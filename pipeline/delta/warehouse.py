"""A warehouse: the folders of its tables, and how their rows are read and followed."""

from collections.abc import Collection
from dataclasses import dataclass, field, replace

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from pipeline.config.errors import VersionGone
from pipeline.config.paths import usable
from pipeline.config.routes import PLACE, SETTING, SIZE, NotInDriver, SessionNeeded
from pipeline.delta.logs.entries import between, rows_of
from pipeline.delta.logs.logfiles import is_plain
from pipeline.delta.offsets import EVERYTHING_BEFORE, Offset, Position
from pipeline.delta.streams.files import TableFiles
from pipeline.delta.streams.log import LogSource
from pipeline.storage.files import Files
from pipeline.storage.hadoop import session_files
from pipeline.storage.parquet import read_footers
from schemas import (
    Table,
)

Place = tuple[int, str]
"""A file of a table: the version that added it, and its path relative to the table, decoded."""


_FOOTERS = 64
"""So many files are looked at to learn how many rows they have."""


@dataclass(frozen=True)
class Warehouse:
    """A folder of Delta tables, with checkpoints and the virtual clock beside them, and what reaches them.

    Attributes:
        root: the folder.
        session: reads and writes what this process cannot. None: nobody does, and what this process cannot reach is out
            of reach.
    """

    root: str
    session: SparkSession | None = field(default=None, compare=False, repr=False)

    @property
    def spark(self) -> SparkSession:
        """The session, for what only Spark can do.

        Raises:
            SessionNeeded: there is none.
        """
        if self.session is None:
            raise SessionNeeded
        return self.session

    @property
    def files(self) -> Files:
        """All file systems that are reached."""
        return session_files(self.session)

    def within(self, session: SparkSession | None) -> "Warehouse":
        """The same one as another session of the process reads it: that of a query's batch has settings of its own."""
        return replace(self, session=session)

    def path(self, table: Table) -> str:
        """The folder of a table."""
        return f"{usable(self.root)}/{table.name}"

    def checkpoint(self, stage: str) -> str:
        """The checkpoint folder of a stage."""
        return f"{self.root}/_checkpoints/{stage}"

    def instants(self, stage: str) -> str:
        """The file with a stage's instants of the virtual clock. One for each stage: a replay runs them in lockstep."""
        return f"{self.root}/_clock/{stage}"

    def read(self, table: Table, version: int | None = None) -> DataFrame:
        """A table as it is now, or as it was at a version."""
        reader = self.spark.read.format("delta")
        if version is not None:
            reader = reader.option("versionAsOf", version)
        return reader.load(self.path(table))

    def between(self, table: Table, begin: Offset, end: Offset, left: Collection[Place] = ()) -> DataFrame:
        """The rows that a stream of a table gives between two places: after `begin`, up to and with `end`.

        Files of some versions are `left` out.

        Raises:
            VersionGone: the log does not have all of them any more.
        """
        found = between(self.files, self.path(table), begin, end)
        if found is None:
            raise VersionGone(table.name, begin[0], "_delta_log")
        found = [each for each in found if (each["version"], each["path"]) not in left]
        if not found:
            return self.spark.createDataFrame([], table.schema)
        return TableFiles(self.spark, self.path(table)).frame(found).select(*table.schema.names)

    def files_between(
        self, table: Table, begin: Position, end: Position, most: int, left: Collection[Place] = ()
    ) -> list[Place]:
        """The files that a batch of a stream takes: the version that added each, and a path that can be read.

        Files of some versions are `left` out.

        Raises:
            NotInDriver: only Spark reads the table, they hold more than `most` rows, or they are more than plain files.
        """
        folder = self.files.readable(self.path(table))
        if folder is None or most == 0:
            raise NotInDriver(SETTING if most == 0 else PLACE)
        added = between(self.files, self.path(table), begin.offset, end.offset)
        added = added and [each for each in added if (each["version"], each["path"]) not in left]
        if added is None or not all(map(is_plain, added)):
            raise NotInDriver
        found = [(each["version"], f"{folder}/{each['path']}") for each in added]
        count = rows_of(added)
        if (_counted(found) if count is None else count) > most:
            raise NotInDriver(SIZE)
        return found

    def follow(self, table: Table, start: Position | int, max_files: int, max_bytes: int | None = None) -> DataFrame:
        """A stream for one query: the rows appended to a table from a position or a version on; never a snapshot."""
        begin = (start, EVERYTHING_BEFORE) if isinstance(start, int) else start.offset
        return LogSource(self.spark, self.path(table), begin, max_files, max_bytes).stream()


def _counted(found: Collection[Place]) -> int:
    """How many rows files have whose log does not say it, by their footers.

    Raises:
        NotInDriver: they are many, or one cannot be read.
    """
    if len(found) > _FOOTERS:
        raise NotInDriver
    try:
        return sum(footer.num_rows for _, footer in read_footers(path for _, path in found))
    except pa.ArrowException as error:
        raise NotInDriver from error
