"""Who listens: lives of subscriptions, where each begins, and at which tick it is told of what is due.

One that was removed and comes back under its name begins another life. Rows name the life they are for, so that what an
earlier life left behind, waiting or on its way, is told apart. Ingest sees the registry once a batch, and decides; its
marker rows in `segments` say it. Maintenance forgets who left long ago (decision 0110): of all who are forgotten the
highest number is kept, and who is new begins above it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from pipeline.storage.texts import MAX_NAMES_BYTES, REPLACED
from pipeline.worker.audience import Audience, Listener
from schemas import LEFT
from state import OutOfRange, tick_bits
from state.runs import MAX_ENTRY, MAX_LEDGER

_TEXT = re.compile(r"([1-9][0-9]{0,18})@([0-9]{1,19}):([0-9]{1,10})")
_MEANT = re.compile(r"[0-9]+@[0-9]+:[0-9]+")
_MOST_LIFE = 1 << 53
"""More lives than anybody begins, and far from the end of the column."""


@dataclass(frozen=True, order=True)
class Sought:
    """The life that a seek asks for, and the first position that is for it. Its text is `LIFE@LEDGER:ENTRY`.

    Attributes:
        life: its number; ingest begins it when the subscription's present life has a lower one, and not otherwise.
        ledger: the ledger of the first position.
        entry: the first entry in that ledger.
    """

    life: int
    ledger: int
    entry: int

    @classmethod
    def of_text(cls, start: str | None) -> Self | None:
        """From the column; None: no seek wrote it, or it says what cannot be."""
        found = _TEXT.fullmatch(start or "")
        if found is None:
            return None
        life, ledger, entry = map(int, found.groups())
        return cls(life, ledger, entry) if life <= _MOST_LIFE and ledger <= MAX_LEDGER and entry <= MAX_ENTRY else None

    @staticmethod
    def is_meant(start: str | None, sought: Sought | None) -> bool:
        """Whether the column has the form of a seek, and says a life or a position that cannot be."""
        return sought is None and _MEANT.fullmatch(start or "") is not None

    def __str__(self) -> str:
        """The text of the column."""
        return f"{self.life}@{self.ledger}:{self.entry}"


Name = tuple[str, str]
"""Topic and subscription."""
FORGOTTEN: Name = ("", "")
"""Stands among the lives for all who are forgotten: its number is their highest one. Nobody can have such a name."""
TICK_CHANGED, TICK_OUT_OF_RANGE, BAD_NAME, BAD_START = "tick_changed", "tick_out_of_range", "bad_name", "bad_start"
"""Why ingest does not follow a line of the registry; rows of `rejected_ingest` say so, once for each change."""


@dataclass(frozen=True)
class Incarnation:
    """A subscription's time between joining and leaving, as ingest saw it.

    Attributes:
        number: 1 for its first life, or one more than that of anybody who is forgotten; one more each time it comes
            back.
        since: the first ledger that it gets; None: it left.
        tick_ms: its tick, the same for a whole life.
        entry: the first entry that it gets of its first ledger; of later ones it gets all.
    """

    number: int
    since: int | None
    tick_ms: int
    entry: int = 0


@dataclass(frozen=True)
class Joined:
    """What a life begins with.

    Attributes:
        since: its first ledger.
        tick_ms: its tick.
        entry: the first entry that it gets of its first ledger.
        life: its number; 0, in rows of older versions: the next one. Of somebody who left: the number of the life
            that ended; 0, in rows of older versions: nobody says.
    """

    since: int
    tick_ms: int
    entry: int = 0
    life: int = 0


def next_lives(
    lives: Mapping[Name, Incarnation], joined: Mapping[Name, Joined], left: Collection[Name]
) -> Mapping[Name, Incarnation]:
    """Lives after some subscriptions left and some joined; whoever did both comes back.

    When nobody did, it is the same mapping: whoever compares can see at a glance that nothing moved.
    """
    if not joined and not left:
        return lives
    after = dict(lives)
    change(after, joined, left)
    return after


def change(lives: dict[Name, Incarnation], joined: Mapping[Name, Joined], left: Iterable[Name]) -> None:
    """Change lives in place: who reads one change after the other would copy all lives with each."""
    lives.update({name: replace(lives[name], since=None) for name in left if name in lives})
    counted = {name: next_number(lives, name) for name in joined}
    lives.update(
        {
            name: Incarnation(each.life or counted[name], each.since, each.tick_ms, each.entry)
            for name, each in joined.items()
        }
    )


def next_number(lives: Mapping[Name, Incarnation], name: Name) -> int:
    """The number of the life that a name begins next, unless a seek asks for a higher one."""
    last = lives.get(name) or lives.get(FORGOTTEN)
    return 1 if last is None else last.number + 1


def lives_of(joins: Iterable[tuple[Name, Joined]]) -> dict[Name, Incarnation]:
    """Every subscription's last life, from the rows that markers have of subscriptions.

    They are in the order of markers and ledgers: `LEFT` is below all, so who left and came back in one comes back. Who
    leaves without having joined is forgotten.
    """
    lives: dict[Name, Incarnation] = {}
    for name, joined in joins:
        left = joined.since == LEFT
        if left and name not in lives and joined.life:
            last = lives.get(FORGOTTEN)
            number = joined.life if last is None else max(joined.life, last.number)
            lives[FORGOTTEN] = Incarnation(number, None, 0)
        change(lives, {} if left else {name: joined}, [name] if left else ())
    return lives


CHANGES = "SELECT marker, first_ledger, topic, subscriptions, count FROM {rows} WHERE first_ledger IS NOT NULL"
"""Rows of `segments`, for both Spark and DataFusion. Files without such a row are passed over by their statistics."""


def lives_by(rows: Iterable[Mapping[str, Any]], last: int | None = None) -> dict[Name, Incarnation]:
    """Every subscription's last life by the rows of `CHANGES`, up to a marker; None: up to the last one."""
    passed = (row for row in rows if last is None or row["marker"] <= last)
    return lives_of(
        ((row["topic"], each["name"]), Joined(row["first_ledger"], each["tick_ms"], row["count"], each["life"]))
        for row in sorted(passed, key=lambda row: (row["marker"], row["first_ledger"]))
        for each in row["subscriptions"]
    )


