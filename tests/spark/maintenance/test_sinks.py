"""The log of `deliveries` stays while a sink has yet to publish what it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.config.settings import SECOND_MS
from pipeline.config.stages import DISPATCH
from pipeline.config.wallclock import wall_ms
from pipeline.delta.logs.logstore import TableLog
from pipeline.delta.warehouse import Warehouse
from pipeline.delta.writing.oncewriter import Sink
from pipeline.maintenance.cutlogs import cut_log
from schemas import DELIVERIES, PUBLICATIONS
from tests.support.client import new_warehouse
from tests.support.sinks import MemoryBroker, delivered, places, run, sink
from tests.support.spark import session


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    """An empty one."""
    made = Warehouse(str(tmp_path / "warehouse"), session())
    new_warehouse(made.root)
    return made


def _cut(warehouse: Warehouse) -> int:
    """Cut all that may be cut; give the version with which the log begins then."""
    cut_log(warehouse, DELIVERIES, wall_ms() + SECOND_MS)
    return min(int(each.stem) for each in Path(warehouse.path(DELIVERIES), "_delta_log").glob("*.json"))


def test_a_broker_that_is_away_for_long_loses_nothing(warehouse: Warehouse) -> None:
    """All that it missed is published when it is back, and only then the log is cut."""
    broker, names = MemoryBroker(), [f"m{number}" for number in range(6)]
    stands = sink(warehouse.root, broker.connect)
    for name in names:
        newest = delivered(warehouse.root, name)
        TableLog(warehouse.session, warehouse.path(DELIVERIES)).checkpoint()
    Sink(warehouse, PUBLICATIONS, DISPATCH).commit([], "owner", 1, {"version": newest})
    assert _cut(warehouse) <= 1
    run(stands)
    assert broker.payloads == [name.encode() for name in names]
    stands.stop()
    assert _cut(warehouse) == newest
    places(warehouse.root).drop(stands.name)
    assert _cut(warehouse) == newest
