"""Settle on tables from different times: a copy that was made while it took batches."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from shutil import copytree, rmtree

import pytest

pytest.importorskip("deltalake", reason="settle needs requirements/all.lock")
pytest.importorskip("pyspark", reason="settle needs requirements/all.lock")

from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from pipeline.config.stages import SETTLE
from pipeline.delta.deltars import append, open_table, rows_of
from pipeline.delta.warehouse import Warehouse
from pipeline.settle.undone import undone
from pipeline.subscriptions.policies import Policies
from schemas import CONSUMER_EVENTS, CURSORS, REDELIVERY
from tests.support.stream import at, message
from tests.support.without_jvm import Session, Stages, no_jvm

T0 = 2_000_000_000_000
LATER = ("segments", "closed", "consumer_events")


@pytest.fixture
def stages(tmp_path: Path) -> Iterator[Stages]:
    """Six messages were released to a subscription, and the first one is acknowledged."""
    with no_jvm():
        found = Stages(str(tmp_path / "warehouse"))
        subscribe(found.root, Subscription("t", "s", tick_ms=1, policies=Policies(ack=True, retry_min_ms=60_000)))
        found.instant = T0
        assert found.ingest()
        assert found.ingest(*(message(str(number), "t") for number in range(6)))
        found.schedule.step(T0)
        assert found.settle()
        said(found, "ack", 0)
        yield found


def said(stages: Stages, kind: str, entry: int) -> None:
    """A consumer says something of a message, and settle takes it."""
    (ledger,) = {row["ledger_id"] for row in open_table(stages.root, REDELIVERY).to_pyarrow_table().to_pylist()}
    place = {"ledger_id": ledger, "first_entry": entry, "last_entry": entry, "redelivery_count": 0}
    row = {"topic": "t", "subscription": "s", "life": 1, "kind": kind, "at": at(0)} | place
    append(stages.root, CONSUMER_EVENTS, rows_of(CONSUMER_EVENTS, [row]))
    stages.instant += 1_000
    assert stages.settle()


def batches_of(stages: Stages) -> int:
    """How many batches settle has done."""
    return int(stages._body("settle")._last.batch)


def open_of(stages: Stages) -> tuple[int, int]:
    """How many messages are outstanding, and how many wait to come again."""
    counts = stages._body("settle")._opened["t", "s"].outstanding.counts
    return counts.outstanding, counts.waiting


@pytest.mark.parametrize("behind", [("nack",), ("nack", "nack"), ("nack", "ack", "nack", "nack")])
@pytest.mark.parametrize("checkpoint", [False, True])
def test_what_a_copy_does_not_know_of_is_taken_again_from_where_it_ends(
    stages: Stages, behind: tuple[str, ...], *, checkpoint: bool
) -> None:
    """A message whose nack was in a batch between was neither open nor news on the copy: nobody ever got it."""
    root = Path(stages.root)
    done = batches_of(stages)
    for part in ("_checkpoints", CURSORS.name):
        if (root / part).exists():
            copytree(root / part, root / f"{part}.then")
    for entry, kind in enumerate(behind, 1):
        said(stages, kind, entry)
    expected = open_of(stages)
    assert expected == (5 - len(behind), behind.count("nack"))
    stages.restart("settle")
    for part in ("_checkpoints", CURSORS.name) if checkpoint else (CURSORS.name,):
        if (root / f"{part}.then").exists():
            rmtree(root / part)
            copytree(root / f"{part}.then", root / part)
    torn = len(behind) == 1
    warehouse = Warehouse(stages.root)
    assert undone(Session(), warehouse) == (None if torn else (done + 1, done + len(behind)))  # type: ignore[arg-type]
    assert stages.settle()
    assert open_of(stages) == expected
    assert undone(Session(), warehouse) is None  # type: ignore[arg-type]
    said(stages, "ack", 5)
    assert open_of(stages) == (expected[0] - 1, expected[1])
    assert SETTLE in {path.name for path in (root / "_checkpoints").iterdir()}
