"""Taking back what was planned and has not come: a command over the messages of schedules, by subscription.

Dispatch is the arbiter, as of all commands: what it has taken comes.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress

from pipeline.client.commanding.commands import cancel
from pipeline.client.exceptions import SubscriptionNotFound
from pipeline.delta.deltars import instant, open_table, query, quoted
from pipeline.subscriptions.schedules import OCCURRENCE, SCHEDULE
from schemas import CANCELLED, MESSAGES, REJECTED_DISPATCH

BY = "schedule"
"""Who gives these commands."""
_MOST_NAMES = 500
"""A condition has no more names; a change of more schedules takes back what all of them have planned."""
_PLANNED = "properties['{property}'] IS NOT NULL AND {among} AND publish_time >= {since} AND due_time >= {since}"
"""A message is sent when it occurs. It is due then or later, and by that column files are left out."""
_TOPICS = "SELECT DISTINCT topic FROM messages WHERE {planned} ORDER BY topic"
_TAKEN = """
    SELECT properties['{schedule}'] AS name, properties['{occurrence}'] AS occurrence FROM messages m
    WHERE {planned} AND due_time <= {until} AND NOT EXISTS (
        SELECT 1 FROM rejected r WHERE r.topic = m.topic AND r.ledger_id = m.ledger_id AND r.entry_id = m.entry_id
        AND r.reason = '{cancelled}')
"""


class Planned:
    """Messages that were planned for some schedules, and occur from an instant on."""

    def __init__(self, root: str, names: Collection[str] | None, since: int) -> None:
        """Look at nothing yet.

        Args:
            root: the warehouse.
            names: of the schedules; None: all of them.
            since: the instant, ms UTC.
        """
        self._root = root
        texts = None if names is None else ", ".join(map(quoted, sorted(names)))
        among = "TRUE" if texts is None else f"properties['{SCHEDULE}'] IN ({texts})"
        self._planned = _PLANNED.format(property=SCHEDULE, among=among, since=instant(since))

    def take_back(self, reason: str) -> bool:
        """Cancel them for all subscriptions that their topics have now; whether there are any.

        Raises:
            BadValue: ingest does not know one of these yet.
            StillConflicting: others wrote at the same time, every time; nothing was written.
        """
        topics = query(_TOPICS.format(planned=self._planned), messages=open_table(self._root, MESSAGES))
        for row in topics:
            # A topic without subscriptions: nobody gets them.
            with suppress(SubscriptionNotFound):
                cancel(self._root, row["topic"], where=self._planned, by=BY, reason=reason)
        return bool(topics)

    def taken(self, until: int) -> set[tuple[str, str]]:
        """Those due until an instant that dispatch did not leave out: schedule and occurrence (ISO, UTC)."""
        texts = {"schedule": SCHEDULE, "occurrence": OCCURRENCE, "cancelled": CANCELLED, "until": instant(until)}
        sql = _TAKEN.format(planned=self._planned, **texts)
        tables = {"messages": open_table(self._root, MESSAGES), "rejected": open_table(self._root, REJECTED_DISPATCH)}
        return {(row["name"], row["occurrence"]) for row in query(sql, **tables)}


def few(names: Collection[str]) -> Collection[str] | None:
    """Names that a condition can have; None: they are too many."""
    return names if len(names) <= _MOST_NAMES else None
