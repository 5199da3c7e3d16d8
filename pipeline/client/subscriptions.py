"""Subscribing: rows of `subscriptions`, and how far ingest has noticed them."""

from dataclasses import dataclass

from deltalake import DeltaTable

from pipeline.config.errors import AlreadySubscribed, BadValue, check_text
from pipeline.delta.deltars import append, open_table, query, rows_of
from pipeline.subscriptions.incarnations import Incarnation, Name, lives_of
from schemas import SEGMENTS, SUBSCRIPTIONS
from state import tick_bits
from state.buckets import MAX_TICK

TYPES = ("exclusive", "failover", "shared", "key_shared")
STARTS = ("earliest", "latest")
_LAST_MARKER = (1 << 63) - 1
_LIVES = """
    SELECT topic, subscriptions[1]['name'] AS name, subscriptions[1]['tick_ms'] AS tick_ms, first_ledger
    FROM segments WHERE first_ledger IS NOT NULL AND marker <= {last} ORDER BY marker, first_ledger
"""
_ACTIVE = f"""
    SELECT topic, subscription AS name,
        CASE WHEN type IN {TYPES} THEN type ELSE 'shared' END AS type,
        CASE WHEN start = 'earliest' THEN 'earliest' ELSE 'latest' END AS start,
        tick_ms
    FROM registry
    WHERE active AND tick_ms BETWEEN 1 AND {MAX_TICK} AND TRIM(topic) <> '' AND TRIM(subscription) <> ''
    ORDER BY topic, name
"""  # noqa: S608 - our own words


@dataclass(frozen=True)
class Subscription:
    """A line of the registry.

    Attributes:
        topic: the topic listened to.
        name: unique within the topic.
        type: one of `TYPES`.
        start: `earliest` (what the log holds already, too) or `latest` (what comes from now on).
        tick_ms: precision in ms: a message comes up to so much late for it, never early.

    Raises:
        BadValue: a name that is empty or not Unicode, an unknown type or start.
        OutOfRange: the tick is not in 1..2^41.
    """

    topic: str
    name: str
    type: str = "shared"
    start: str = "latest"
    tick_ms: int = 1_000

    def __post_init__(self) -> None:
        """Refuse what no stage could work with."""
        for field in ("topic", "name"):
            if not getattr(self, field).strip():
                raise BadValue(field, getattr(self, field), "a name")
            check_text(field, getattr(self, field))
        for field, allowed in (("type", TYPES), ("start", STARTS)):
            if getattr(self, field) not in allowed:
                raise BadValue(field, getattr(self, field), ", ".join(allowed))
        tick_bits(self.tick_ms)


def subscribe(root: str, new: Subscription) -> bool:
    """Register a subscription; False when it is registered already, just so.

    Two processes that register one name at the same moment may both succeed: look with `subscriptions` afterwards.

    Raises:
        NoWarehouse: the folder has no registry.
        AlreadySubscribed: the name is taken, with other settings.
    """
    for each in subscriptions(root):
        if (each.topic, each.name) == (new.topic, new.name):
            if each == new:
                return False
            raise AlreadySubscribed(
                new.topic, new.name, f"type {each.type}, start {each.start}, tick {each.tick_ms} ms"
            )
    row = {
        "topic": new.topic,
        "subscription": new.name,
        "type": new.type,
        "start": new.start,
        "tick_ms": new.tick_ms,
        "active": True,
    }
    append(root, SUBSCRIPTIONS, rows_of(SUBSCRIPTIONS, [row]))
    return True


def subscriptions(root: str) -> list[Subscription]:
    """The active subscriptions, by topic and name.

    Any Delta writer may append lines. They are read as ingest reads them: those that it refuses are left out, and what
    it does not look at is given its default.
    """
    return active(open_table(root, SUBSCRIPTIONS))


def active(registry: DeltaTable) -> list[Subscription]:
    """The same of the registry at a version."""
    return [Subscription(**row) for row in query(_ACTIVE, registry=registry)]


def lives(root: str) -> dict[Name, Incarnation]:
    """The last life of each subscription that ingest has noticed, by topic and name.

    Reads the marker rows of `segments` that say who joined and who left; files without any are passed over by their
    statistics.
    """
    return lives_in(open_table(root, SEGMENTS))


def lives_in(segments: DeltaTable, last_marker: int = _LAST_MARKER) -> dict[Name, Incarnation]:
    """The same of `segments` at a version, up to a marker."""
    rows = query(_LIVES.format(last=last_marker), segments=segments)
    return lives_of(((row["topic"], row["name"]), row["first_ledger"], row["tick_ms"]) for row in rows)
