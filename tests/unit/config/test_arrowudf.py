"""A function of Arrow's arrays by way of pandas, as Spark 4.0 asks it: what pandas would change stays as it is."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pandas", reason="Spark's functions of pandas need requirements/all.lock")

import pandas as pd

from pipeline.config.arrowudf import made_of_pandas

FAR_US = 253_402_300_799_999_999
"""The last microsecond of the year 9999."""
LARGE = (1 << 53) + 1
"""A whole number that no float has."""


def same(topic: pa.Array, time: pa.Array, number: pa.Array) -> pa.StructArray:
    """What was given, with a column of yes and no."""
    is_there = pa.array(number.is_valid())
    return pa.StructArray.from_arrays([topic, time, number, is_there], names=["topic", "time", "number", "is_there"])


def test_far_times_large_numbers_and_texts_that_are_none_come_back() -> None:
    """Beside NULL a number would become a float, a time after 2262 ends pandas, and strangers write any bytes."""
    seen: list[pa.Array] = []

    def noted(*columns: pa.Array) -> pa.StructArray:
        seen.extend(columns)
        return same(pa.nulls(len(columns[0]), pa.string()), *columns[1:])

    function = made_of_pandas(noted, ["string", "timestamp", "bigint"], ["topic", "time", "number", "is_there"])
    texts = pd.Series([b"a", None, b"\xff"], dtype=object)
    found: Any = function(texts, pd.Series([str(FAR_US), None, "-1"]), pd.Series([None, str(LARGE), "-7"]))
    assert seen[0].cast(pa.binary()).to_pylist() == [b"a", None, b"\xff"]
    assert seen[1].type == pa.timestamp("us", "UTC")
    assert seen[1].cast(pa.int64()).to_pylist() == [FAR_US, None, -1]
    assert seen[2].to_pylist() == [None, LARGE, -7]
    assert found["time"].tolist() == [str(FAR_US), None, "-1"]
    assert found["number"].tolist() == [None, str(LARGE), "-7"]
    assert found["is_there"].tolist() == ["false", "true", "true"]
    assert found["topic"].tolist() == [None] * 3


def test_yes_and_no_come_as_such() -> None:
    """Spark spells them; ingest gives them to a function when keys are unique."""
    function = made_of_pandas(lambda flags: pa.StructArray.from_arrays([flags], names=["flag"]), ["boolean"], ["flag"])
    found: Any = function(pd.Series(["true", None, "false"], dtype=object))
    assert found["flag"].tolist() == ["true", None, "false"]
