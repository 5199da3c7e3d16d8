"""The days of calendars on which windows of topics do not open, as the stages follow them: at a noted version."""

from __future__ import annotations

from contextlib import suppress

from pipeline.delta.logs.entries import newest
from pipeline.delta.warehouse import Warehouse, ask
from pipeline.subscriptions.calendars import calendars_of
from pipeline.subscriptions.lines import NO_POLICIES, Topics
from schemas import CALENDARS

NONE = -1
"""The version of calendars that nobody asks for."""
_ROWS = "SELECT * FROM {rows}"


class DaysOff:
    """Completes the policies of topics by the calendars that they name. Without such a topic nothing is looked at."""

    def __init__(self, warehouse: Warehouse) -> None:
        """Look at nothing yet."""
        self._warehouse, self._newest = warehouse, NONE
        self._last: tuple[Topics, int, Topics] = (NO_POLICIES, NONE, NO_POLICIES)

    def version(self, topics: Topics) -> int:
        """The newest version of calendars, if a topic names one; else -1."""
        if not topics.calendars:
            return NONE
        # A warehouse of an earlier version has none.
        with suppress(FileNotFoundError):
            self._newest = newest(self._warehouse.files, self._warehouse.path(CALENDARS), self._newest)
        return self._newest

    def followed(self, topics: Topics, version: int) -> Topics:
        """The policies with the days of calendars at a version."""
        if version == NONE:
            return topics
        if self._last[0] is not topics or self._last[1] != version:
            rows = ask(self._warehouse, CALENDARS, _ROWS, version)
            days = calendars_of(row if isinstance(row, dict) else row.asDict() for row in rows)
            self._last = (topics, version, topics.with_days(days))
        return self._last[2]
