"""Where the rows of a consumer come from: for slots that it has just taken a backlog, then version after version."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial

from pipeline.client.consuming.clock import Pace
from pipeline.client.consuming.rows import Key, Rows, SlotsOf, chosen, rows_of
from pipeline.client.following.backlog import Backlog
from pipeline.client.following.datarows import DataFile
from pipeline.client.following.earlyredeliveries import EarlyRedeliveries
from pipeline.client.following.logs import ClosedLog
from pipeline.client.following.tail import DeliveryLog
from pipeline.config.errors import VersionGone
from state.lease_events import CaughtUp, Event

_COUNT = "redelivery_count"


@dataclass
class _Stream:
    """Slots that have been read up to a version, and what is left of the next one."""

    slots: set[int]
    version: int
    rows: Iterator[Rows] | None = None


class SlotStreams:
    """The rows of one consumer. Slots that have been read equally far are read together.

    Attributes:
        lost: slots whose versions are gone: what is open of them has to be read from the table.
    """

    def __init__(self, log: DeliveryLog, closed: ClosedLog, key: Key, slots_of: SlotsOf, pace: Pace) -> None:
        """No slots."""
        self._log, self._closed, self._key, self._slots_of = log, closed, key, slots_of
        self._streams: list[_Stream] = []
        self._pace = pace
        self.backlogs: list[Backlog] = []
        self.lost: set[int] = set()
        self._early = EarlyRedeliveries()

    @property
    def oldest(self) -> int:
        """The oldest version that is needed, less one."""
        versions = [stream.version for stream in self._streams] + [each.version for each in self.backlogs]
        return min(versions, default=self._log.last)

    def take(self, backlog: Backlog) -> None:
        """Slots come in, with what is open of them."""
        self.drop(backlog.slots)
        self.backlogs.append(backlog)

    def drop(self, slots: Collection[int]) -> None:
        """Slots go."""
        for stream in self._streams:
            stream.slots -= set(slots)
        for backlog in self.backlogs:
            backlog.slots -= set(slots)
        self.lost -= set(slots)
        self._early.drop(slots)
        self._streams = [each for each in self._streams if each.slots]
        self.backlogs = [each for each in self.backlogs if each.slots]

    def next(self) -> tuple[Rows | None, list[Event]]:
        """The next rows, None when there are none now; and what the lease is to be told before they are handed out.

        Where a piece of a file has none, rows of length 0 come: there may be more.

        Raises:
            OSError: a file cannot be read now.
        """
        with self._whole():
            return self._next()

    def _next(self) -> tuple[Rows | None, list[Event]]:
        events: list[Event] = []
        for backlog in list(self.backlogs):
            if backlog.rows is None and backlog.held is None:
                continue  # It waits for settle.
            rows, says = self._of_backlog(backlog)
            events += says
            if rows is not None:
                return rows, events
        self._merge()
        self._early.passed(self.oldest)
        for stream in sorted(self._streams, key=lambda each: each.version):
            rows = self._of_stream(stream)
            if rows is not None:
                return rows, events
        return None, events

    def _of_backlog(self, backlog: Backlog) -> tuple[Rows | None, list[Event]]:
        try:
            rows, says = backlog.next()
        except VersionGone:
            self.lose(backlog.slots)
            return None, []
        if rows is None and backlog.is_read:
            self.backlogs.remove(backlog)
            self._streams.append(_Stream(backlog.slots, backlog.version))
            return None, [CaughtUp(slot) for slot in sorted(backlog.slots)] if backlog.announces else []
        return rows, list(says)

    def _of_stream(self, stream: _Stream) -> Rows | None:
        try:
            while stream.rows is not None or stream.version < self._log.last:
                if stream.rows is None:
                    stream.rows = self._version(stream.version + 1)
                rows = next(stream.rows, None)
                if rows is None:
                    stream.rows, stream.version = None, stream.version + 1
                else:
                    return self._early.without(rows.of_slots(stream.slots))
        except VersionGone:
            self.lose(stream.slots)
        return None

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """Rows that were read in a turn go with it when it fails, and nobody goes on in the middle of a file.

        So all slots are read anew then: open rows are read again; rows that the application still holds are skipped.
        """
        try:
            yield
        except Exception:
            self.lose(set().union(*(each.slots for each in self._streams), *(each.slots for each in self.backlogs)))
            raise

    def lose(self, slots: Collection[int]) -> None:
        """Versions or files of slots are gone."""
        gone = set(slots)
        self.drop(gone)
        self.lost |= gone

    def redeliveries(self) -> Iterator[Rows]:
        """What was delivered before and comes later than what was read so far; it does not come again in its turn.

        What is left of a version of which some was read comes in its turn only.

        Raises:
            OSError: as `next`.
        """
        with self._whole():
            yield from self._redeliveries()

    def _redeliveries(self) -> Iterator[Rows]:
        begun = {slot: each.version + (each.rows is not None) for each in self._streams for slot in each.slots}
        begun |= {slot: each.version for each in self.backlogs for slot in each.slots}
        first = max(self._early.upto, self.oldest) + 1
        for version in range(first, self._log.last + 1) if begun else ():
            if not self._pace.more:
                return
            self._early.upto = version
            mine = [slot for slot, upto in begun.items() if upto < version]
            for rows in self._again(version):
                found = rows.where(rows.counts > 0).of_slots(mine)
                if len(found):
                    self._early.give(found)
                    yield found

    def _again(self, version: int) -> Iterator[Rows]:
        """The rows of those files of a version that hold redeliveries; none when the version is gone: it is lost."""
        with suppress(VersionGone):
            yield from self._version(version, [f for f in self._log.files(version) if f.high.get(_COUNT) != 0])

    def _version(self, version: int, files: Sequence[DataFile] | None = None) -> Iterator[Rows]:
        """The rows of a version, or of some files of it, that are for this subscription and not closed."""
        some = [each for each in (self._log.files(version) if files is None else files) if each.is_for(self._key)]
        for table in self._log.data.of(some, version, partial(chosen, key=self._key)):
            yield self._closed.without(self._key, rows_of(table, self._slots_of))

    def _merge(self) -> None:
        """Streams between two versions that stand at the same one become one."""
        kept: dict[int, _Stream] = {}
        for stream in self._streams:
            if stream.rows is None and stream.version in kept:
                kept[stream.version].slots |= stream.slots
            elif stream.rows is None:
                kept[stream.version] = stream
        self._streams = [*kept.values(), *(each for each in self._streams if each.rows is not None)]
