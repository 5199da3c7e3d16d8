"""What came of a warehouse, to be compared with what a forecast said."""

from __future__ import annotations

from pipeline.client.insight.published import published
from pipeline.delta.deltars import open_table, query
from schemas import DELIVERIES, PUBLICATIONS

_ROWS = "SELECT subscription, due_time, committed_at, ledger_id, entry_id FROM ({rows})"
_TABLES = {"deliveries": DELIVERIES, "publications": PUBLICATIONS}


def came(root: str) -> dict[tuple[str, int, int], tuple[int, int]]:
    """When messages were due, and when they came (ms UTC, by the clock of the job), by subscription and position."""
    tables = {name: open_table(root, table) for name, table in _TABLES.items()}
    found = query(_ROWS.format(rows=published("SELECT * FROM deliveries", tables["publications"])), **tables)
    return {
        (row["subscription"], row["ledger_id"], row["entry_id"]): (
            round(row["due_time"].timestamp() * 1_000),
            round(row["committed_at"].timestamp() * 1_000),
        )
        for row in found
    }
