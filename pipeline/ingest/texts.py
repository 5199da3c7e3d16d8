"""What is wrong with the texts of rows of the inbox, for Spark; `pipeline.storage.texts` has the same for arrays."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from pipeline.config.lazyspark import F
from pipeline.storage.texts import (
    ADDED_BYTES,
    ENTRY_BYTES,
    KEY_NOT_UTF8,
    KEY_TOO_LONG,
    MAX_KEY_BYTES,
    MAX_NAME_BYTES,
    MAX_PROPERTIES_BYTES,
    PRODUCER_NOT_UTF8,
    PRODUCER_TOO_LONG,
    PROPERTIES_NOT_UTF8,
    PROPERTIES_TOO_LONG,
    TOPIC_NOT_UTF8,
    TOPIC_TOO_LONG,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def _entries() -> tuple[Column, Column]:
    return F.map_keys("properties"), F.map_values("properties")


def _properties_too_long() -> Column:
    names, values = (F.octet_length(F.array_join(each, "")) for each in _entries())
    return names + values + F.size("properties") * ENTRY_BYTES > MAX_PROPERTIES_BYTES + ADDED_BYTES


def _properties_not_utf8() -> Column:
    wrong = (F.exists(each, lambda text: ~F.is_valid_utf8(text)) for each in _entries())
    return reduce(or_, map(_is_true, wrong))


def wrong_text() -> Column:
    """What is wrong with the texts of a row of `inbox`, as `pipeline.storage.texts.wrong_texts`; NULL: nothing."""
    wrong = {
        TOPIC_TOO_LONG: F.octet_length("topic") > MAX_NAME_BYTES,
        TOPIC_NOT_UTF8: ~F.is_valid_utf8("topic"),
        KEY_TOO_LONG: F.octet_length("message_key") > MAX_KEY_BYTES,
        KEY_NOT_UTF8: ~F.is_valid_utf8("message_key"),
        PROPERTIES_TOO_LONG: _properties_too_long(),
        PROPERTIES_NOT_UTF8: _properties_not_utf8(),
        PRODUCER_TOO_LONG: F.octet_length("producer_name") > MAX_NAME_BYTES,
        PRODUCER_NOT_UTF8: ~F.is_valid_utf8("producer_name"),
    }
    return F.coalesce(*(F.when(broken, F.lit(reason)) for reason, broken in wrong.items()))


def short_topics(rows: DataFrame) -> DataFrame:
    """Rows with no more of a topic that is too long than shows that it is: each row is held with its topic."""
    return rows.withColumn("topic", _cut("topic", MAX_NAME_BYTES))


def refused_texts(rows: DataFrame) -> DataFrame:
    """Rows that are refused, as `rejected_ingest` has them: texts are cut, and properties may be gone."""
    gone = _is_true(_properties_too_long()) | _properties_not_utf8()
    columns = {
        "topic": F.make_valid_utf8("topic"),
        "message_key": F.make_valid_utf8(_cut("message_key", MAX_KEY_BYTES)),
        "properties": F.when(~gone, F.col("properties")),
        "producer_name": F.make_valid_utf8(_cut("producer_name", MAX_NAME_BYTES)),
    }
    return rows.withColumns(columns)


def _cut(name: str, most: int) -> Column:
    begin = F.substring(F.col(name).cast("binary"), 1, most + 1).cast("string")
    return F.when(F.octet_length(name) > most, begin).otherwise(F.col(name))


def _is_true(condition: Column) -> Column:
    return F.coalesce(condition, F.lit(False))  # noqa: FBT003 - a literal column
