"""What strangers leave in the tables that settle follows: the broken is listed, and what lies beside it counts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="settle is made for sessions of Spark")
pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")

from pipeline.client.tables.logs import LeaseLog
from pipeline.delta.deltars import open_table, path_of
from pipeline.storage.files import Files
from schemas import COMMANDS, CONSUMER_EVENTS, DELIVERIES, REJECTED_SETTLE, Table
from tests.support.forged import INFO, add, file_of, version
from tests.support.released import event, released
from tests.support.stages import Stages
from tests.support.stream import message


@pytest.fixture
def stages(tmp_path: Path) -> Iterator[Stages]:
    """Two messages were delivered to a subscription that acknowledges."""
    with released(tmp_path, "a", "b") as found:
        yield found


def leave(stages: Stages, table: Table, rows: list[dict[str, Any]]) -> None:
    """Add a good file among others: outside, gone, no Parquet."""
    (Path(path_of(stages.root, table)) / "no.parquet").write_bytes(b"nothing")
    good = add("good.parquet", file_of(stages.root, table, "good.parquet", rows))
    version(stages.root, table, INFO, add("../messages/x"), add("gone.parquet"), good, add("no.parquet"))


def listed(stages: Stages) -> list[str]:
    """The reasons of what settle has refused, up to the path of the file."""
    rows = open_table(stages.root, REJECTED_SETTLE).to_pyarrow_table().to_pylist()
    return sorted(str(row["reason"]).rpartition(":")[0] for row in rows)


@pytest.mark.parametrize("table", [CONSUMER_EVENTS, COMMANDS], ids=lambda table: table.name)
def test_settle_and_dispatch_pass_over_a_file_that_cannot_be_read(stages: Stages, table: Table) -> None:
    """A stranger's file ended them at each start, and with that everybody's acknowledgements."""
    leave(stages, table, [event(stages, "ack", 0)] if table is CONSUMER_EVENTS else [])
    for stage in ("settle", "dispatch"):
        stages.restart(stage)
    stages.instant += 1
    assert stages.ingest(message("c"))
    stages.schedule.step(stages.instant)
    assert stages.dispatch()
    assert stages.settle()
    assert len(open_table(stages.root, DELIVERIES).to_pyarrow_table()) == 3
    names = {f"{table.name} version 1, {name}" for name in ("gone.parquet", "no.parquet")}
    assert listed(stages) == [
        *sorted(f"broken_file: {name}" for name in names),
        f"foreign_path: {table.name} version 1, ../messages/x",
    ]
    stages.restart("settle")
    assert stages.settle()
    assert len(listed(stages)) == 3


def test_a_consumer_passes_over_what_settle_passes_over(stages: Stages) -> None:
    """Both fold the same rows, or they would not agree on who leases what."""
    log = LeaseLog(stages.root, Files())
    (Path(path_of(stages.root, CONSUMER_EVENTS)) / "no.parquet").write_bytes(b"nothing")
    version(stages.root, CONSUMER_EVENTS, INFO, add("../messages/x"), add("no.parquet", stats='{"maxValues": null}'))
    assert log.read()
    assert log.next == 2
