"""Lives of subscriptions: one that was removed and comes back under its name begins another life.

Rows name the life they are for, so that what an earlier life left behind, waiting or on its way, is told apart. Ingest
sees the registry once a batch, and decides; its marker rows in `segments` say it. Maintenance forgets who left long
ago (decision 0110): of all who are forgotten the highest number is kept, and who is new begins above it.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from schemas import LEFT

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
    """The same in place: who reads one change after the other would copy all lives with each."""
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


def alive(lives: Mapping[Name, Incarnation]) -> dict[Name, Incarnation]:
    """Those who have not left."""
    return {name: life for name, life in lives.items() if life.since is not None}
