"""The source of instants, live or virtual, that Spark logs.

The offset is an instant in milliseconds. What a batch of the schedule calls "now" comes from its logged offset, so a
replay calls the same instant now; ingest notes with its first commit what it called so. Spark's own `rate` source dies
when the wall clock steps back, and has whole seconds.
"""

import json
import os
import time
from collections.abc import Iterator, Sequence

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from pipeline.config.errors import ClockJumped
from pipeline.config.settings import LiveClock
from pipeline.config.wallclock import monotonic_ms, wall_ms
from pipeline.storage.files import Files
from pipeline.storage.waiting import Folders
from pipeline.worker.garbage import leave_out_modules

Offset = dict[str, int]
_LONGEST_WAIT_MS = 2_000
"""So long a query that is to stop may wait for its clock, and a change that nobody noticed for its batch."""


class Tick(InputPartition):
    """One instant, in ms."""

    def __init__(self, instant: int) -> None:
        """Keep the instant."""
        super().__init__(instant)
        self.instant = instant


class _InstantReader(DataSourceStreamReader):
    """What both clocks share: a batch holds one row, the instant it ends with."""

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        return [Tick(end["instant"])] if end["instant"] > start["instant"] else []

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        leave_out_modules()
        assert isinstance(partition, Tick)  # noqa: S101 - narrows the type that Spark hands back
        yield (partition.instant,)


class VirtualReader(_InstantReader):
    """The next instant of a file, one a batch, so that one instant is one release in every stage."""

    def __init__(self, path: str, start: int = 0) -> None:
        """Read instants from a file that `advance` appends to, those after `start` (ms)."""
        self._path, self._start = path, start

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """Before all instants, or where a rebuilt stage goes on."""
        return {"instant": self._start}

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802, ARG002 - Spark's signature
        """The first instant after the last one; the same when none is given yet. Waits while the clock is held."""
        _wait_while_held(self._path)
        later = (instant for instant in given(self._path) if instant > start["instant"])
        return {"instant": next(later, start["instant"])}


class WaitingReader(_InstantReader):
    """No instant ever; who asks for one waits until there may be something else to do."""

    def __init__(self, watched: Sequence[str] = ()) -> None:
        """Watch folders of this machine.

        While nothing in them changes, whoever asks for the next instant waits: no query goes round for nothing, and a
        commit wakes the one that follows it.
        """
        self._folders = Folders(watched) if watched else None
        self._seen: list[int] = []

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """The only one."""
        return {"instant": 0}

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802, ARG002 - Spark's signature
        """The next instant, or the last one again when there may be something else to do."""
        end = monotonic_ms() + _LONGEST_WAIT_MS
        while True:
            # The folders first: what changes after this look ends the next wait.
            seen = [] if self._folders is None else self._folders.state()
            instant, left = self._next(start["instant"]), end - monotonic_ms()
            if self._folders is None or instant > start["instant"] or seen != self._seen or left <= 0:
                self._seen = seen
                return {"instant": instant}
            self._folders.wait(min(left, self._until_next()) / 1_000)

    def _next(self, last: int) -> int:
        return last

    def _until_next(self) -> int:
        return _LONGEST_WAIT_MS


class LiveReader(WaitingReader):
    """`min(wall + lookahead, last + max_step)`, never backwards."""

    def __init__(self, clock: LiveClock, start: int = 0, watched: Sequence[str] = ()) -> None:
        """Follow the wall clock, never before `start` (ms); notice when it leaves the monotonic one.

        Args:
            clock: its settings.
            start: the clock goes on from here, ms.
            watched: folders of this machine.
        """
        super().__init__(watched)
        self._clock, self._start, self._far = clock, start, False
        self._started = wall_ms() - monotonic_ms()

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """The wall clock, one step back, so that the first batch has an instant; not before a rebuilt stage goes on."""
        return {"instant": max(self._start, self._grid(wall_ms()) - self._clock.resolution_ms)}

    def _next(self, last: int) -> int:
        """The next instant, or the last one again.

        Raises:
            ClockJumped: the wall clock moved by more than `max_jump_ms` against the monotonic clock.
        """
        wall = wall_ms()
        jump = wall - monotonic_ms() - self._started
        if abs(jump) > self._clock.max_jump_ms:
            raise ClockJumped(jump, self._clock.max_jump_ms)
        instant = next_instant(last, wall, self._clock)
        if self._far and instant == last:
            # An instant is the watermark from the next batch on: what waited while the clock stood waits no longer.
            instant += 1
        if instant > last:
            self._far = instant - last > self._clock.resolution_ms
        return instant

    def _until_next(self) -> int:
        resolution = self._clock.resolution_ms
        return resolution - (wall_ms() + self._clock.lookahead_ms) % resolution

    def _grid(self, ms: int) -> int:
        return ms - ms % self._clock.resolution_ms


class InstantSource(DataSource):
    """The clock as a Spark data source named `delayline_clock`."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "delayline_clock"

    def schema(self) -> str:
        """One column, the instant in ms."""
        return "instant bigint"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802, ARG002 - Spark's signature
        """The reader that the options ask for."""
        if "path" in self.options:
            return VirtualReader(self.options["path"], int(self.options["start"]))
        watched = json.loads(self.options["watched"])
        if "start" not in self.options:
            return WaitingReader(watched)
        fields, start = ("lookahead_ms", "max_step_ms", "max_jump_ms", "resolution_ms"), int(self.options["start"])
        return LiveReader(LiveClock(**{field: int(self.options[field]) for field in fields}), start, watched)


def next_instant(last: int, wall: int, clock: LiveClock) -> int:
    """The instant after `last` at a wall time, all in ms; `last` itself when the time has not come."""
    target = wall + clock.lookahead_ms
    target -= target % clock.resolution_ms
    return max(last, min(target, last + clock.max_step_ms))


def given(path: str) -> list[int]:
    """The instants of a virtual clock so far, in ms. A last line without its end was cut by a crash and is left out."""
    return [int(line) for line in (Files().text_if_there(path) or "").splitlines(keepends=True) if line.endswith("\n")]


def _wait_while_held(path: str) -> None:
    """Say that we wait, and for which hold. Whoever lost its parent lost its query, and waits for nobody."""
    files, parent, said = Files(), os.getppid(), ""
    while os.getppid() == parent:
        name = files.text_if_there(f"{path}.hold")
        if name is None:
            return
        if name != said:
            files.write(f"{path}.waiting", name, lasting=False)
            said = name
        time.sleep(files.pause_s(path))
