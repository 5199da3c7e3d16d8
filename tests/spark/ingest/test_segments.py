"""Which positions are encoded for whom: near, loaded and late, each position once for each subscription."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from pipeline.client.create import create_all
from pipeline.delta.reading.messages import MessageLog
from pipeline.delta.warehouse import Warehouse
from pipeline.ingest.segments import BACKFILL, LOAD, NEAR, Membership, Span, local_segment_rows, pieces, segment_rows
from pipeline.subscriptions.incarnations import Incarnation, Joined, Subscription, audiences
from schemas import MESSAGES, SEGMENTS
from state import TimeBucketIndex
from tests.support.rows import T0, messages

SEGMENT = 1_000
START = T0 // SEGMENT * SEGMENT
SPAN = Span(now=START, loaded=START + 2_000, load_until=START + 4_000, first_ledger=5, next_ledger=7)
Said = list[tuple[str, str, tuple[str, ...], int, list[tuple[int, int]]]]


def member(topic: str, name: str, tick_ms: int = 1, *, earliest: bool = False) -> tuple[tuple[str, str], Subscription]:
    """A line of the registry."""
    return (topic, name), Subscription(topic, name, tick_ms, earliest)


def said(rows: DataFrame) -> Said:
    """(kind, topic, listeners, segment, positions) of each row; every chunk must say what its row says."""
    found = []
    for row in rows.collect():
        index = TimeBucketIndex(min(listener["tick_ms"] for listener in row["subscriptions"]))
        index.append_chunk(bytes(row["chunk"]))
        due = index.pop_due(10**14)
        assert len(due) == row["count"]
        assert row["first_due"] <= row["last_due"]
        positions = sorted(zip(due.ledger_ids.tolist(), due.entry_ids.tolist(), strict=True))
        names = tuple(sorted(listener["name"] for listener in row["subscriptions"]))
        segment = (row["segment_start"].timestamp() * 1_000 - START) / SEGMENT
        found.append((row["kind"], row["topic"], names, int(segment), positions))
    return sorted(found)


@pytest.fixture
def log(spark: SparkSession) -> DataFrame:
    """Messages of the batch (ledgers 5 and 6) and of earlier ones, due from two seconds ago to five ahead."""
    due = [(ledger, second) for ledger in (0, 4, 5, 6, 7) for second in range(-2, 6)]
    rows = ({"ledger_id": ledger, "entry_id": s + 2, "due_time": START + s * 1_000} for ledger, s in due)
    return messages(spark, *rows, {"ledger_id": 5, "entry_id": 9, "topic": "deaf"}).coalesce(1)


def test_near_is_what_the_batch_accepted_and_did_not_park(log: DataFrame) -> None:
    """One row per segment; what is due already lies in the segment of now, so that it wakes one key."""
    members = Membership.of(dict([member("t", "s")]), {("t", "s"): Incarnation(1, 0, 1)}, 5)
    rows = said(segment_rows(log, members, SPAN, SEGMENT, frozenset({NEAR})))
    now = ("near", "t", ("s",), 0, [(ledger, entry) for ledger in (5, 6) for entry in (0, 1, 2)])
    later = [("near", "t", ("s",), s, [(5, s + 2), (6, s + 2)]) for s in (1, 2, 3)]
    assert rows == [now, *later]


def test_a_load_takes_from_older_ledgers_what_becomes_near_now(log: DataFrame) -> None:
    """Due from `loaded` on and before `load_until`: with near, every position is addressed exactly once."""
    members = Membership.of(dict([member("t", "s")]), {("t", "s"): Incarnation(1, 0, 1)}, 5)
    loaded = said(segment_rows(log, members, SPAN, SEGMENT, frozenset({LOAD})))
    assert loaded == [("load", "t", ("s",), s, [(0, s + 2), (4, s + 2)]) for s in (2, 3)]
    both = said(segment_rows(log, members, SPAN, SEGMENT, frozenset({NEAR, LOAD})))
    assert both == sorted([*loaded, *said(segment_rows(log, members, SPAN, SEGMENT, frozenset({NEAR})))])


def test_a_late_subscription_gets_its_backlog_alone(log: DataFrame) -> None:
    """`earliest` gets what was loaded before, in rows of its own; the others have it already."""
    registered = dict([member("t", "s"), member("t", "late", earliest=True)])
    members = Membership.of(registered, {("t", "s"): Incarnation(1, 0, 1)}, 5)
    rows = said(segment_rows(log, members, SPAN, SEGMENT, frozenset({NEAR, LOAD, BACKFILL})))
    backlog = [row for row in rows if row[0] == "backfill"]
    past = [(ledger, entry) for ledger in (0, 4) for entry in (0, 1, 2)]
    assert backlog == [("backfill", "t", ("late",), 0, past), ("backfill", "t", ("late",), 1, [(0, 3), (4, 3)])]
    assert {row[2] for row in rows if row[0] != "backfill"} == {("late", "s")}


def test_a_subscription_from_latest_gets_no_older_ledger(log: DataFrame) -> None:
    """It starts with the batch that first sees it: loads leave out what was accepted before."""
    members = Membership.of(dict([member("t", "s"), member("t", "new")]), {("t", "s"): Incarnation(1, 4, 1)}, 5)
    rows = said(segment_rows(log, members, SPAN, SEGMENT, frozenset({NEAR, LOAD})))
    assert {(row[0], row[2]) for row in rows} == {("near", ("new", "s")), ("load", ("s",))}
    assert [row[4] for row in rows if row[0] == "load"] == [[(4, 4)], [(4, 5)]]


def test_rows_fit_the_table(log: DataFrame) -> None:
    """All columns but the batch, in the table's order; NULL where only markers say something."""
    members = Membership.of(dict([member("t", "s", 1_000), member("t", "z", 10)]), {}, 5)
    rows = segment_rows(log, members, SPAN, SEGMENT, frozenset({NEAR}))
    wanted = [(f.name, f.dataType.simpleString()) for f in SEGMENTS.schema.fields if f.name != "batch_id"]
    assert [(name, kind) for name, kind in rows.dtypes] == wanted
    row = rows.collect()[0]
    assert (row["loaded_until"], row["next_ledger"], row["first_ledger"], row["marker"]) == (None,) * 4
    assert [tuple(each) for each in row["subscriptions"]] == [("s", 1, 1_000), ("z", 1, 10)]


