"""What dispatch holds back of each subscription, because it is paused or has just been resumed."""

from __future__ import annotations

from contextlib import suppress

from pipeline.config.errors import NoWarehouse
from pipeline.delta.deltars import open_table, query
from schemas import HELD

_HELD = """
    SELECT topic, subscription, life, SUM(last_entry - first_entry + 1) AS held FROM held GROUP BY 1, 2, 3
"""


def held_back(root: str) -> dict[tuple[str, str, int], int]:
    """Positions that are due and held, by topic, subscription and life. A warehouse of before has none."""
    with suppress(NoWarehouse):
        table = open_table(root, HELD)
        rows = query(_HELD, held=table) if table.version() else []
        return {(row["topic"], row["subscription"], row["life"]): row["held"] for row in rows}
    return {}
