"""What a plain model knows of messages that users change their mind about, and the same read from rows of tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

from pipeline.client.commanding.commands import cancel
from pipeline.client.insight.pending import pending
from pipeline.client.insight.pendingfollower import PendingFollower
from pipeline.client.insight.pendingrows import pending_rows

OF_INGEST = tuple(f"ingest.{step}" for step in ("counted", "messages", "segments"))
OF_DISPATCH = tuple(
    f"dispatch.{step}"
    for step in ("counted", "written", "rejected_dispatch", "shelved", "held", "noted", "deliveries", "publications")
)
OF_SETTLE = tuple(f"settle.{step}" for step in ("planned", "noted", "segments", "cursors", "done"))
DECIDED = frozenset(OF_DISPATCH[2:])
"""A batch that has come so far is decided."""


class Place(NamedTuple):
    """A message for a subscription, that failed so often."""

    name: str
    entry: tuple[int, int]
    failed: int


class Release(NamedTuple):
    """A round of it that became due."""

    of: Place
    round: int


@dataclass
class Fate:
    """What is known of a place.

    Attributes:
        round: the last round that anybody made of it.
        due: when it is due in each round, ms UTC; of the first round of what failed nobody knows.
        cancels: the commands that cancel it, less what was undone.
        decided: what dispatch made of it: `delivered`, `cancelled` or `suppressed`; None: nothing yet.
        came: the round in which that was decided; commands that came later count for nothing.
    """

    round: int
    due: dict[int, int] = field(default_factory=dict)
    cancels: set[str] = field(default_factory=set)
    decided: str | None = None
    came: int | None = None


@dataclass
class Given:
    """A command.

    Attributes:
        kind: of the command.
        named: the places that it names, with the round that it makes, if it makes one.
        before: when they were due before, ms UTC.
        late: those that were decided before.
        undone: those for which it was taken back.
    """

    kind: str
    named: dict[Place, int | None]
    before: dict[Place, int] = field(default_factory=dict)
    late: set[Place] = field(default_factory=set)
    undone: set[Place] = field(default_factory=set)


def ms(time: datetime) -> int:
    """An instant in ms."""
    return int(time.replace(tzinfo=time.tzinfo or UTC).timestamp() * 1_000)


def where(keys: set[int]) -> str:
    """A condition over keys."""
    return f"message_key IN ({', '.join(repr(str(key)) for key in sorted(keys))})"


def places(row: Mapping[str, Any]) -> Iterator[Place]:
    """The places that a row of some table names."""
    first = row.get("first_entry", row.get("entry_id"))
    for entry in range(first, row.get("last_entry", first) + 1):
        yield Place(row["subscription"], (row["ledger_id"], entry), row["redelivery_count"])


def released(row: Mapping[str, Any]) -> Iterator[Release]:
    """The same with the round."""
    for of in places(row):
        yield Release(of, of.failed if row["round"] is None else row["round"])


def counted(rows: Iterable[Mapping[str, Any]]) -> Counter[Release]:
    """How often each release is in a table."""
    return Counter(each for row in rows for each in released(row))


def listed(followed: PendingFollower, keys: set[int], name: str | None) -> dict[Place, int]:
    """When what waits under some keys for its first delivery is due, by the rows of what waits.

    `pending` counts these rows, as who follows the tables does, and a command would name the messages of all rows.
    """
    root = followed.root
    rows = pending_rows(root, "t", name, where=where(keys)).to_pylist()
    waits = {of: ms(row["due_time"]) for row in rows for of in places(row)}
    assert len(waits) == len(rows)
    would = cancel(root, "t", name, where=where(keys), dry_run=True).selection
    assert (would.count, would.subscriptions) == (len(waits), Counter(of.name for of in waits))
    firsts = pending_rows(root, where="redelivery_count = 0").column("subscription").to_pylist()
    backlogs = pending(root).backlogs
    assert {each.subscription: each.count for each in backlogs if each.count} == Counter(firsts)
    assert followed.look().backlogs == backlogs
    return {of: due for of, due in waits.items() if not of.failed}


def figures(each: Given) -> tuple[str, int, int, int, int, int]:
    """What `outcomes` is to say of a command when all is decided."""
    late = each.late - each.undone
    applied = len(each.named) - len(late) - len(each.undone)
    return each.kind, len(each.named), applied, len(late), len(each.undone), 0
