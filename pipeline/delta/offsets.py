"""Places in the table that a stage follows, and what the small files of a checkpoint folder say of them."""

import json
from dataclasses import asdict, dataclass
from typing import Any

from pipeline.config.stages import DISPATCH, INGEST, SCHEDULE
from schemas import INBOX, REDELIVERY, SEGMENTS

SOURCES = {INGEST: INBOX, SCHEDULE: SEGMENTS, DISPATCH: REDELIVERY}
"""The table that each stage follows."""
ORIGIN = "origin.json"
"""The file in a checkpoint folder that says where it begins."""
WRITTEN = "written.json"
"""The file in a checkpoint folder that says which batch of the query each table holds at least."""
EVERYTHING_BEFORE = -1
"""An index within a Delta version that takes no file of it."""
Offset = tuple[int, int]
"""In the table that a stage follows: a version, and the last file of it that was taken."""


@dataclass(frozen=True)
class Position:
    """The end of a batch.

    Attributes:
        instant: the clock, ms UTC; 0 before its first instant, and for a stage without a clock.
        version: the version of the source table that comes next, or is being read.
        index: the last file of that version that was taken; negative: none.
    """

    instant: int
    version: int
    index: int

    @property
    def offset(self) -> Offset:
        """Version and index."""
        return self.version, self.index

    def as_dict(self) -> dict[str, int]:
        """For the metadata of a commit."""
        return {"instant": self.instant, "version": self.version, "index": self.index}


@dataclass(frozen=True)
class Origin:
    """Where a checkpoint begins. A rebuild writes it into the new folder; a first start begins with nothing.

    Attributes:
        version: with `index`, the position in the source table before which everything was taken by others.
        index: as in `Position`.
        instant: the clock goes on from here, ms UTC.
        rebuilt: the number of the rebuild whose rows of `segments` are taken; None: no such rows are.
        after: the owners whose tables this checkpoint takes over.
    """

    version: int = 0
    index: int = EVERYTHING_BEFORE
    instant: int = 0
    rebuilt: int | None = None
    after: tuple[str, ...] = ()

    @property
    def position(self) -> Position:
        """The start of the first batch."""
        return Position(self.instant, self.version, self.index)

    def dumps(self) -> str:
        """The content of the file."""
        return json.dumps(asdict(self))

    @classmethod
    def loads(cls, text: str) -> "Origin":
        """From the content of the file."""
        fields = json.loads(text)
        return cls(**{**fields, "after": tuple(fields["after"])})


def parse(log: str) -> Position:
    """An entry of an offset log, format 1: a version line, a line of metadata, a line for each source."""
    offsets = [json.loads(line) for line in log.splitlines()[2:] if line not in ("", "-")]
    clock: dict[str, Any] = next((each for each in offsets if "instant" in each), {"instant": 0})
    delta = next((each for each in offsets if "reservoirVersion" in each), None)
    if delta is None:
        return Position(int(clock["instant"]), 0, EVERYTHING_BEFORE)
    return Position(int(clock["instant"]), int(delta["reservoirVersion"]), int(delta["index"]))


def watermark(log: str) -> int:
    """The watermark of such a batch, ms UTC: timeouts up to it were fired by the batch. 0: it had none."""
    return int(json.loads(log.splitlines()[1]).get("batchWatermarkMs", 0))
