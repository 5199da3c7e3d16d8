"""Rows of a source as rows of `inbox`, by the SQL expressions of a profile.

Expressions are evaluated without ANSI mode: what cannot be converted is NULL, and one bad row does not end the query. A
due time that a profile states and a row does not have is refused: without one a message is due at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
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

from pipeline.config.errors import BadSetting
from pipeline.config.sources import COLUMNS, Source
from pipeline.sources.door import NO_PROPERTIES, Door, first_line
from pipeline.subscriptions.records import REFUSED, REFUSED_MS
from schemas import INBOX

LENIENT = {
    "spark.sql.ansi.enabled": "false",
    # Of two equal keys of a map the last one counts; Spark's default is an error.
    "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
}
"""The settings that expressions are evaluated with."""
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

    def __init__(self, source: Source, door: Door) -> None:
        """Take what the profile states, and the door's own for the rest."""
        self._source, self._derived = source, dict(door.derived)
        self._expressions = dict(door.defaults) | source.expressions
        self._position = door.position
        self._due = any(name in source.expressions for name in _DUE)

    def check(self, spark: SparkSession, columns: StructType) -> None:
        """Look at the expressions once, before anything is read.

        Raises:
            BadSetting: one is no SQL, names a column that is not there, or gives another type.
        """
        session = spark.newSession()
        _lenient(session)
        rows = self._with_derived(session.createDataFrame([], columns))
        for name, text in self._expressions.items():
            try:
                (found,) = rows.select(F.expr(text)).schema.fields
            except PySparkException as error:
                allowed = f"SQL over {', '.join(rows.columns)}; {first_line(error)}"
                raise BadSetting(self._source.field(name), text, allowed) from error
            kinds, asked = _KINDS[name]
            if not isinstance(found.dataType, (*kinds, NullType)):
                allowed = f"{asked}; it gives {found.dataType.simpleString().upper()}"
                raise BadSetting(self._source.field(name), text, allowed)

    def of(self, rows: DataFrame) -> DataFrame:
        """The rows of a batch, as `inbox` has them."""
        _lenient(rows.sparkSession)
        rows = self._with_derived(rows)
        made = {name: F.expr(self._expressions.get(name, "NULL")) for name in COLUMNS}
        kinds = {each.name: each.dataType for each in INBOX.schema.fields}
        cast = [column.cast(kinds[name]).alias(name) for name, column in made.items()]
        found = rows.select(*cast, F.expr(self._position).alias("place"))
        missing = F.lit(self._due) & F.coalesce(*(F.col(name).cast("string") for name in _DUE)).isNull()
        why = F.create_map(F.lit(REFUSED), F.concat(F.lit(f"source {self._source.name}: no due time, "), "place"))
        properties = F.map_concat(F.coalesce("properties", F.expr(NO_PROPERTIES)), why)
        marked = {
            "properties": F.when(missing, properties).otherwise(F.col("properties")),
            "deliver_after_ms": F.when(missing, F.lit(REFUSED_MS)).otherwise(F.col("deliver_after_ms")),
        }
        return found.withColumns(marked).select(*INBOX.schema.names)

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

    def _with_derived(self, rows: DataFrame) -> DataFrame:
        return rows.withColumns({name: F.expr(text) for name, text in self._derived.items()})


def _lenient(spark: SparkSession) -> None:
    for key, value in LENIENT.items():
        spark.conf.set(key, value)
