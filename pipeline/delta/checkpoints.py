"""Where a stage stands: places in the table that it follows, the offsets that Spark logged for a batch, and its owner.

A batch takes its instant and its source position from the log, not from its rows: a batch without a new tick has no
clock row, and yet it has an instant, the last one.
"""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from pipeline.config.stages import DISPATCH, INGEST, SCHEDULE, SETTLE
from pipeline.storage.files import Files
from schemas import (
    CLOSED,
    CURSORS,
    DELIVERIES,
    HELD,
    INBOX,
    MESSAGES,
    PUBLICATIONS,
    REDELIVERY,
    REJECTED_DISPATCH,
    REJECTED_INGEST,
    REJECTED_SCHEDULE,
    REJECTED_SETTLE,
    REPLACED,
    SEGMENTS,
    Table,
)
from state.units import EPOCH, Ms

SOURCES = {INGEST: INBOX, SCHEDULE: SEGMENTS, DISPATCH: REDELIVERY}
"""The table that each stage follows."""
COMMITS: Mapping[str, tuple[Table, ...]] = {
    INGEST: (MESSAGES, REPLACED, REJECTED_INGEST, REDELIVERY, SEGMENTS),
    SCHEDULE: (REJECTED_SCHEDULE, REDELIVERY),
    DISPATCH: (REJECTED_DISPATCH, HELD, DELIVERIES, PUBLICATIONS),
    SETTLE: (INBOX, SEGMENTS, CLOSED, REJECTED_SETTLE, CURSORS),
}
"""The tables to which a batch of a stage commits, in this order. A batch leaves out those for which it has no rows."""
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

    instant: Ms
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
    instant: Ms = EPOCH
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
        return Position(Ms(int(clock["instant"])), 0, EVERYTHING_BEFORE)
    return Position(Ms(int(clock["instant"])), int(delta["reservoirVersion"]), int(delta["index"]))


def watermark(log: str) -> Ms:
    """The watermark of such a batch, ms UTC: timeouts up to it were fired by the batch. 0: it had none."""
    return Ms(int(json.loads(log.splitlines()[1]).get("batchWatermarkMs", 0)))


_WITHOUT_CLOCK = 3
"""Lines of an entry: the version, metadata, and one source."""
_PAUSE_MS = 50
"""Between two looks at how far another query is."""


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
        text = files.text_if_there(f"{path}/{ORIGIN}")
        self.origin = Origin() if text is None else Origin.loads(text)
        self._logged: dict[int, Position] = {}

    @property
    def owner(self) -> str | None:
        """The identity of the query, kept across restarts; None before its first start."""
        if self._owner is None:
            text = self._files.text_if_there(f"{self.path}/metadata")
            self._owner = None if text is None else str(json.loads(text)["id"])
        return self._owner

    def position(self, batch_id: int) -> Position:
        """The logged end of a batch. Raises what the file system raises when the batch was never logged.

        Never before where the checkpoint begins: earlier releases followed a version from its first file on, and
        counted files that others had taken as if they took them.
        """
        logged, origin = self._entry(batch_id), self.origin
        version, index = max((logged.version, logged.index), (origin.version, origin.index))
        return Position(logged.instant, version, index)

    def _entry(self, batch_id: int) -> Position:
        """The entry of a batch, which never changes. The last two are kept: a batch begins where the last one ends."""
        if batch_id not in self._logged:
            last = {key: value for key, value in self._logged.items() if key == batch_id - 1}
            self._logged = last | {batch_id: parse(self._text(batch_id))}
        return self._logged[batch_id]

    def entry(self, batch_id: int) -> list[str]:
        """The lines of the offset log for a batch: the version, metadata, and a place for each source."""
        return self._text(batch_id).splitlines()

    def text(self, name: str) -> str | None:
        """A file of it, by its path in the folder; None: it is not there."""
        return self._files.text_if_there(f"{self.path}/{name}")

    def _text(self, batch_id: int) -> str:
        return self._files.text(f"{self.path}/offsets/{batch_id}")

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
    def begun(self) -> bool:
        """Whether the query has planned a batch, or goes on from the tables."""
        return bool(self.batches()) or self.origin != Origin()

    @property
    def done(self) -> int | None:
        """The last batch that is done; None: there is none."""
        return max((int(name) for name in self._files.names(f"{self.path}/commits") if name.isdigit()), default=None)

    def know_clock(self) -> None:
        """Give the entries that Spark reads at a start the line of a clock that has not ticked, where they lack it.

        Dispatch had no clock once, and Spark refuses a log with another number of sources.
        """
        for batch in self.batches()[-2:]:
            name = f"{self.path}/offsets/{batch}"
            entry = self._files.text(name).splitlines()
            if len(entry) == _WITHOUT_CLOCK:
                self._files.write(name, "\n".join([*entry[:2], '{"instant": 0}', *entry[2:]]))
                # The sum of what was there, which those that were written by Hadoop itself have beside them.
                self._files.delete(f"{self.path}/offsets/.{batch}.crc")

    @property
    def instant(self) -> Ms:
        """The last instant that was logged, ms UTC, or where the checkpoint begins."""
        return self.end.instant

    @property
    def end(self) -> Position:
        """The end of the last batch that was logged, or where the checkpoint begins."""
        batches = self.batches()
        return self.position(batches[-1]) if batches else self.origin.position

    def wrote(self, table: str, number: int) -> None:
        """Remember that a table holds a batch: a table that holds less at a later start was set back.

        A crash may come between the two; then the file says less than there is, which does no harm.
        """
        self._written = self.written() | {table: number}
        self._files.write(f"{self.path}/{WRITTEN}", json.dumps(self._written), lasting=False)

    def written(self) -> dict[str, int]:
        """The last batch of the query in each table, as far as it is remembered."""
        if self._written is None:
            text = self._files.text_if_there(f"{self.path}/{WRITTEN}")
            self._written = {} if text is None else _numbers(text)
        return self._written


class Progress:
    """How far a query with a watermark is that runs beside this one, as its checkpoint says it."""

    def __init__(self, checkpoint: Checkpoint, pause: Callable[[float], None] = time.sleep) -> None:
        self._checkpoint, self._pause = checkpoint, pause
        self._watermark, self._version = -1, -1

    def is_at(self, instant: Ms) -> bool:
        """Whether a batch is done whose watermark was an instant (ms UTC), or a later one.

        The clock of that batch says nothing: it is the watermark of the next one, which lets go what is due by it.
        """
        if self._watermark < instant:
            self._look()
        return self._watermark >= instant

    @property
    def version(self) -> int:
        """The version that the next batch begins with, or in, of the table that the query follows; -1: none is done."""
        self._look()
        return self._version

    def has_read(self, version: int, patience_ms: int) -> bool:
        """Whether done batches have read a version of that table; it may come to it within so many ms."""
        while self._version <= version and self.version <= version and patience_ms > 0:
            self._pause(_PAUSE_MS / 1_000)
            patience_ms -= _PAUSE_MS
        return self._version > version

    def _look(self) -> None:
        """Look into a folder, and at a small file of it, which may go meanwhile: a rebuild makes a new folder."""
        last = self._checkpoint.done
        text = None if last is None else self._checkpoint.text(f"offsets/{last}")
        if text is not None:
            self._watermark, self._version = watermark(text), parse(text).version


def _numbers(text: str) -> dict[str, int]:
    """What the file holds; nothing when a power cut left it empty."""
    try:
        return {str(table): int(number) for table, number in json.loads(text).items()}
    except ValueError:
        return {}
