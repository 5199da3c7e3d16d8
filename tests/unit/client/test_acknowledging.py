"""Who reads `deliveries` by itself, a stream of Spark first of all, settles rows without being a consumer."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import pipeline.client.public as delayline
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
