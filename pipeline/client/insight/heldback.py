"""What dispatch holds back of each subscription, because it is paused, has a rate or a guard, or was just resumed."""

from __future__ import annotations

from contextlib import suppress

from pipeline.client.commanding.inforce import of_round
from pipeline.config.errors import NoWarehouse
from pipeline.delta.deltars import open_table, query
from schemas import HELD
from state.withdrawals import Round

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


def is_held(root: str, of: Round, place: tuple[int, int]) -> bool:
    """Whether the position (ledger, entry) of a round is held."""
    with suppress(NoWarehouse):
        table = open_table(root, HELD)
        run = f"ledger_id = {place[0]} AND {place[1]} BETWEEN first_entry AND last_entry"
        text = f"SELECT 1 FROM t WHERE {of_round(of)} AND {run}"  # noqa: S608 - quoted
        return bool(table.version() and query(text, t=table))
    return False
