"""Lives of subscriptions: one that was removed and comes back under its name begins another life.

Rows name the life they are for, so that what an earlier life left behind, waiting or on its way, is told apart. Ingest
sees the registry once a batch, and decides; its marker rows in `segments` say it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

Name = tuple[str, str]
"""Topic and subscription."""


@dataclass(frozen=True)
class Life:
    """A subscription's time between joining and leaving, as ingest saw it.

    Attributes:
        number: 1 for its first life, one more each time it comes back.
        since: the first ledger that it gets; None: it left.
    """

    number: int
    since: int | None


def next_lives(lives: Mapping[Name, Life], joined: Mapping[Name, int], left: Iterable[Name]) -> dict[Name, Life]:
    """Lives after some subscriptions left and some joined, with their first ledgers; whoever did both comes back."""
    ended = {name: Life(lives[name].number, None) for name in left if name in lives}
    begun = {name: Life(lives[name].number + 1 if name in lives else 1, first) for name, first in joined.items()}
    return {**lives, **ended, **begun}


def alive(lives: Mapping[Name, Life]) -> dict[Name, Life]:
    """Those who have not left."""
    return {name: life for name, life in lives.items() if life.since is not None}
