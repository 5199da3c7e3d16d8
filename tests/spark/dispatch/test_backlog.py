"""The backlog of dispatch: what is held, in files that come and go, and what a new process knows of it."""

from __future__ import annotations

from shutil import copytree

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from pipeline.config.settings import LAST_INSTANT_MS
from pipeline.config.stages import DISPATCH
from pipeline.delta.deltars import open_table
from pipeline.delta.warehouse import Warehouse
from pipeline.delta.writing.oncewriter import Sink
from pipeline.dispatch.backlog import Backlog, finish
from pipeline.dispatch.core.holding import EVERYTHING, Allowance, Share
from pipeline.dispatch.prepared import Part, Prepared, PreparedStore
from pipeline.dispatch.release_spark import of_names
from pipeline.maintenance.retention import before_held
from pipeline.storage.arrays import arrow_schema
from pipeline.storage.hadoop import session_files
from schemas import DELIVERIES, HELD, REDELIVERY
from state.units import Ms
from tests.support.stream import empty_warehouse

S, OTHER = ("t", "s"), ("t", "other")
LIVES = {S: 1, OTHER: 1}
HOLD = {S: Allowance(0), OTHER: Allowance(0)}


def runs(*due: int, name: str = "s", life: int = 1) -> pa.Table:
    """A run of three entries for each due time, in ms, of a ledger of that number."""
    same = {"topic": "t", "subscription": name, "life": life, "tick_ms": 1, "released_at": 0, "redelivery_count": 0}
    rest = {"cause": "due", "batch_id": 1, "first_entry": 4, "last_entry": 6}
    rows = [{**same, **rest, "ledger_id": ms, "due_time": ms * 1_000, "message_due": ms * 1_000} for ms in due]
    return pa.Table.from_pylist(rows, schema=arrow_schema(REDELIVERY.columns))


def ledgers(rows: pa.Table) -> list[tuple[int, int]]:
    """Ledger and number of entries of each run."""
    firsts, lasts = (rows.column(name).to_pylist() for name in ("first_entry", "last_entry"))
    numbers = zip(rows.column("ledger_id").to_pylist(), firsts, lasts, strict=True)
    return [(ledger, last - first + 1) for ledger, first, last in numbers]


class Dispatching:
    """A process that holds and lets go."""

    def __init__(self, warehouse: Warehouse) -> None:
        """Begin with what the table has."""
        self.backlog = Backlog(warehouse, Sink(warehouse, HELD, DISPATCH))
        self.batch = 0

    def take(
        self, new: pa.Table, allowed: dict[tuple[str, str], Allowance], lives: dict[tuple[str, str], int]
    ) -> pa.Table:
        """A batch; what it takes."""
        taken, change = self.backlog.split_by_allowance(new, allowed, lives)
        if change:
            self.batch += 1
            self.backlog.commit(self.backlog.written(change), "owner", self.batch, ((0, -1), (0, -1)))
        return taken


def test_what_is_held_is_let_go_in_order_by_whoever_comes_later(spark: SparkSession, folder: str) -> None:
    """Small files are merged, a run is cut where that is needed, and what is of a life that is over goes."""
    warehouse = Warehouse(str(copytree(empty_warehouse(300_000), folder)), spark)
    assert before_held(warehouse) == LAST_INSTANT_MS
    held = Dispatching(warehouse)
    assert held.take(runs(1), {}, LIVES).num_rows == 1
    for number in range(40, 0, -1):
        both = pa.concat_tables([runs(number), runs(number, name="other"), runs(7, name="free")])
        assert ledgers(held.take(both, HOLD, LIVES)) == [(7, 3)]
    assert len(open_table(warehouse.root, HELD).file_uris()) < 33
    assert before_held(warehouse) == 0
    later = Dispatching(warehouse)
    assert later.backlog.waiting == {("t", name, 1): Share(120, 1, 40) for name in ("s", "other")}
    few = {S: Allowance(4), OTHER: Allowance(0)}
    assert ledgers(later.take(runs(0), few, LIVES)) == [(0, 3), (1, 1)]
    assert ledgers(later.take(runs(), {S: Allowance(4, 2), OTHER: Allowance(0)}, LIVES)) == [(1, 2), (2, 2)]
    assert ledgers(later.take(runs(), {S: Allowance(EVERYTHING, 3)}, LIVES)) == [(2, 1), (3, 3)]
    rest = later.take(runs(), {S: Allowance(EVERYTHING)}, {S: 1, OTHER: 2})
    assert ledgers(rest) == [(number, 3) for number in range(4, 41)]
    assert Dispatching(warehouse).backlog.waiting == {}
    assert open_table(warehouse.root, HELD).file_uris() == []
    # It is taken out, and not visible.
    assert before_held(warehouse) == 0
    Sink(warehouse, DELIVERIES, DISPATCH).commit([], "owner", later.batch, {"source": (0, -1)})
    assert before_held(warehouse) == LAST_INSTANT_MS


@pytest.mark.parametrize("foreign", [False, True])
def test_what_a_note_on_the_shelf_says_of_the_backlog_is_done_once(
    spark: SparkSession, folder: str, *, foreign: bool
) -> None:
    """At the start after a death between the two; and never again, whatever the table is by then.

    Somebody else may have added a version without a note meanwhile, as a VACUUM or a property does.
    """
    warehouse = Warehouse(str(copytree(empty_warehouse(300_000), folder)), spark)
    shelf, dispatching = PreparedStore(session_files(spark), warehouse.path(DELIVERIES)), Dispatching(warehouse)
    finish(warehouse, shelf)
    dispatching.take(runs(1, 2), HOLD, LIVES)
    _, change = dispatching.backlog.split_by_allowance(runs(3), {S: Allowance(3), OTHER: Allowance(0)}, LIVES)
    held = dispatching.backlog.written(change)
    shelf.put(Prepared("owner", 9, Ms(5), (1, 0), (Part(1, 0, 0, ()),), (0, -1), held=held))
    if foreign:
        open_table(warehouse.root, HELD).alter.set_table_properties({"delta.checkpointInterval": "7"})
    for _ in range(2):
        finish(warehouse, shelf)
        again = Dispatching(warehouse)
        assert again.backlog.waiting == {("t", "s", 1): Share(6, 2, 3)}
    assert again.backlog.version == held.version + 1 + foreign
    again.take(runs(4), HOLD, LIVES)
    finish(warehouse, shelf)
    assert Dispatching(warehouse).backlog.waiting == {("t", "s", 1): Share(9, 2, 4)}


def test_runs_of_some_subscriptions_are_parted_from_the_others_by_spark(spark: SparkSession) -> None:
    """Where only Spark reads `redelivery`, those that are held pass through the driver."""
    frame = spark.createDataFrame(pa.concat_tables([runs(1, 2), runs(3, name="other")]))
    own, others = of_names(frame, [S])
    assert own.schema == arrow_schema(REDELIVERY.columns)
    assert sorted(ledgers(own)) == [(1, 3), (2, 3)]
    assert [row["ledger_id"] for row in others.collect()] == [3]
