"""How much of each subscription dispatch may take: by policies, and by what is held of it already."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pipeline.dispatch.holding import Allowance, Share, Who
from pipeline.subscriptions.incarnations import Name
from pipeline.subscriptions.policies import Shaping

QUANTUM_MS = 500
"""What a rate allows is taken so often."""
EXPIRY_MS = 10_000
"""What is held and has expired goes when the first of it has done so for so long, if no batch takes it before."""
_NOTHING = Allowance(0)


@dataclass
class Pacing:
    """How far subscriptions with a rate have used it.

    The time of a rate begins when something is due and held, and each message takes a share of a second of it. It ends
    when nothing is. A start begins all of them anew, so no death gives anybody more.
    """

    _begun: dict[Name, float] = field(default_factory=dict, init=False)
    _taken: dict[Name, int] = field(default_factory=dict, init=False)

    def budget(self, name: Name, rate: int, now: int) -> int:
        """How many messages may be taken at a time (ms UTC), with so many a second."""
        if name not in self._begun or now - self._taken.get(name, now - QUANTUM_MS) < QUANTUM_MS:
            return 0
        return max(0, int((now - self._begun[name]) * rate // 1_000))

    def follow(self, shapings: Mapping[Name, Shaping], waiting: Mapping[Who, Share], now: int) -> None:
        """Begin the time of each rate of which something is due and held at a time (ms UTC), and end that of others."""
        for (topic, name, _), share in waiting.items():
            if not _rate(shapings, (topic, name)):
                continue
            if share.first_due > now:
                self._begun.pop((topic, name), None)
            else:
                self._begun.setdefault((topic, name), now)

    def took(self, counts: Mapping[Name, tuple[int, int]], now: int) -> None:
        """So many messages of a rate (the second number) were taken, by name, at a time (ms UTC)."""
        for name, (count, rate) in counts.items():
            self._begun[name] = self._begun.get(name, now) + count * 1_000 / rate
            self._taken[name] = now


def allowances(
    shapings: Mapping[Name, Shaping],
    waiting: Mapping[Who, Share],
    lives: Mapping[Name, int],
    most: int,
    pacing: Pacing,
    now: int,
) -> dict[Name, Allowance]:
    """How much may be taken of those whose runs are held, or may have to be; of the others everything may.

    What is held of a life that is over goes, whatever is allowed. Who has something held and is not paused gets the
    first of it, and as much as the others who do; who has a rate, what that allows of what is due. What has expired is
    taken beyond that, to be refused.

    Args:
        shapings: the policies of those that have some.
        waiting: what is held.
        lives: the present life of each subscription.
        most: so many positions may be taken of what is held, of all together that have no rate.
        pacing: how far rates are used.
        now: the time, ms UTC.
    """
    found = {name: _NOTHING for name, each in shapings.items() if each.paused}
    rated = {name: each.max_rate for name, each in shapings.items() if each.max_rate and not each.paused}
    living = {(topic, name) for topic, name, life in waiting if lives.get((topic, name)) == life}
    open_again = living - found.keys() - rated.keys()
    share = Allowance(max(1, most // max(1, len(open_again))))
    over = {(topic, name) for topic, name, _ in waiting} - living
    paced = {name: Allowance(pacing.budget(name, rate, now), now) for name, rate in rated.items()}
    all_found = dict.fromkeys(over, _NOTHING) | found | paced | dict.fromkeys(open_again, share)
    late = expired_until(shapings, now)
    return {name: _with_expired(each, late[name], most) if name in late else each for name, each in all_found.items()}


def expired_until(shapings: Mapping[Name, Shaping], now: int) -> dict[Name, int]:
    """What is due until then has expired at a time (ms UTC), of those subscriptions for which messages do."""
    return {name: now - each.ttl_ms - 1 for name, each in shapings.items() if each.ttl_ms is not None}


def _with_expired(allowed: Allowance, until: int, most: int) -> Allowance:
    due = until if allowed.is_nothing else allowed.due_until
    return replace(allowed, due_until=due, expired=most, expired_until=until)


def is_open(shapings: Mapping[Name, Shaping], waiting: Mapping[Who, Share], pacing: Pacing, now: int) -> bool:
    """Whether something that is held may be taken at a time (ms UTC), up to which `pacing` has followed what waits."""
    return any(
        _may_be_taken(shapings, (topic, name), share, pacing, now) for (topic, name, _), share in waiting.items()
    )


def _may_be_taken(shapings: Mapping[Name, Shaping], name: Name, share: Share, pacing: Pacing, now: int) -> bool:
    shaping, rate = shapings.get(name, Shaping()), _rate(shapings, name)
    if shaping.ttl_ms is not None and share.first_due + shaping.ttl_ms + EXPIRY_MS < now:
        return True
    if rate:
        return share.first_due <= now and pacing.budget(name, rate, now) > 0
    return not shaping.paused


def _rate(shapings: Mapping[Name, Shaping], name: Name) -> int | None:
    """The rate by which something may be taken; None: there is none, or the subscription is paused."""
    shaping = shapings.get(name, Shaping())
    return None if shaping.paused else shaping.max_rate
