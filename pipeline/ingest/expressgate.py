"""Whether positions may skip the schedule: what was due before them, and went its way, has to come first."""

from collections.abc import Mapping
from dataclasses import dataclass

from pipeline.delta.checkpoints import Progress
from pipeline.delta.writing.oncewriter import Sink
from state.units import Ms


@dataclass(frozen=True)
class ExpressGate:
    """Says up to which due time a batch may send positions past the schedule.

    Attributes:
        schedule: how far that is; None: the clock is virtual, and an instant is one release, whichever way it takes.
        sinks: the tables of ingest. The schedule follows `segments`; each batch that accepted messages noted in
            `messages` how it went.
        express_ms: what is due so soon after the time of the batch may skip it.
    """

    schedule: Progress | None
    sinks: Mapping[str, Sink]
    express_ms: int

    def bound(self, now: Ms, until: int) -> int:
        """What is due before this instant, but before `until`, skips the schedule; 0: nothing does. Times in ms UTC.

        Nothing does while the schedule has not let go what is due by now. It is waited for where it has only to read
        what went its way while it was late: else the next batch would have to go there, too, and all those after it.
        """
        bound = min(now + self.express_ms, until)
        if self.schedule is None or (self.schedule.is_at(now) and self._comes_in_time(self.schedule, now)):
            return bound
        return 0

    @property
    def scheduled(self) -> Ms:
        """The instant of the last batch that went to the schedule as a whole; 0: none did, or nobody noted it."""
        last = self.sinks["messages"].last
        if last is None:
            return Ms(0)
        return Ms(last.note.get("scheduled", 0) if last.note.get("express") else last.note["now"])

    def _comes_in_time(self, schedule: Progress, now: Ms) -> bool:
        """Whether what is due by now of that which went to the schedule last was let go."""
        segments = self.sinks["segments"]
        last = segments.last
        if last is None or last.note.get("express", 0) > now:
            return True
        return schedule.has_read(segments.version, self.express_ms)
