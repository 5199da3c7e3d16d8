"""A batch comes out the same in this process and by Spark, whatever its rows are: drawn ones, and hostile ones."""

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

from pipeline.config.settings import Settings
from pipeline.delta.reading.arrival import ARRIVAL
from pipeline.delta.writing.numbering import NUMBER, columns_of, in_order, order_of
from pipeline.dispatch import release
from pipeline.ingest import accept_spark
from pipeline.ingest.accept_local import LocalBatch, numbered
from pipeline.ingest.core import rules
from pipeline.ingest.core.terms import Terms
from pipeline.maintenance import rewrite
from pipeline.storage.arrays import arrow_schema
from pipeline.storage.gather import Gathered
from pipeline.subscriptions.lines import Topics
from pipeline.subscriptions.records import REPLACES
from pipeline.subscriptions.topicpolicies import TopicPolicies
from schemas import INBOX, MESSAGES
from state.units import Ms
from tests.support.inboxrows import POLICIES, SELDOM, TICKS, inbox_rows, known_texts, known_topics, payloads, zoned
from tests.support.rows import T0
from tests.support.spark import session
from tests.support.strangers import raw, table_of

US = 1_000
T = TypeVar("T")
TEXTS = [f"{name}_{wrong}" for name in ("topic", "key", "properties") for wrong in ("too_long", "not_utf8")]


