"""Taking back what was planned and has not come: a command over the messages of schedules, by subscription.

Dispatch is the arbiter, as of all commands: what it has taken comes.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress

from pipeline.client.commanding.commands import cancel
from pipeline.client.commanding.conditions import LONGEST
from pipeline.client.exceptions import SubscriptionNotFound
from pipeline.delta.deltars import instant, open_table, query, quoted
from pipeline.subscriptions.schedules import OCCURRENCE, SCHEDULE
from schemas import CANCELLED, MESSAGES, REJECTED_DISPATCH

BY = "schedule"
"""Who gives these commands."""
_MOST_CONDITIONS = 20
"""A change of schedules whose names need more conditions takes back what all schedules have planned."""
_NAMES_LENGTH = LONGEST - 1_000
"""Characters of the names in a condition."""
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
        among = ["TRUE"] if names is None else [f"properties['{SCHEDULE}'] IN ({each})" for each in _lists(names)]
        self._planned = [_PLANNED.format(property=SCHEDULE, among=each, since=instant(since)) for each in among]

    def take_back(self, reason: str) -> bool:
        """Cancel them for all subscriptions that their topics have now; whether there are any.

        Raises:
            BadValue: ingest does not know one of these yet.
            StillConflicting: others wrote at the same time, every time; nothing was written.
        """
        is_there = False
        for planned in self._planned:
            for row in query(_TOPICS.format(planned=planned), messages=open_table(self._root, MESSAGES)):
                is_there = True
                # A topic without subscriptions: nobody gets them. What failed has come, and comes again.
                with suppress(SubscriptionNotFound):
                    first = f"{planned} AND redelivery_count = 0"
                    cancel(self._root, row["topic"], where=first, by=BY, reason=reason)
        return is_there

    def taken(self, until: int) -> set[tuple[str, str]]:
        """Those due until an instant that dispatch did not leave out: schedule and occurrence (ISO, UTC)."""
        texts = {"schedule": SCHEDULE, "occurrence": OCCURRENCE, "cancelled": CANCELLED, "until": instant(until)}
        tables = {"messages": open_table(self._root, MESSAGES), "rejected": open_table(self._root, REJECTED_DISPATCH)}
        rows = (row for each in self._planned for row in query(_TAKEN.format(planned=each, **texts), **tables))
        return {(row["name"], row["occurrence"]) for row in rows}


def are_few(names: Collection[str]) -> bool:
    """Whether some conditions can name them."""
    return sum(map(_length, names)) <= _MOST_CONDITIONS * _NAMES_LENGTH // 2


def _lists(names: Collection[str]) -> list[str]:
    """Names as lists of SQL, none longer than a condition may have."""
    lists, length = list[list[str]](), _NAMES_LENGTH
    for name in sorted(names):
        length += _length(name)
        if length > _NAMES_LENGTH:
            lists.append([])
            length = _length(name)
        lists[-1].append(quoted(name))
    return [", ".join(each) for each in lists]


def _length(name: str) -> int:
    return len(quoted(name)) + 2
