"""Where the messages of redeliveries are looked for, and which redeliveries are left out; by whole arrays."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark", reason="columns are described by Spark's types")

from pipeline.config.routes import NotInDriver
from pipeline.config.settings import Settings
from pipeline.delta.reading.messages import Bounds
from pipeline.dispatch.closed import KEYS, still_open
from pipeline.dispatch.release import again_bounds
from pipeline.storage.arrays import arrow_schema
from schemas import CLOSED, REDELIVERY, Table

LEDGERS = st.lists(st.integers(0, 400), max_size=60)
RUN = st.fixed_dictionaries(
    {
        "subscription": st.sampled_from("sz"),
        "life": st.integers(1, 2),
        "ledger_id": st.integers(3, 4),
        "redelivery_count": st.integers(0, 2),
        "round": st.none() | st.integers(2, 3),
        "first_entry": st.integers(0, 12),
        "length": st.integers(1, 5),
    }
)


def table(of: Table, runs: list[dict[str, Any]]) -> pa.Table:
    """Rows of a table; what is not given is nothing in particular."""
    rows = [{"topic": "t", "last_entry": each["first_entry"] + each["length"] - 1, **each} for each in runs]
    return pa.Table.from_pylist(rows, schema=arrow_schema(of.schema))


def positions(runs: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Keys and entry of each position of runs."""
    return [
        (*(each.get(name, "t") for name in KEYS), entry)
        for each in runs
        for entry in range(each["first_entry"], each["first_entry"] + each["length"])
    ]


@given(LEDGERS)
def test_every_ledger_is_in_one_range_and_few_others_are(ledgers: list[int]) -> None:
    """Sixteen ranges at most, which begin and end with a ledger that is asked for; a narrow gap is never a cut."""
    ranges = again_bounds(np.array(ledgers, np.int64))
    ends = [(each.first_ledger, each.last_ledger) for each in ranges]
    assert ends == sorted(ends)
    assert len(ends) <= 16
    assert all(sum(first <= ledger <= last for first, last in ends) == 1 for ledger in ledgers)
    assert {end for both in ends for end in both} <= set(ledgers)
    between = [after[0] - before[1] for before, after in pairwise(ends)]
    inside = [after - before for before, after in pairwise(sorted(set(ledgers)))]
    assert all(gap > 1 for gap in between)
    assert len(ends) == min(16, 1 + sum(gap > 1 for gap in inside)) or not ledgers
    assert sorted(between, reverse=True) == sorted(inside, reverse=True)[: len(between)]


def test_what_comes_after_days_does_not_read_the_days_between() -> None:
    """Due times are open: a message may have been due at any time before."""
    assert again_bounds(np.array([7, 90_000, 8, 90_001])) == (Bounds(7, 8), Bounds(90_000, 90_001))


@given(st.lists(RUN, min_size=1, max_size=8), st.lists(RUN, max_size=8))
def test_what_is_closed_is_left_out_position_by_position(
    runs: list[dict[str, Any]], closed: list[dict[str, Any]]
) -> None:
    """Of that life and count alone. First deliveries stay whatever is said of them, also with another due time."""
    gone = set(positions(closed))
    wanted = [each for each in positions(runs) if not each[4] or each not in gone]
    left = still_open(table(REDELIVERY, runs), table(CLOSED, closed), Settings())
    assert left.schema.equals(arrow_schema(REDELIVERY.schema))
    found = [{**row, "length": row["last_entry"] - row["first_entry"] + 1} for row in left.to_pylist()]
    assert sorted(positions(found)) == sorted(wanted)


def test_more_than_is_held_here_is_left_to_spark() -> None:
    """A run of a row may stand for millions."""
    one = {"subscription": "s", "life": 1, "ledger_id": 3, "redelivery_count": 1, "first_entry": 0}
    few, many = ([{**one, "length": count}] for count in (10, 1_000))
    for runs, closed in ((few, many), (many, few)):
        with pytest.raises(NotInDriver):
            still_open(table(REDELIVERY, runs), table(CLOSED, closed), Settings(driver_rows=100))