@cache
def drawn(strategy: st.SearchStrategy[T], count: int) -> list[T]:
    """So many examples, the same ones in a run. A job takes a tenth of a second whatever is in it: it is given all."""
    found: list[T] = []

    @settings(max_examples=count, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(strategy)
    def collect(value: T) -> None:
        found.append(value)

    collect()
    return found


_TIME = pa.timestamp("us", "UTC")


def inbox(rows: list[dict[str, Any]]) -> pa.Table:
    """Drawn rows of the inbox, with texts that may be none."""
    return table_of(INBOX, rows)


def on_spark(rows: pa.Table) -> DataFrame:
    """The same rows as a frame. Spark takes bytes for a text when it is told to."""
    plain = pa.table({each.name: rows.column(each.name).cast(raw(each.type)) for each in rows.schema})
    frame = session().createDataFrame(plain)
    texts = {name: F.col(name).cast("string") for name in ("topic", "message_key")}
    return frame.withColumns(texts).withColumn("properties", F.col("properties").cast("map<string, string>"))


def in_bytes(table: pa.Table) -> list[dict[str, Any]]:
    """Rows for comparison: texts as bytes and times as numbers, since Python knows not all of them."""
    for place, each in enumerate(table.schema):
        column = table.column(place).combine_chunks()
        table = table.set_column(place, each.name, column.cast(raw(each.type)))
        if pa.types.is_timestamp(each.type):
            table = table.set_column(place, each.name, column.cast(pa.int64()))
    found: list[dict[str, Any]] = table.to_pylist()
    return found


def test_a_row_is_accepted_or_refused_alike_and_has_the_same_times() -> None:
    """Hostile times and delays, topics that are no text, policies; each reason is met."""
    sent, terms = inbox([*drawn(inbox_rows, 1_000), *SELDOM]), Terms(Ms(T0), 10_000, 4, POLICIES, TICKS)
    places, gathered = np.arange(sent.num_rows), Gathered.of(INBOX, sent)
    asks = gathered.texts.values(places, REPLACES).is_valid()
    here = rules.verdicts(numbered(gathered, terms).append_column(rules.REPLACING, asks), terms)
    arrival = (places * 0, np.full(sent.num_rows, "f"), places * 0, places)
    placed = sent
    for name, values in zip(("place", *ARRIVAL), (places, *arrival), strict=True):
        placed = placed.append_column(name, pa.array(values))
    seen = accept_spark.classify(on_spark(placed), terms).orderBy("place").select("verdict.*").toArrow()
    assert in_bytes(seen) == in_bytes(pa.Table.from_struct_array(here))
    assert {*seen.column("reason").to_pylist()} == {None, rules.REFUSED_BY_SOURCE, *TEXTS, *rules.REFUSALS}


@pytest.mark.parametrize("many", [False, True])
def test_rows_are_counted_for_places_where_one_has_a_place(*, many: bool) -> None:
    """That of a topic whose window has a spread, or of a partition of it. Of many such topics none is looked for."""
    window = TopicPolicies(window="08:00-20:00", window_spread_ms=60_000)
    more = {f"other {number}": window for number in range(20 if many else 1)}
    terms = Terms(Ms(T0), 10_000, 4, Topics({"t": window, "u": TopicPolicies(window="08:00-20:00"), **more}))

    def counts(*topics: str) -> bool:
        sent = inbox([{"topic": topic.encode()} for topic in topics])
        for name, value in zip(ARRIVAL, (0, "f", 0), strict=False):
            sent = sent.append_column(name, pa.repeat(value, sent.num_rows))
        placed = on_spark(sent.append_column(ARRIVAL[3], pa.array(range(sent.num_rows), pa.int64())))
        return rules.ROW in accept_spark.classify(placed, terms).columns

    assert [counts("u", "v"), counts("u", "t"), counts("t-partition-3")] == [many, True, True]


def test_refused_rows_are_listed_alike() -> None:
    """Their texts are UTF-8 then, and short, so that who reads what was refused is not stopped by it."""
    rows, terms = (
        [row | {"deliver_after_ms": -1} for row in [*drawn(inbox_rows, 300), *SELDOM]],
        Terms(Ms(T0), 10_000, 4),
    )
    sent, schema = inbox(rows), arrow_schema(INBOX.schema)
    more = schema.append(pa.field("reason", pa.string())).empty_table()
    (in_driver, _) = LocalBatch.of(Gathered.of(INBOX, sent), terms).rejected(more)
    whole = accept_spark.classify(on_spark(sent), terms).withColumn("place", F.monotonically_increasing_id())
    by_spark = accept_spark.rejected_rows(whole, T0, 0).orderBy("place").select(*more.column_names).toArrow()
    in_driver = in_driver.select(more.column_names)
    assert in_bytes(in_driver) == in_bytes(by_spark.cast(more.schema))
    in_driver.validate(full=True)


classified_rows: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "topic": known_topics,
        "message_key": known_texts,
        "properties": st.none() | zoned | st.dictionaries(known_texts, known_texts, max_size=2),
        "payload": payloads,
        "publish_time": st.none() | st.integers(T0 * US - 2, T0 * US + 2),
        "deliver_at": st.none() | st.integers(T0 * US - 2_000, T0 * US + 2_000),
        "deliver_after_ms": st.none() | st.integers(0, 9),
        "arrival": st.tuples(st.integers(0, 2), st.sampled_from(("a", "b")), st.integers(0, 1)),
    }
)


@pytest.mark.parametrize(("tasks", "entries", "first"), [(1, 50_000, 7), (2, 1, 0), (5, 17, 2**40)])
def test_messages_are_ordered_and_numbered_alike(tasks: int, entries: int, first: int) -> None:
    """The whole row, its position first of all: by topic, due time and arrival, whatever the number of tasks."""
    # Rows lie in the order of arrival, as the driver reads them.
    rows = sorted(drawn(classified_rows, 400), key=lambda row: row["arrival"])
    sent = inbox([{name: value for name, value in row.items() if name != "arrival"} for row in rows])
    terms = Terms(
        Ms(T0), 10_000, 10, POLICIES, TICKS, load_until=T0 + 5, first_ledger=first, entries=entries, batch_id=8
    )

    pieces = LocalBatch.of(Gathered.of(INBOX, sent), terms).messages(Settings(rows_per_task=150))
    in_driver = pa.concat_tables(pieces).cast(arrow_schema(MESSAGES.schema))

    arrival = [[*row["arrival"], place] for place, row in enumerate(rows)]
    placed = sent
    for name, column in zip(ARRIVAL, zip(*arrival, strict=True), strict=True):
        placed = placed.append_column(name, pa.array(column))
    spread = accept_spark.classify(on_spark(placed), terms).repartition(3).where("reason IS NULL")
    ordered = in_order(spread, accept_spark.ORDER, in_driver.num_rows, tasks)
    by_spark = accept_spark.message_rows(ordered, terms).orderBy("ledger_id", "entry_id").toArrow()
    assert in_bytes(in_driver) == in_bytes(by_spark.cast(arrow_schema(MESSAGES.schema)))


