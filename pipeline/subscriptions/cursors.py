"""The newest rows of `cursors`: what is open of each subscription that acknowledges, and who leases which slots."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pipeline.subscriptions.incarnations import Name
from schemas import CURSOR_HEAD
from state import CorruptBytes, Outstanding
from state.cells import Cell
from state.cursor_bytes import LEDGERS, read_block

NEWEST = """
    SELECT topic, subscription, life, block, bytes FROM (
        SELECT *, ROW_NUMBER() OVER (PARTITION BY topic, subscription, life, block ORDER BY batch_id DESC) AS place
        FROM {rows}
    ) WHERE place = 1 AND bytes IS NOT NULL
"""
"""For both Spark and DataFusion. Of a block that is gone the newest row has no bytes."""


@dataclass(frozen=True)
class CursorRows:
    """What `cursors` holds of a subscription in its last life.

    Attributes:
        life: which.
        blocks: the bytes by `block`: of ledgers, of the head (`CURSOR_HEAD`), of the leases (`CURSOR_LEASES`).
    """

    life: int
    blocks: Mapping[int, bytes]

    def outstanding(self) -> Outstanding:
        """What is open.

        Raises:
            CorruptBytes: it cannot be read, or a block is missing.
        """
        if CURSOR_HEAD not in self.blocks:
            raise CorruptBytes("cursor", "there is no head")
        return Outstanding.restore(self.blocks[CURSOR_HEAD], self.ledgers)

    @property
    def ledgers(self) -> dict[int, bytes]:
        """The blocks of ledgers by number."""
        return {number: data for number, data in self.blocks.items() if number >= 0}


def by_name(rows: Iterable[Mapping[str, Any] | Any]) -> dict[Name, CursorRows]:
    """The rows of `NEWEST` by topic and subscription. Earlier lives are left out: nothing of them is open any more."""
    found: dict[Name, dict[int, dict[int, bytes]]] = {}
    for row in rows:
        lives = found.setdefault((row["topic"], row["subscription"]), {})
        lives.setdefault(row["life"], {})[row["block"]] = bytes(row["bytes"])
    return {name: CursorRows(max(lives), lives[max(lives)]) for name, lives in found.items()}


def block_of(ledger: int) -> int:
    """The number of the block that has a ledger."""
    return ledger // LEDGERS


def cell_of(rows: Iterable[Mapping[str, Any]], position: tuple[int, int]) -> Cell | None:
    """What holds for a position, by the rows of `NEWEST` of a life's blocks that may have it; None: nothing is open.

    Raises:
        CorruptBytes: a block cannot be read.
    """
    ledger, entry = position
    for row in rows:
        if row["block"] == block_of(ledger):
            cells = read_block(bytes(row["bytes"])).get(ledger, {})
            return next((cell for cell, entries in cells.items() if entry in entries), None)
    return None
