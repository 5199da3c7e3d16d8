"""The methods of a client for schedules, and for calendars."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from pipeline.client.checks import Opened
from pipeline.client.options import spelled_out
from pipeline.client.subscribing.arguments import HowScheduled
from pipeline.config.lazymodule import LazyModule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pipeline.client.subscribing import calendars, schedules
    from pipeline.client.subscribing.calendars import Days
    from pipeline.client.subscribing.schedules import ScheduleState
    from pipeline.subscriptions.calendars import CalendarDay
    from pipeline.subscriptions.schedules import Schedule
else:
    calendars = LazyModule(f"{__package__}.calendars")
    schedules = LazyModule(f"{__package__}.schedules")


class SetsSchedules(Opened):
    """The methods of a client for schedules, and for calendars."""

    @spelled_out(HowScheduled)
    def set_schedule(self, name: str, topic: str, **how: Unpack[HowScheduled]) -> Schedule:
        """Set a schedule, in the place of the one that has the name.

        Args:
            name: its name.
            topic: where its messages go.
            **how: see `HowScheduled`.

        Raises:
            BadValue: it cannot be followed, or never comes.
            AlreadyClosed: the client is closed.
            NoWarehouse: the folder lacks the table.
            ConnectError: the store does not answer.
        """
        with self._answering():
            return schedules.set_schedule(self._root, name, topic, **how)

    def schedules(self) -> list[ScheduleState]:
        """All schedules, by name; those that cannot be followed with the reason. It raises what `set_schedule` does."""
        with self._answering():
            return schedules.schedules(self._root)

    def pause_schedule(self, name: str) -> Schedule:
        """Let a schedule send nothing until it is resumed; what it has planned is taken back.

        Raises:
            ScheduleNotFound: there is no such schedule.
            BadValue, AlreadyClosed, NoWarehouse, ConnectError: as for `set_schedule`.
        """
        with self._answering():
            return schedules.pause_schedule(self._root, name)

    def resume_schedule(self, name: str) -> Schedule:
        """Let a schedule go on; what would have come meanwhile does not. It raises what `pause_schedule` does."""
        with self._answering():
            return schedules.resume_schedule(self._root, name)

    def delete_schedule(self, name: str) -> None:
        """Delete a schedule; what it has planned is taken back. It raises what `pause_schedule` does."""
        with self._answering():
            schedules.delete_schedule(self._root, name)

    def run_schedule_now(self, name: str) -> str:
        """Send the message of a schedule now, beside those that it sends; gives the occurrence that it says.

        It raises what `pause_schedule` does.
        """
        with self._answering():
            return schedules.run_schedule_now(self._root, name)

    def set_calendar(self, name: str, days: Days, *, years: Sequence[int] | None = None) -> tuple[CalendarDay, ...]:
        """Set the days of a calendar, in the place of those that it has.

        Args:
            name: its name.
            days: its days, or texts by day. None of them: the calendar is gone.
            years: only days of these years are replaced; None: all.

        Returns:
            All days that it has then.

        Raises:
            BadValue: a name, a day or a text cannot be followed; or a day is in none of the years.
            AlreadyClosed: the client is closed.
            NoWarehouse: the folder lacks the table.
            ConnectError: the store does not answer.
        """
        with self._answering():
            return calendars.set_calendar(self._root, name, days, years=years)

    def calendars(self) -> dict[str, tuple[CalendarDay, ...]]:
        """The days of all calendars, by name.

        Raises:
            AlreadyClosed, ConnectError: as for `set_calendar`.
        """
        with self._answering():
            return dict(calendars.calendars(self._root).days)
