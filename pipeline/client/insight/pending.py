"""What is pending for each subscription, counted from the tables alone, while the job runs."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from pipeline.client.clock import clock_of
from pipeline.client.insight.asof import uncertain
from pipeline.client.insight.counting import Counted, by_minute, next_due, opened
from pipeline.client.insight.minutecounts import NOTHING, ListenerMinutes
from pipeline.client.insight.waiting import held_back, in_inbox
from pipeline.config.errors import check_count
from pipeline.delta.deltars import query
from pipeline.storage.files import Files
from pipeline.subscriptions.guards import GuardStates
from pipeline.subscriptions.policies import Policies
from schemas import DELIVERIES, MESSAGES

_NOTHING_SET = Policies()
_KEYS = """
    SELECT listener, message_key, SUM(change) AS messages
    FROM ({changes}) GROUP BY 1, 2 HAVING SUM(change) > 0 ORDER BY 3 DESC, 1, 2 LIMIT {limit}
"""


@dataclass(frozen=True)
class Backlog:
    """What is pending for one subscription.

    Attributes:
        topic: its topic.
        subscription: its name.
        count: messages accepted for it and not yet delivered.
        next_due: when the first of them is due, ms UTC; None: nothing is pending.
        minutes: how many are due in each minute, by the minute's start in ms UTC, ascending; empty ones left out.
        held: how many of them are due and held by dispatch now.
        paused: whether the subscription is now.
        max_rate: messages a second that come at most; None: any number.
        closed_until: when its hours open, ms UTC; None: it is open now, or has no hours.
        fair_by: between whose messages turns are taken, of what is held; None: what was due first comes first.
        guard_error: why its guard cannot be evaluated; None: it can, or there is none.
        ttl_ms: how long after its due time a message may be handed over, its own or that of its topic; None: for ever.
    """

    topic: str
    subscription: str
    count: int
    next_due: int | None
    minutes: Mapping[int, int]
    held: int = 0
    paused: bool = False
    max_rate: int | None = None
    closed_until: int | None = None
    fair_by: str | None = None
    guard_error: str | None = None
    ttl_ms: int | None = None

    @property
    def held_ms(self) -> int | None:
        """How long it takes by its rate until what is held now has come, ms; None: no rate, or paused or closed."""
        stands = self.paused or self.closed_until is not None
        return None if stands or not self.max_rate else self.held * 1_000 // self.max_rate


@dataclass(frozen=True)
class Pending:
    """What is pending in a warehouse.

    Attributes:
        backlogs: one for each active subscription, by topic and name.
        in_inbox: rows of the inbox that ingest has neither accepted nor rejected yet; 0 as of an instant.
        versions: the versions of the tables that were counted.
        uncertain: as of an instant, messages that were cancelled since and whose rows retention may have deleted:
            they are not counted, and nobody knows any more whether they had been sent by then.
    """

    backlogs: tuple[Backlog, ...]
    in_inbox: int
    versions: Mapping[str, int]
    uncertain: int = 0


@dataclass(frozen=True)
class KeyBacklog:
    """What is pending for one subscription with one key.

    Attributes:
        topic: the topic.
        subscription: its name.
        key: the key; None: the messages that have none.
        count: messages.
    """

    topic: str
    subscription: str
    key: str | None
    count: int


def pending(
    root: str, topic: str | None = None, subscription: str | None = None, *, as_of: int | None = None
) -> Pending:
    """Count what is pending, of one topic or subscription when named.

    Args:
        root: the warehouse.
        topic: only of this topic, with its partitions.
        subscription: only for subscriptions of this name.
        as_of: an instant, ms UTC: count what was pending then, for the subscriptions that there are now, in their
            present lives (`pipeline.client.insight.asof`). None: now.

    Raises:
        NoWarehouse: the folder lacks a table.
        BadValue: deliveries of that time are deleted.
    """
    looked = opened(root, (topic, subscription), as_of)
    versions = {DELIVERIES.name: looked.deliveries.version(), MESSAGES.name: looked.messages.version()}
    if as_of is None:
        counts, waiting = _backlogs(looked), in_inbox(root)
        # Last, since it changes several times a second, and says how long it takes from now on.
        return Pending(tuple(shaped(root, counts, looked)), waiting, versions)
    lives = {name: life.number for name, life in looked.listeners.items()}
    unknown = uncertain(root, lives, looked.rule, as_of, looked.settled)
    return Pending(tuple(_backlogs(looked)), 0, versions, unknown)


def first_due(backlogs: Iterable[Backlog]) -> int | None:
    """When the first of what is pending is due, ms UTC; None: nothing is pending."""
    return min((each.next_due for each in backlogs if each.next_due is not None), default=None)


def shaped(root: str, backlogs: Iterable[Backlog], looked: Counted) -> Iterator[Backlog]:
    """Backlogs with what is held of each, and why."""
    held, lines, lives = held_back(root), looked.registry.registered.shapings, looked.listeners
    failing = GuardStates(Files(), root).errors({name: each.guard for name, each in lines.items()})
    for each in backlogs:
        name = (each.topic, each.subscription)
        count = held.get((*name, lives[name].number), 0) if name in lives else 0
        own = lines.get(name, _NOTHING_SET)
        yield replace(
            each,
            held=count,
            guard_error=failing.get(name),
            paused=own.paused,
            max_rate=own.max_rate,
            closed_until=None if own.hours is None else own.hours.closed_until(clock_of(root).wall()),
            fair_by=own.fair_by,
            ttl_ms=own.ttl_ms,
        )


def pending_by_key(
    root: str,
    topic: str | None = None,
    subscription: str | None = None,
    *,
    limit: int = 20,
    as_of: int | None = None,
) -> list[KeyBacklog]:
    """The keys with which most is pending, those first; a line for each key and subscription.

    Args:
        root: the warehouse.
        topic: only of this topic.
        subscription: only for subscriptions of this name.
        limit: so many at most.
        as_of: as for `pending`.

    Raises:
        NoWarehouse: the folder lacks a table.
        BadValue: deliveries of that time are deleted; or a value is none.
    """
    check_count("limit", limit)
    looked = opened(root, (topic, subscription), as_of)
    with looked.changes() as changes:
        rows = query(_KEYS.format(changes=changes.all, limit=limit), **changes.tables) if changes.all else []
    names = list(looked.listeners)
    found = ((*names[row["listener"]], row["message_key"], row["messages"]) for row in rows)
    return [KeyBacklog(topic, name, key, count) for topic, name, key, count in found]


def _backlogs(looked: Counted) -> list[Backlog]:
    with looked.changes() as changes:
        minutes = by_minute(changes.tables, changes.all).positive()
    return backlogs(looked, minutes, next_due(looked, minutes))


def backlogs(looked: Counted, minutes: ListenerMinutes, due: Mapping[int, int]) -> list[Backlog]:
    """What is pending for each subscription, of what is pending for each listener."""
    each = minutes.by_listener(len(looked.listeners))
    mine = {name: (each[number], due.get(number)) for number, name in enumerate(looked.listeners)}
    found = ((name, *mine.get(name, (NOTHING, None))) for name in sorted(looked.since))
    return [Backlog(*name, int(waiting.counts.sum()), first, waiting) for name, waiting, first in found]
