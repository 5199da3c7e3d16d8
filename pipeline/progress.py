"""Where a stage stands: the offsets that Spark logged for a batch, and who owns the checkpoint.

A batch takes its instant and its source position from the log, not from its rows: a batch without a new tick has no
clock row, and yet it has an instant, the last one.
"""

import json
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from pipeline.files import Files

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
        told = json.loads(text)
        return cls(**{**told, "after": tuple(told["after"])})


class Log(Protocol):
    """What the body of a stage asks about its batches."""

    @property
    def owner(self) -> str | None:
        """The identity of the query."""
        ...

    def position(self, batch_id: int) -> Position:
        """The end of a batch."""
        ...

    def start(self, batch_id: int) -> Position:
        """The start of a batch."""
        ...

    def wrote(self, table: str, number: int) -> None:
        """Remember that a table holds a batch."""
        ...


class Checkpoint:
    """The checkpoint folder of one streaming query."""

    def __init__(self, files: Files, path: str) -> None:
        """Read the folder through Spark's file system."""
        self._files, self.path = files, path
        self._owner: str | None = None
        self._written: dict[str, int] | None = None
        file = f"{path}/{ORIGIN}"
        self.origin = Origin.loads(files.text(file)) if files.exists(file) else Origin()

    @property
    def owner(self) -> str | None:
        """The identity of the query, kept across restarts; None before its first start."""
        path = f"{self.path}/metadata"
        if self._owner is None and self._files.exists(path):
            self._owner = str(json.loads(self._files.text(path))["id"])
        return self._owner

    def position(self, batch_id: int) -> Position:
        """The logged end of a batch. Raises what the file system raises when the batch was never logged.

        Never before where the checkpoint begins: a stream of Delta begins with a version, and counts those of its
        files that others have taken (`Warehouse.follow`) as if it took them.
        """
        logged, origin = parse(self._files.text(f"{self.path}/offsets/{batch_id}")), self.origin
        version, index = max((logged.version, logged.index), (origin.version, origin.index))
        return Position(logged.instant, version, index)

    def start(self, batch_id: int) -> Position:
        """The logged start of a batch: the end of the one before, or where the checkpoint begins."""
        if batch_id == 0:
            return self.origin.position
        return self.position(batch_id - 1)

    def batches(self) -> range:
        """The batches that the offset log has, the last ones of the query. Empty before the first one."""
        found = [int(name) for name in self._files.names(f"{self.path}/offsets") if name.isdigit()]
        return range(min(found), max(found) + 1) if found else range(0)

    @property
    def instant(self) -> int:
        """The last instant that was logged, ms UTC, or where the checkpoint begins."""
        batches = self.batches()
        return self.position(batches[-1]).instant if batches else self.origin.instant

    def wrote(self, table: str, number: int) -> None:
        """Remember that a table holds a batch: a table that holds less at a later start was set back.

        A crash may come between the two; then the file says less than there is, which does no harm.
        """
        self._written = self.written() | {table: number}
        self._files.replace(f"{self.path}/{WRITTEN}", json.dumps(self._written), lasting=False)

    def written(self) -> dict[str, int]:
        """The last batch of the query in each table, as far as it is remembered."""
        if self._written is None:
            file = f"{self.path}/{WRITTEN}"
            self._written = _numbers(self._files.text(file)) if self._files.exists(file) else {}
        return self._written


def _numbers(text: str) -> dict[str, int]:
    """What the file holds; nothing when a power cut left it empty."""
    try:
        return {str(table): int(number) for table, number in json.loads(text).items()}
    except ValueError:
        return {}


def parse(log: str) -> Position:
    """An entry of an offset log, format 1: a version line, a line of metadata, a line for each source."""
    offsets = [json.loads(line) for line in log.splitlines()[2:] if line not in ("", "-")]
    clock: dict[str, Any] = next((each for each in offsets if "instant" in each), {"instant": 0})
    delta = next((each for each in offsets if "reservoirVersion" in each), None)
    if delta is None:
        return Position(int(clock["instant"]), 0, EVERYTHING_BEFORE)
    return Position(int(clock["instant"]), int(delta["reservoirVersion"]), int(delta["index"]))
