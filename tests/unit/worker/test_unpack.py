"""Answers of the stateful function, for all who share an index."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

from pipeline.worker import unpack
from pipeline.worker.release import pack
from pipeline.worker.unpack import Unpacker, fan_out, listeners
from state import Runs


@pytest.mark.parametrize(
    ("owner", "found"),
    [
        (["t", "s", "3"], [("t", "s", 3, 0, None, "due")]),
        (["t", "s", 3], [("t", "s", 3, 0, None, "due")]),
        (["t", "a", "1", "b", "12"], [("t", "a", 1, 0, None, "due"), ("t", "b", 12, 0, None, "due")]),
        (["t", "s", "1", "2:nack"], [("t", "s", 1, 2, None, "nack")]),
        (["t", "s", "1", "2:a:b"], [("t", "s", 1, 2, None, "a:b")]),
        (["t", "s", "1", "0.12:rescheduled"], [("t", "s", 1, 0, 12, "rescheduled")]),
        (["", "", "0"], [("", "", 0, 0, None, "due")]),
    ],
)
def test_the_name_of_an_owner_says_who_shares_its_index(owner: list[object], found: list[tuple[object, ...]]) -> None:
    """As `keys.addressed` writes it, and as Python did before."""
    assert [tuple(each) for each in listeners(json.dumps(owner))] == found


@pytest.mark.parametrize("owner", ["", "null", '["t","s"', '["t"]', '["t","2:nack"]', '["t","s","x"]'])
def test_a_name_that_is_none_is_an_error(owner: str) -> None:
    """It would be nobody's, and what it was given would be gone without a word."""
    with pytest.raises((ValueError, TypeError)):
        listeners(owner)


def test_runs_of_many_listeners_are_held_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fifty who share an index with a gigabyte of runs would be more than Arrow can hold in one column."""
    monkeypatch.setattr(unpack, "_MOST_BYTES", 3 * 32 * 100)
    same, crowd = np.zeros(100, np.int64), [text for number in range(7) for text in (f"s{number}", "1")]
    runs = pack(Runs(same, same, np.arange(100), np.arange(100)))
    answer = {"owner": json.dumps(["t", *crowd]), "tick_ms": 1, "instant": 5, "runs": runs}
    batches = list(fan_out(iter([pa.RecordBatch.from_pylist([answer])])))
    assert [each.num_rows for each in batches] == [2, 2, 2, 1]
    rows = pa.Table.from_batches(Unpacker(0).of_owners(iter([pa.RecordBatch.from_pylist([answer])])))
    assert rows.num_rows == 700
    assert set(rows.column("subscription").to_pylist()) == {f"s{number}" for number in range(7)}
