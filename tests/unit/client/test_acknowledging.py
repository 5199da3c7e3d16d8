"""Who reads `deliveries` by itself, a stream of Spark first of all, settles rows without being a consumer."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import pipeline.client.public as delayline
from pipeline.client.consuming.consumertopics import by_topic
from pipeline.delta.deltars import open_table, query
from schemas import CONSUMER_EVENTS, DELIVERIES
from tests.support.consumed import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A warehouse in which settle has begun."""
    made = World(str(tmp_path / "warehouse"))
    made.settle.settle()
    return made


def deliveries(world: World) -> pa.Table:
    """All rows of the table."""
    return open_table(world.root, DELIVERIES).to_pyarrow_table()


def test_rows_of_deliveries_are_settled_in_one_commit_as_runs(world: World) -> None:
    """Other columns are not looked at, and to say it twice changes nothing."""
    world.dispatch.deliver(*((1, entry) for entry in range(10)), (2, 5))
    for _ in range(2):
        assert delayline.acknowledge(world.root, deliveries(world)) == 11
        world.settle.settle()
    rows = query("SELECT DISTINCT ledger_id, first_entry, last_entry FROM e ORDER BY ledger_id", e=events(world))
    assert [tuple(row.values()) for row in rows] == [(1, 0, 9), (2, 5, 5)]
    assert open_table(world.root, CONSUMER_EVENTS).version() == 2
    assert world.settle.open == 0


def test_rows_that_failed_come_again_after_the_delay(world: World) -> None:
    """Each redelivery count is said by itself."""
    world.dispatch.deliver((1, 0), (1, 1))
    assert delayline.negative_acknowledge(world.root, deliveries(world).slice(0, 1), delay_ms=5_000) == 1
    world.settle.settle()
    assert [each for positions in world.settle.retries().values() for each in positions] == [(1, 0)]


def as_others_have_them(table: pa.Table, text: pa.DataType) -> pa.Table:
    """Columns of the same values, with texts and numbers as another engine has them."""
    kinds = {pa.string(): text, pa.int64(): pa.int32()}
    fields = [each for each in table.schema if each.name in delayline.SETTLED_BY]
    return pa.table({each.name: table.column(each.name).cast(kinds[each.type]) for each in fields})


@pytest.mark.parametrize("text", [pa.large_string(), pa.string_view()], ids=str)
def test_rows_may_have_the_texts_and_numbers_of_any_engine(world: World, text: pa.DataType) -> None:
    """DataFusion, Polars and DuckDB each have kinds of their own: of rows, and of what a consumer was given."""
    world.dispatch.deliver((1, 0), (1, 1))
    rows = as_others_have_them(deliveries(world), text)
    assert delayline.acknowledge(world.root, rows.slice(0, 1)) == 1
    assert delayline.negative_acknowledge(world.root, rows.slice(1, 1), delay_ms=5_000) == 1
    world.settle.settle()
    assert world.settle.open == 0
    assert [each for positions in world.settle.retries().values() for each in positions] == [(1, 1)]
    with pytest.raises(delayline.InvalidMessage, match=r"life = 'string', allowed: a column of int64"):
        delayline.acknowledge(world.root, rows.set_column(2, "life", pa.array(["one", "two"])))


@pytest.mark.parametrize("text", [pa.large_string(), pa.string_view()], ids=str)
def test_a_consumer_takes_its_messages_back_from_any_engine(world: World, text: pa.DataType) -> None:
    """Also one of several topics, which looks for each of them in the table."""
    consumer = world.joined()
    world.dispatch.deliver((1, 0), (1, 1))
    world.run(2)
    given = consumer.batch_receive_arrow(timeout_millis=0)
    assert given.num_rows == 2
    several = [*consumer.topic_consumers, *world.joined("other").topic_consumers]
    mine, life, rows = next(by_topic(several, as_others_have_them(given, text)))
    assert (mine, life, rows.num_rows) == (several[0], several[0].life, 2)
    consumer.acknowledge(rows)
    world.run(2)
    assert world.settle.open == 0


def test_rows_that_do_not_name_their_delivery_are_refused(world: World) -> None:
    """Nothing is said of any of them."""
    world.dispatch.deliver((1, 0))
    with pytest.raises(delayline.InvalidMessage, match=r"life = None, allowed: a column without NULL"):
        delayline.acknowledge(world.root, deliveries(world).drop_columns(["life"]))
    with pytest.raises(delayline.InvalidConfiguration, match="delay_ms"):
        delayline.negative_acknowledge(world.root, deliveries(world), delay_ms="1")  # type: ignore[arg-type]
    assert open_table(world.root, CONSUMER_EVENTS).version() == 0


def events(world: World) -> DeltaTable:
    """The table of events."""
    return open_table(world.root, CONSUMER_EVENTS)
