"""Whatever another writer makes of the table of schedules: nobody fails, and what can be followed comes.

The table has any of its columns, of any type, with any values; or bytes for texts. Beside such rows there is one that
is right, where the types allow it.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyspark", reason="the stages are made for sessions of Spark")
pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")

from deltalake import write_deltalake

from pipeline.client.subscribing.schedules import schedules, set_schedule
from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from pipeline.delta.deltars import open_table, path_of, query
from pipeline.doctor.examine import examine
from pipeline.storage.arrays import arrow_schema
from pipeline.subscriptions.schedules import Schedule, schedule_rows
from schemas import DELIVERIES, SCHEDULES
from tests.support import strangers
from tests.support.stages import Stages

T0 = int(datetime(2026, 6, 1, 12, tzinfo=UTC).timestamp() * 1_000)
HOUR = 3_600_000
EXAMPLES = max(1, settings().max_examples // 10)
GOOD: dict[str, Any] = {"name": "good", "topic": "reminders", "cron": "0 13 * * *", "payload": "good"}
NAMES = SCHEDULES.columns.names
edges = st.sampled_from([0, -1, 1, 999, 1_000, 2**31, 2**53, 2**63 - 1, -(2**63)])
texts = st.sampled_from(
    ["", " ", "good", "reminders", "0 13 * * *", "*/0 * * * *", "FREQ=DAILY;COUNT=1000001", "FREQ=YEARLY;BYMONTHDAY=31",
     "UTC", "Europe/Roma", "../UTC", "skip", "next", "all", "shifted", "2026-12-25", "9999-12-31 0001-01-01",
     "{occurrence}", "9" * 5_000, "a\x00b", "\x1b]0;x"]
) | st.text(max_size=4)  # fmt: skip
times = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30))  # noqa: DTZ001 - with and without a zone
values: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.string(): texts,
    pa.int64(): edges,
    pa.float64(): st.sampled_from([0.0, 1.5, 1e300]),
    pa.bool_(): st.booleans(),
    pa.binary(): st.binary(max_size=4),
    pa.timestamp("us", "UTC"): times.map(lambda each: each.replace(tzinfo=UTC)),
    pa.timestamp("us"): times,
    pa.date32(): times.map(datetime.date),
    pa.list_(pa.string()): st.lists(texts, max_size=2),
    pa.map_(pa.string(), pa.string()): st.dictionaries(texts, texts, max_size=2),
    pa.map_(pa.string(), pa.int64()): st.dictionaries(texts, edges, max_size=2),
}


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    """A table of some rows."""
    count = draw(st.integers(1, 4))
    own = arrow_schema(SCHEDULES.columns)
    columns = {}
    for name in draw(st.sets(st.sampled_from(NAMES), min_size=1)) | set(draw(st.sampled_from([(), tuple(GOOD)]))):
        usual = own.field(name).type
        kind = draw(st.sampled_from([usual, usual, usual, *values]))
        each = st.none() | values[kind]
        columns[name] = pa.array([draw(each) for _ in range(count)], kind)
    columns["x"] = pa.array(range(count))
    return pa.table(columns)


def with_good(table: pa.Table) -> pa.Table:
    """The same with a row that is right, where its columns can have it."""
    try:
        good = {name: pa.array([GOOD.get(name)], table.schema.field(name).type) for name in table.column_names}
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return table
    return pa.concat_tables([table, pa.table(good)])


@given(tables())
def test_each_row_is_followed_or_refused_by_name(table: pa.Table) -> None:
    """Nothing else is raised, whatever stands there, and an error is one short line."""
    rows = with_good(table).to_pylist()
    found = schedule_rows(rows)
    assert len(found) == len(rows)
    for each in found:
        assert (each.schedule is None) is (each.error is not None)
        assert len(each.error or "") < 1_000
        assert len(each.name) <= 203
    names = [each.name for each in found if each.schedule is not None]
    assert len(set(names)) == len(names)


@given(st.lists(strangers.rows_of(SCHEDULES), min_size=1, max_size=3))
def test_rows_of_the_usual_types_are_read_alike_in_any_order(rows: list[dict[str, Any]]) -> None:
    """With texts, numbers and times of any size, as an engine that mends what is no UTF-8 gives them."""
    read = [{name: _text(value) for name, value in row.items()} for row in rows]
    found = schedule_rows([*read, GOOD])
    assert {(each.name, each.error) for each in found} == {
        (e.name, e.error) for e in schedule_rows([GOOD, *read[::-1]])
    }
    assert [each.name for each in found] == sorted(each.name for each in found)
    others = [each for each in found if each.name == "good"]
    assert any(each.schedule == Schedule.of_row(GOOD) for each in others) or len(others) > 1


def _text(value: Any) -> Any:  # noqa: ANN401 - any value
    """Bytes as texts, also within a map."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, dict):
        return {_text(name): _text(each) for name, each in value.items()}
    return value


@settings(max_examples=EXAMPLES)
@given(tables())
def test_the_planner_goes_on_and_what_is_right_comes(table: pa.Table) -> None:
    """With the client and the doctor, and with what is set when the table is as it was."""
    folder = mkdtemp(prefix="delayline-strange-")
    root = str(Path(folder) / "warehouse")
    try:
        stages = Stages(root)
        subscribe(root, Subscription("reminders", "s", tick_ms=1))
        stages.instant = T0
        set_schedule(root, "before", "reminders", cron="0 13 * * *", payload="before")
        stages.work()
        usual = open_table(root, SCHEDULES).to_pyarrow_table()
        write_deltalake(path_of(root, SCHEDULES), with_good(table), mode="overwrite", schema_mode="overwrite")
        stages.work()
        followed = {each.name for each in schedules(root) if each.schedule is not None}
        assert all(each.what != "not_checked" for each in examine(root, T0).findings)
        write_deltalake(path_of(root, SCHEDULES), usual, mode="overwrite", schema_mode="overwrite")
        stages.work()
        stages.instant += HOUR
        stages.work()
        rows = query("SELECT payload FROM t WHERE payload = 'before'", t=open_table(root, DELIVERIES))
        assert len(rows) == 1
        assert "before" not in followed
    finally:
        rmtree(folder, ignore_errors=True)
