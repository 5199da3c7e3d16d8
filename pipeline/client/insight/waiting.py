"""What waits beside the index: in the inbox, as ingest has not taken it, and in `held`, as dispatch holds it back.

Dispatch holds what is due for a subscription that is paused, has a rate or a guard, or was just resumed.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pyarrow.parquet as pq

from pipeline.client.commanding.inforce import of_round
from pipeline.client.tables.untaken import untaken
from pipeline.config.errors import NoWarehouse
from pipeline.delta.deltars import open_table, path_of, query
from pipeline.delta.logs.filestats import count
from pipeline.storage.files import Files
from schemas import HELD, INBOX
from state.withdrawals import Round

_HELD = """
    SELECT topic, subscription, life, SUM(last_entry - first_entry + 1) AS held FROM held GROUP BY 1, 2, 3
"""


def in_inbox(root: str) -> int:
    """How many rows of the inbox ingest has neither accepted nor rejected yet, counted from logs alone.

    Retention deletes rows of the inbox, of `messages` and of rejected ones, each at its own time, so their numbers say
    nothing about each other. But each commit of ingest notes the place up to which it has taken the inbox, and the log
    of the inbox reaches back to it.

    Raises:
        NoWarehouse: the folder lacks a table.
    """
    files, path = Files(), path_of(root, INBOX)
    return sum(_rows(files, path, file) for file in untaken(root))


def _rows(files: Files, path: str, added: Mapping[str, Any]) -> int:
    """The rows of a file by its statistics, or by its footer when its writer left them out; 0 when it is gone."""
    known = count(added.get("stats"))
    if known is None:
        with suppress(FileNotFoundError), files.open(f"{path}/{added['path']}") as file:
            known = pq.read_metadata(file).num_rows
    return known or 0


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
