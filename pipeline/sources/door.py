"""What a source is asked for, the door that each kind of outside system has; and its rows as rows of `inbox`.

Expressions of a profile (SQL) say how. They are evaluated without ANSI mode: what cannot be converted is NULL, and one
bad row does not end the query. A due time that a profile states and a row does not have is refused: without one a
message is due at once.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention
from pyspark.sql.types import (
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from pipeline.config.errors import BadSetting, BadValue
from pipeline.config.sources import COLUMNS, Source
from pipeline.delta.checkpoints import Checkpoint
from pipeline.storage.files import Files
from pipeline.subscriptions.destination import Destination
from pipeline.subscriptions.records import REFUSED, REFUSED_MS
from schemas import INBOX

Place = Mapping[str, Any]
"""How far a source is read: the offset of Spark's stream, as JSON writes it."""
NOTHING_YET = "it has read nothing yet"
"""Why nobody knows how far a source is behind that has just begun."""
NO_PROPERTIES = "CAST(map() AS MAP<STRING, STRING>)"
"""Properties with nothing in them, in SQL."""


class SourceConnector(ABC):
    """An outside system. Each method may be called again after any of them has failed.

    Attributes:
        derived: SQL expressions over the columns of the stream, by the name of the column that each is for the
            profile's expressions.
        defaults: SQL expressions for columns of `inbox` that a profile does not state, over both. Where there is none,
            a column of the same name is taken as it is.
        position: a SQL expression, a text that says to people where a row is in the source.
        lasting: whether the checkpoint of the query has to last, as a place does not say what was read.
        pause: between two looks for new rows, unless the profile states one for all.
    """

    derived: Mapping[str, str] = {}
    defaults: Mapping[str, str] = {}
    position: str
    lasting = False
    pause = "200 milliseconds"

    @abstractmethod
    def check(self, spark: SparkSession) -> None:
        """Ask whether it is there.

        Raises:
            BadSetting: the address is none, or has nothing to follow.
            SourceAway: nobody answers.
        """

    def stated(self, start: str) -> Place | None:  # noqa: ARG002 - who has such places reads it
        """The place that a profile states as `start`; None: it is none that can be stated."""
        return None

    @abstractmethod
    def latest(self, spark: SparkSession) -> Place:
        """The place behind all that is there now.

        Raises:
            SourceAway: nobody answers.
        """

    @abstractmethod
    def stream(self, spark: SparkSession, after: Place | None) -> DataFrame:
        """The rows after a place, or from the first one (`after` is None), as one stream of Spark's.

        Raises:
            SourcePlaceGone: the place is of something else, or is not there any more.
        """

    def identity(self, spark: SparkSession) -> str | None:  # noqa: ARG002 - a door is asked with the session
        """What tells that which is followed now from another one of the same name; None: its places do.

        Raises:
            BadSetting, SourceAway: as `check`.
        """
        return None

    def close(self) -> None:  # noqa: B027 - most doors keep none
        """Let go of connections; a later call makes new ones."""

    def taken(
        self,
        rows: DataFrame,
        begin: Place | None,  # noqa: ARG002 - who has more, or less, says so
        end: Place,  # noqa: ARG002 - as above
        checkpoint: Checkpoint,  # noqa: ARG002 - as above
    ) -> tuple[DataFrame, Sequence[str]]:
        """What is taken of a batch.

        Args:
            rows: of the stream; nothing of them is read yet.
            begin: the place where the batch begins; None: before everything.
            end: the place where it ends.
            checkpoint: of the query.

        Returns:
            The rows, or others; and what is left out, in words.
        """
        return rows, ()

    def tidy(self, files: Files, checkpoint: Checkpoint) -> None:  # noqa: B027 - who has one that lasts does
        """Let a checkpoint that lasts forget what cannot come again. No query runs; called at least once a day."""

    def count(self, begin: Place, end: Place) -> int | None:  # noqa: ARG002 - who knows it says so
        """How many rows lie between two places, at most; None: nobody knows."""
        return None

    @abstractmethod
    def behind(self, progress: Mapping[str, Any]) -> int | str:
        """How many rows are yet to be read, by what Spark says of the stream in a progress; or why nobody knows."""


class TopicDoor(SourceConnector):
    """A topic of a broker."""

    def __init__(self, source: Source) -> None:
        """Read the address.

        Raises:
            BadSetting: it is none.
        """
        self._source, self._field = source, source.field("address")
        try:
            self._from = Destination.parse(source.address)
        except BadValue as error:
            raise BadSetting(self._field, error.value, error.allowed) from error


def columns_of_topic(*expressions: str) -> Mapping[str, str]:
    """What is taken of a topic where a profile states nothing: its name, key, properties, time and payload, in SQL."""
    return dict(zip(("topic", "message_key", "properties", "publish_time", "payload"), expressions, strict=True))


def first_line(error: Exception) -> str:
    """The first line of what Spark says: the rest is a plan."""
    return str(error).strip().partition("\n")[0]