positions: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "bucket": st.integers(0, 2),
        "rank": st.integers(-1, 1),
        "asked": st.none() | st.integers(0, 3),
        "due": st.integers(0, 3),
        "message": st.integers(0, 99),
        "subscription": st.sampled_from(("s", "é", "\uffff", "\U0001f600")),
        "count": st.integers(0, 2),
    }
)


@pytest.mark.parametrize("tasks", [1, 3])
def test_deliveries_are_ordered_alike(tasks: int) -> None:
    """Bucket, rank, exact time, position, subscription, count. Positions of several subscriptions share a message."""
    found = drawn(positions, 400)

    def column(name: str, kind: pa.DataType | None = None) -> pa.Array:
        values = pa.array([each[name] for each in found])
        return values if kind is None else values.cast(pa.int64()).cast(kind)

    message = column("message").to_numpy()
    ledger, entry = message // 40, message % 40
    held = pa.table(
        {
            "deliver_at": column("asked", _TIME),
            "due_time": column("due", _TIME),
        }
    )
    runs = pa.table(
        {
            "due_time": column("bucket", _TIME),
            "subscription": column("subscription"),
            "redelivery_count": column("count"),
        }
    )
    # A message has one topic, whoever gets it.
    topic = pa.array(np.where(message % 2, "\uffff", "\U0001f600"))
    rank = column("rank").to_numpy()
    matched = release.Matched(runs, np.arange(len(found)), rank, (ledger << 31) | entry, held, np.arange(len(found)))
    in_driver = order_of(matched, release.ORDER)

    whole = runs
    for name, values in (
        ("deliver_at", held["deliver_at"]), ("message_time", held["due_time"]), ("topic", topic),
        ("rank", pa.array(rank)), ("ledger_id", pa.array(ledger)), ("entry_id", pa.array(entry)),
    ):  # fmt: skip
        whole = whole.append_column(name, values)
    names = columns_of(release.ORDER)
    joined = session().createDataFrame(whole).withColumn(release.EXACT, F.coalesce("deliver_at", "message_time"))
    by_spark = in_order(joined.repartition(3), names, len(found), tasks).orderBy(NUMBER).select(*names).toArrow()
    exact = pc.coalesce(whole["deliver_at"], whole["message_time"])
    ordered = whole.append_column(release.EXACT, exact).take(pa.array(in_driver))
    assert ordered.select(names).to_pylist() == by_spark.to_pylist()


def test_merged_messages_are_ordered_alike() -> None:
    """Files that maintenance writes anew: by due time, ledger and entry."""
    names = columns_of(rewrite._ORDER)
    places = drawn(st.tuples(*[st.integers(-3, 3)] * 3), 300)
    columns = [pa.array(each, pa.int64()) for each in zip(*places, strict=True)]
    rows = pa.Table.from_arrays([columns[0].cast(_TIME), *columns[1:]], names=names)
    by_spark = session().createDataFrame(rows).coalesce(1).sortWithinPartitions(*names).toArrow()
    assert rows.take(pa.array(order_of(rows, rewrite._ORDER))).to_pylist() == by_spark.to_pylist()
