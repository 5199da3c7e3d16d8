"""The mark of what is settled: below it every subscription has every message, and history has been kept long enough.

The mark lies in a small file below the folder of `messages`. It is written before anything is deleted, so whoever
compares `messages` with `redelivery` or `deliveries` reads the tables first and the mark last, and leaves out on both
sides what is below it: the answer is the same before, between and after the deletions.

Each mark has a file of its own, whose name says how high it is, and the highest one counts. So two rounds of
maintenance that nothing holds apart cannot lower it (decision 0115).
"""

import json
from dataclasses import asdict, dataclass

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.config.spelling import iso_text
from pipeline.storage.files import Files
from pipeline.storage.notes import HighestNote
from schemas import MESSAGES

_FOLDER, _ALONE = "_settled", "_settled.json"
"""Vacuum leaves alone what has a name that begins with an underscore. Earlier versions replaced one file."""


@dataclass(frozen=True)
class SettledMark:
    """Messages below the mark: due up to an instant, in ledgers before one. The mark only rises.

    Attributes:
        due_ms: the latest due time below the mark, ms UTC.
        ledger: ledgers before it are below the mark.
        marker: this marker of `segments` says all that earlier ones said, but for who came and went.
    """

    due_ms: int = 0
    ledger: int = 0
    marker: int = 0

    def covers(self, due: str) -> str:
        """SQL, also of DataFusion: whether a row with a due time in a column, and a `ledger_id`, is below the mark."""
        return f"({due} <= TIMESTAMP '{iso_text(self.due_ms)}' AND ledger_id < {self.ledger})"

    def below(self, rows: pa.Table, due: str) -> pa.ChunkedArray:
        """Which rows are below the mark, by whole arrays. A row without a due time, or without a ledger, is not."""
        earlier = pc.less_equal(rows.column(due).cast(pa.int64()), self.due_ms * 1_000)
        return pc.fill_null(pc.and_(earlier, pc.less(rows.column("ledger_id"), self.ledger)), fill_value=False)

    def covers_all(self, last_due: int, last_ledger: int) -> bool:
        """Whether rows that are due up to a time (ms UTC), in ledgers up to one, are all below the mark."""
        return last_due <= self.due_ms and last_ledger < self.ledger

    def dumps(self) -> str:
        """The content of the file."""
        return json.dumps(asdict(self))

    @classmethod
    def loads(cls, text: str) -> "SettledMark":
        """From the content of the file."""
        return cls(**json.loads(text))


def raise_to(files: Files, root: str, mark: SettledMark) -> SettledMark:
    """Note a mark; give the one that counts, which is a higher one if somebody has noted that meanwhile."""
    noted = _noted(files, root)
    noted.put(f"{mark.due_ms:020d}-{mark.ledger:020d}-{mark.marker:020d}", mark.dumps())
    noted.drop_lower()
    return read_mark(files, root)


def read_mark(files: Files, root: str) -> SettledMark:
    """The mark of a warehouse; below the first one is nothing."""
    text = _noted(files, root).get()
    return SettledMark() if text is None else SettledMark.loads(text)


def _noted(files: Files, root: str) -> HighestNote:
    folder = f"{root}/{MESSAGES.name}"
    return HighestNote(files, f"{folder}/{_FOLDER}", ".json", f"{folder}/{_ALONE}")