LENIENT = {
    "spark.sql.ansi.enabled": "false",
    # Of two equal keys of a map the last one counts; Spark's default is an error.
    "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
}
"""The settings that expressions are evaluated with."""
_UNDIVIDED: Mapping[str, int] = {}
_DUE = ("deliver_at", "deliver_after_ms")
_TEXT = (StringType,), "a STRING"
_TIME = (TimestampType,), "a TIMESTAMP; of whole milliseconds timestamp_millis(...) makes one"
_KINDS: Mapping[str, tuple[tuple[type[DataType], ...], str]] = {
    "topic": _TEXT,
    "message_key": _TEXT,
    "properties": ((MapType,), "a MAP<STRING, STRING>"),
    "publish_time": _TIME,
    "deliver_at": _TIME,
    "deliver_after_ms": ((ByteType, ShortType, IntegerType, LongType), "a whole number of milliseconds"),
    "payload": ((BinaryType, StringType), "BINARY or a STRING"),
}
"""What an expression may give, and how people are told that."""


class InboxRows:
    """The expressions of one source."""

    def __init__(self, source: Source, door: SourceConnector) -> None:
        """Take what the profile states, and the door's own for the rest."""
        self._source, self._derived = source, dict(door.derived)
        self._defaults, self._position = dict(door.defaults), door.position
        self._due = any(name in source.expressions for name in _DUE)

    def check(self, spark: SparkSession, columns: StructType) -> None:
        """Look at the expressions once, before anything is read.

        Raises:
            BadSetting: one is no SQL, names a column that is not there, or gives another type.
        """
        session = spark.newSession()
        _lenient(session)
        rows = self._with_derived(session.createDataFrame([], columns))
        for name, text in self._expressions(rows).items():
            try:
                (found,) = rows.select(F.expr(text)).schema.fields
            except PySparkException as error:
                allowed = f"SQL over {', '.join(rows.columns)}; {first_line(error)}"
                raise BadSetting(self._source.field(name), text, allowed) from error
            kinds, asked = _KINDS[name]
            if not isinstance(found.dataType, (*kinds, NullType)):
                allowed = f"{asked}; it gives {found.dataType.simpleString().upper()}"
                raise BadSetting(self._source.field(name), text, allowed)

    def of(self, rows: DataFrame, partitions: Mapping[str, int] = _UNDIVIDED) -> DataFrame:
        """The rows of a batch, as `inbox` has them.

        Args:
            rows: of the stream.
            partitions: how many each topic has that is divided; a row that names one goes to one of its partitions.
        """
        _lenient(rows.sparkSession)
        rows = self._with_derived(rows)
        expressions = self._expressions(rows)
        made = {name: F.expr(expressions.get(name, "NULL")) for name in INBOX.columns.names}
        kinds = {each.name: each.dataType for each in INBOX.schema.fields}
        cast = [column.cast(kinds[name]).alias(name) for name, column in made.items()]
        found = rows.select(*cast, F.expr(self._position).alias("place"))
        missing = F.lit(self._due) & F.coalesce(*(F.col(name).cast("string") for name in _DUE)).isNull()
        why = F.create_map(F.lit(REFUSED), F.concat(F.lit(f"source {self._source.name}: no due time, "), "place"))
        properties = F.map_concat(F.coalesce("properties", F.expr(NO_PROPERTIES)), why)
        marked = {
            "topic": _routed(partitions),
            "properties": F.when(missing, properties).otherwise(F.col("properties")),
            "deliver_after_ms": F.when(missing, F.lit(REFUSED_MS)).otherwise(F.col("deliver_after_ms")),
        }
        return found.withColumns(marked).select(*INBOX.columns.names)

    def refused(self, spark: SparkSession, problems: Sequence[str]) -> DataFrame:
        """Rows that ingest lists in `rejected_ingest`, one for each problem."""
        texts = [f"source {self._source.name}: {each}" for each in problems]
        rows = spark.createDataFrame([(each,) for each in texts], "problem STRING")
        made = {
            "topic": F.lit(self._source.stage),
            "properties": F.create_map(F.lit(REFUSED), F.col("problem")),
            "deliver_after_ms": F.lit(REFUSED_MS),
        }
        cast = (made.get(each.name, F.lit(None)).cast(each.dataType).alias(each.name) for each in INBOX.schema.fields)
        return rows.select(*cast)

    def _expressions(self, rows: DataFrame) -> dict[str, str]:
        """What is taken for each column: what the profile states, else the door's own, else a column of that name.

        A due time is stated in one of two forms; then a column of the other form is none.
        """
        there = {name.lower() for name in rows.columns} - (set(_DUE) if self._due else set())
        return {name: name for name in COLUMNS if name in there} | self._defaults | self._source.expressions

    def _with_derived(self, rows: DataFrame) -> DataFrame:
        return rows.withColumns({name: F.expr(text) for name, text in self._derived.items()})


def _routed(partitions: Mapping[str, int]) -> Column:
    """The topic of a row, or the partition of it that producers choose for the key; without one a hash of the row does.

    It says what `topicnames.routed` says, and a row that is read again goes where it went.
    """
    if not partitions:
        return F.col("topic")
    counts = F.from_json(F.lit(json.dumps(dict(partitions))), "MAP<STRING, BIGINT>")
    count = counts[F.col("topic")]
    turn = F.coalesce(F.crc32("message_key"), F.xxhash64("place", "publish_time", "payload"))
    partition = F.concat("topic", F.lit("-partition-"), F.pmod(turn, count))
    return F.when(count.isNull(), F.col("topic")).otherwise(partition)


def _lenient(spark: SparkSession) -> None:
    for key, value in LENIENT.items():
        spark.conf.set(key, value)
