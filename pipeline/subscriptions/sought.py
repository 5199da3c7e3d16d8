"""Where a seek lets a subscription begin anew, as the column `start` of the registry says it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

from state.runs import MAX_ENTRY, MAX_LEDGER

_TEXT = re.compile(r"([1-9][0-9]{0,18})@([0-9]{1,19}):([0-9]{1,10})")
_MEANT = re.compile(r"[0-9]+@[0-9]+:[0-9]+")
_MOST_LIFE = 1 << 53
"""More lives than anybody begins, and far from the end of the column."""


@dataclass(frozen=True, order=True)
class Sought:
    """The life that a seek asks for, and the first position that is for it. Its text is `LIFE@LEDGER:ENTRY`.

    Attributes:
        life: its number; ingest begins it when the subscription's present life has a lower one, and not otherwise.
        ledger: the ledger of the first position.
        entry: the first entry in that ledger.
    """

    life: int
    ledger: int
    entry: int

    @classmethod
    def of_text(cls, start: str | None) -> Self | None:
        """From the column; None: no seek wrote it, or it says what cannot be."""
        found = _TEXT.fullmatch(start or "")
        if found is None:
            return None
        life, ledger, entry = map(int, found.groups())
        return cls(life, ledger, entry) if life <= _MOST_LIFE and ledger <= MAX_LEDGER and entry <= MAX_ENTRY else None

    @staticmethod
    def is_meant(start: str | None, sought: Sought | None) -> bool:
        """Whether the column has the form of a seek, and says a life or a position that cannot be."""
        return sought is None and _MEANT.fullmatch(start or "") is not None

    def __str__(self) -> str:
        """The text of the column."""
        return f"{self.life}@{self.ledger}:{self.entry}"
