"""What newer messages replaced, as dispatch follows it: each file once, whatever maintenance makes of the files."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyroaring import BitMap

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

from pipeline.delta.deltars import open_table
from pipeline.delta.warehouse import Warehouse
from pipeline.subscriptions import replacedlog
from pipeline.subscriptions.replacedlog import ReplacedLog
from pipeline.subscriptions.replacedrows import of_lives
from schemas import REPLACED
from state.positionset import PositionSet
from state.withdrawals import Round
from tests.support.client import at, new_warehouse, put


def row(ledger: int, entry: int, topic: str = "t", due: int = 10_000) -> dict[str, object]:
    """A row of `replaced`."""
    newer = {"by_ledger_id": 9, "by_entry_id": 0, "replaced_at": at(1_000), "batch_id": 1}
    return {"topic": topic, "ledger_id": ledger, "entry_id": entry, "due_time": at(due), **newer}


def positions(held: PositionSet) -> list[tuple[int, list[int]]]:
    """Ledgers and entries."""
    return [(ledger, list(entries)) for ledger, entries in held.by_ledger()]


def test_what_is_new_is_added_and_what_is_merged_says_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is deleted is forgotten when it is most of what is held."""
    monkeypatch.setattr(replacedlog, "_SLACK", 0)
    root = str(tmp_path)
    new_warehouse(root)
    log = ReplacedLog(Warehouse(root))
    assert not log.look()
    put(root, REPLACED, row(0, 1), row(0, 2), row(1, 7, due=99_000))
    before = log.look()["t"]
    assert positions(before) == [(0, [1, 2]), (1, [7])]
    put(root, REPLACED, row(1, 8), row(2, 0, "u"))
    assert positions(log.look()["t"]) == [(0, [1, 2]), (1, [7, 8])]
    assert positions(before) == [(0, [1, 2]), (1, [7])]
    open_table(root, REPLACED).optimize.compact()
    assert positions(log.look()["t"]) == [(0, [1, 2]), (1, [7, 8])]
    waits = [row for each in log.waiting(50_000, 10) for row in each.select(["ledger_id", "entry_id"]).to_pylist()]
    assert waits == [{"ledger_id": 1, "entry_id": 7}]
    assert sum(each.num_rows for each in log.waiting(0, 9)) == 0
    open_table(root, REPLACED).delete("ledger_id < 2 AND entry_id <> 7")
    assert positions(log.look()["t"]) == [(1, [7])]


def test_partitions_have_what_is_said_of_their_topic() -> None:
    """Also when a partition had policies of its own for a time."""
    one, two = (PositionSet({0: BitMap([entry])}) for entry in (1, 2))
    lives = {("t", "s"): 1, ("t-partition-0", "s"): 3, ("u", "s"): 1}
    found = of_lives({"t": one, "t-partition-0": two}, lives)
    assert found == {Round("t", "s", 1, 0): one, Round("t-partition-0", "s", 3, 0): one | two}
