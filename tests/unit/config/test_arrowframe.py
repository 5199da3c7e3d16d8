"""Rows of this process go to Spark in one chunk: of others Spark loses some."""

from __future__ import annotations

from typing import Any, cast

import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="it is Spark that takes the rows")

from pipeline.config.arrowframe import arrow_frame


class Session:
    """Notes what it is given, as Spark takes it."""

    def createDataFrame(self, rows: pa.Table) -> list[int]:  # noqa: N802 - Spark's name
        """How many rows each batch has."""
        return [each.num_rows for each in rows.to_batches()]


@pytest.mark.parametrize("chunks", [[], [0], [2], [0, 2], [0, 0, 2], [2, 0, 2], [2, 2, 0]])
def test_no_batch_is_empty_before_another_one(chunks: list[int]) -> None:
    """Spark ends at a batch without rows."""
    schema = pa.schema({"a": pa.int64()})
    rows = pa.concat_tables([schema.empty_table(), *(pa.table({"a": [7] * count}, schema) for count in chunks)])
    batches = cast("list[int]", arrow_frame(cast("Any", Session()), rows))
    assert sum(batches) == sum(chunks)
    assert 0 not in batches[1:]