def test_the_driver_makes_the_rows_that_spark_makes(spark: SparkSession, log: DataFrame, folder: str) -> None:
    """All kinds at once."""
    create_all(folder)
    warehouse = Warehouse(folder, spark)
    log.write.format("delta").mode("append").save(warehouse.path(MESSAGES))
    registered = dict([member("t", "s", 8), member("t", "late", earliest=True), member("t", "coarse", 1_000)])
    lives = {("t", "s"): Incarnation(1, 0, 8), ("t", "coarse"): Incarnation(3, 6, 1_000)}
    members, kinds = Membership.of(registered, lives, 5), frozenset({NEAR, LOAD, BACKFILL})
    files = MessageLog(warehouse)
    rows = pa.concat_tables(pieces(local_segment_rows(files, members, SPAN, SEGMENT, kinds), 1 << 20))
    wanted = segment_rows(log, members, SPAN, SEGMENT, kinds)
    assert said(spark.createDataFrame(rows)) == said(wanted)
    assert rows.schema.names == wanted.columns


def test_an_audience_grows_with_the_ledgers() -> None:
    """Whoever listens since a ledger gets it and all later ones; the finest tick of a cohort encodes it."""
    members = dict([member("t", "a", 8), member("t", "b", 2), member("u", "c", 4)])
    found = audiences(
        members.values(),
        {("t", "a"): Incarnation(1, 0, 8), ("t", "b"): Incarnation(4, 7, 2), ("u", "c"): Incarnation(1, 3, 4)},
    )
    assert found["t"].since == (0, 7)
    assert [found["t"].listeners(n) for n in range(2)] == [(("a", 1, 8),), (("a", 1, 8), ("b", 4, 2))]
    assert [found["t"].tick_ms(0), found["t"].tick_ms(1), found["u"].tick_ms(0)] == [8, 2, 4]


def test_a_subscription_that_comes_back_begins_another_life(log: DataFrame) -> None:
    """Its rows name the new life, and as `earliest` it gets its backlog again; whoever stayed keeps the first life."""
    registered = dict([member("t", "s"), member("t", "back", earliest=True)])
    lives = {
        ("t", "s"): Incarnation(1, 4, 1),
        ("t", "back"): Incarnation(2, None, 1),
        ("t", "gone"): Incarnation(7, 0, 1),
    }
    members = Membership.of(registered, lives, 5)
    assert members.joined == {("t", "back"): Joined(0, 1, life=3)}
    assert members.left == {("t", "gone")}
    rows = segment_rows(log, members, SPAN, SEGMENT, frozenset({NEAR, LOAD, BACKFILL})).collect()
    named = {(row["kind"], *((each["name"], each["life"]) for each in row["subscriptions"])) for row in rows}
    both = (("back", 3), ("s", 1))
    assert named == {("backfill", ("back", 3)), ("load", ("back", 3)), ("load", *both), ("near", *both)}


def test_a_changed_or_impossible_tick_is_refused_and_the_life_goes_on(log: DataFrame) -> None:
    """Whoever edits the registry may not stop ingest; who stays keeps its tick, who cannot be served does not join."""
    registered = dict(
        [member("t", "s", 64), member("t", "zero", 0), member("t", "gone bad", -5), member("t", "new", 8)]
    )
    lives = {("t", "s"): Incarnation(1, 0, 16), ("t", "gone bad"): Incarnation(1, 0, 32)}
    members = Membership.of(registered, lives, 5)
    assert sorted(each.name for each in members.refused) == ["gone bad", "s", "zero"]
    assert members.joined == {("t", "new"): Joined(5, 8, life=1)}
    rows = segment_rows(log, members, SPAN, SEGMENT, frozenset({NEAR})).collect()
    listening = {(each["name"], each["tick_ms"]) for row in rows for each in row["subscriptions"]}
    assert listening == {("s", 16), ("gone bad", 32), ("new", 8)}
