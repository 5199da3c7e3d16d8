"""The golden files, and one way to see what an index holds."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from state import TimeBucketIndex
from tests.support.format_reader import MessageRun

FOLDER = Path(__file__).parents[1] / "golden" / "v1"
FOREVER = 2**60
"""An instant (ms) at which everything is due."""


@dataclass(frozen=True)
class Golden:
    """One golden file and what is known of it."""

    name: str
    data: bytes
    expected: dict[str, Any]

    @property
    def is_chunk(self) -> bool:
        """A chunk, not an index."""
        return bool(self.expected["what"] == "chunk")

    @property
    def runs(self) -> list[MessageRun]:
        """(due ms, ledger, first entry, last entry), sorted."""
        out: list[MessageRun] = []
        for due, ledger, entry, lengths in self.expected["cells"]:
            first = entry
            for i, length in enumerate(lengths):
                if i % 2 == 0:
                    out.append((due, ledger, first, first + length - 1))
                first += length
        return out

    @property
    def count(self) -> int:
        """Messages in it."""
        return sum(last - first + 1 for _, _, first, last in self.runs)

    def new_index(self) -> TimeBucketIndex:
        """An empty index that takes this chunk."""
        return TimeBucketIndex(1 << self.expected["bits"], self.expected["strict"])


def load() -> list[Golden]:
    """All golden files, by the names in `expected.json`."""
    expected = json.loads((FOLDER / "expected.json").read_text())
    return [Golden(name, (FOLDER / f"{name}.bin").read_bytes(), what) for name, what in expected.items()]


def drain(index: TimeBucketIndex) -> list[MessageRun]:
    """Everything that the index holds, as runs in the order of a pop; the index is empty then."""
    runs = index.pop_due_runs(FOREVER)
    columns = (runs.due, runs.ledger_ids, runs.first_entries, runs.last_entries)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def content(index: TimeBucketIndex) -> list[MessageRun]:
    """The same, after everything was decoded and checked."""
    index.check_invariants()
    return drain(index)
