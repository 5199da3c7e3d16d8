"""What is released of what lies between two marks: as arrays, and by Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.config.routes import NotInDriver
from pipeline.delta.warehouse import Warehouse
from pipeline.maintenance import unreleased as module
from pipeline.maintenance.unreleased import unreleased
from pipeline.subscriptions.incarnations import Incarnation
from pipeline.subscriptions.settled import SettledMark
from schemas import MESSAGES, REDELIVERY
from tests.support.client import at, message_row, new_warehouse, put
from tests.support.spark import session

LIVES = {
    ("t", "s"): Incarnation(1, 0, 1),
    ("t", "later"): Incarnation(2, 1, 1, entry=2),
    ("u", "s"): Incarnation(1, 0, 1),
}
FIRST, SECOND, THIRD = SettledMark(1_000, 2), SettledMark(3_000, 3), SettledMark(5_000, 4)


def released(name: str, life: int, ledger: int, first: int, last: int, due: int, count: int = 0) -> dict[str, object]:
    """A run of `redelivery`."""
    who = {"topic": "t", "subscription": name, "life": life, "ledger_id": ledger, "tick_ms": 1, "batch_id": 0}
    times = {"due_time": at(due), "message_due": at(due), "released_at": at(due)}
    return {**who, **times, "first_entry": first, "last_entry": last, "redelivery_count": count, "cause": "due"}


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    """Three ledgers of four messages; all is released but for some of the last, which a later version has."""
    made = Warehouse(str(tmp_path / "warehouse"), session())
    new_warehouse(made.root)
    for ledger in range(3):
        put(made.root, MESSAGES, *(message_row(ledger, entry, 1_000 * (ledger + 1)) for entry in range(4)))
        runs = [released("s", 1, ledger, 0, 3, 1_000 * (ledger + 1)), released("gone", 1, ledger, 0, 9, 1_000)]
        runs += [released("later", 2, ledger, 2 if ledger == 1 else 0, 3, 2_000)] if ledger else []
        put(made.root, REDELIVERY, *(runs if ledger < 2 else runs[:1]), released("s", 1, ledger, 0, 0, 4_000, count=1))
    put(made.root, REDELIVERY, released("later", 2, 2, 0, 3, 3_000))
    return made


CASES = (
    (SettledMark(), FIRST, 5, 0),
    (SettledMark(), SECOND, 4, 1),
    (SettledMark(), SECOND, 2, 4),
    (FIRST, THIRD, 4, 1),
    (FIRST, THIRD, 5, 0),
)


def test_arrays_find_what_spark_finds(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mark that rose too early would be messages lost; one that does not rise, a warehouse that grows for ever."""
    with monkeypatch.context() as patch:
        patch.setattr(module, "_by_spark", lambda *_: pytest.fail("by Spark"))
        for mark, wanted, upto, count in CASES:
            assert unreleased(warehouse, LIVES, mark, wanted, upto) == count

    def differing(*_: object) -> int:
        raise NotInDriver

    monkeypatch.setattr(module, "differing", differing)
    for mark, wanted, upto, count in CASES[2:4]:
        assert unreleased(warehouse, LIVES, mark, wanted, upto) == count