def alive(lives: Mapping[Name, Incarnation]) -> dict[Name, Incarnation]:
    """Those who have not left."""
    return {name: life for name, life in lives.items() if life.since is not None}


Place = tuple[int, int]
"""Ledger, entry."""


@dataclass(frozen=True)
class Subscription:
    """A line of the registry; `tick_ms` is the subscription's precision, `sought` where a seek lets it begin.

    `lost`: it says a life or a place that cannot be.
    """

    topic: str
    name: str
    tick_ms: int
    earliest: bool
    sought: Sought | None = None
    lost: bool = False

    @property
    def wrong(self) -> str | None:
        """Why nobody can join by this line; None: somebody can."""
        if wrong_names(self.topic, self.name) is not None:
            return BAD_NAME
        if self.lost:
            return BAD_START
        try:
            tick_bits(self.tick_ms)
        except OutOfRange:
            return TICK_OUT_OF_RANGE
        return None

    @property
    def fits(self) -> bool:
        """Whether names and tick are such that somebody can join by this line."""
        return self.wrong is None


def wrong_names(topic: str, name: str) -> str | None:
    """What names have to be that a topic and a subscription do not have; None: they can be."""
    if not topic.strip() or not name.strip():
        return "a name"
    if REPLACED in topic or REPLACED in name:
        return f"a name without {REPLACED!r}, which stands for bytes that are no text"
    size = len(f"{topic}{name}".encode())
    return None if size <= MAX_NAMES_BYTES else f"{MAX_NAMES_BYTES} bytes at most, with the topic"


def audiences(subscriptions: Iterable[Subscription], lives: Mapping[Name, Incarnation]) -> dict[str, Audience]:
    """The audience of each topic; all subscriptions are alive, and keep the tick with which their life began."""
    topics: dict[str, list[tuple[Place, Listener]]] = defaultdict(list)
    for each in subscriptions:
        life = lives[each.topic, each.name]
        topics[each.topic].append(((life.since or 0, life.entry), (each.name, life.number, life.tick_ms)))
    return {topic: _audience(members) for topic, members in topics.items()}


def _audience(members: list[tuple[Place, Listener]]) -> Audience:
    if len(members) == 1:
        # Most topics have one subscription, and there may be ten thousand of them.
        ((ledger, entry), listener) = members[0]
        return Audience((ledger,), (listener,), (1,), (entry,) if entry else ())
    members.sort()
    ends: dict[Place, int] = {}
    for number, (first, _) in enumerate(members, 1):
        ends[first] = number
    entries = tuple(entry for _, entry in ends)
    listeners = tuple(listener for _, listener in members)
    return Audience(
        tuple(ledger for ledger, _ in ends), listeners, tuple(ends.values()), entries if any(entries) else ()
    )
