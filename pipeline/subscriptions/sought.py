"""Where a seek lets a subscription begin anew, as the column `start` of the registry says it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

_TEXT = re.compile(r"([1-9][0-9]{0,18})@([0-9]{1,19}):([0-9]{1,10})")


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
        """From the column; None: no seek wrote it."""
        found = _TEXT.fullmatch(start or "")
        return None if found is None else cls(*(int(each) for each in found.groups()))

    def __str__(self) -> str:
        """The text of the column."""
        return f"{self.life}@{self.ledger}:{self.entry}"
