"""How much of each subscription dispatch may take: by policies, and by what is held of it already."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from pipeline.dispatch.core.holding import EVERYTHING, Allowance, Share, Who
from pipeline.subscriptions.incarnations import Name
from pipeline.subscriptions.policies import Policies
from pipeline.subscriptions.rates import EXPIRY_MS, QUANTUM_MS, budget_of, used_by
from pipeline.subscriptions.windows import OpenHours
from state.units import Ms

AHEAD_MS = 2_000
"""A guard is evaluated so long before a message is due, at most."""
LONGEST_MS = 5_000
"""A rate makes up for no more time than this, when dispatch stood still while something waited (live)."""
SPARE, FAIR_SPARE, GUARDED_SPARE = 10_000, 1_000, 100
"""So many positions are looked at beyond what a rate allows, since some may be withdrawn; fewer, when they are taken in
turn, one by one, and when each of them has to be compared with a guard."""
_LOOK_MS = 1_000
"""By a clock that is turned, what is held for a rate or a guard is looked at so often."""
_NOTHING = Allowance(0)


@dataclass
class Pacing:
    """How far subscriptions with a rate have used it.

    The time of a rate begins when something is due and held and may come, and each message that is handed over takes a
    share of a second of it. It ends when nothing does, so a rest saves nothing up. A start begins all of them anew, so
    no death gives anybody more.

    Attributes:
        longest: no more time counts at once (ms), however long dispatch stood still; None: all of it does.
    """

    longest: int | None = None
    _begun: dict[Name, float] = field(default_factory=dict, init=False)
    _taken: dict[Name, int] = field(default_factory=dict, init=False)

    def budget(self, name: Name, rate: int, now: Ms) -> int:
        """How many messages may be handed over at a time (ms UTC), with so many a second."""
        if name not in self._begun or now - self._taken.get(name, now - QUANTUM_MS) < QUANTUM_MS:
            return 0
        return budget_of(self._since(name, rate, now), rate, now)

    def follow(
        self, shapings: Mapping[Name, Policies], waiting: Mapping[Who, Share], now: Ms, failing: Collection[Name] = ()
    ) -> None:
        """Begin the time of each rate of which something is due and may come at a time (ms UTC); end that of others.

        One that has used more than its time is not begun anew before that is over.
        """
        due = set[Name]()
        for (topic, name, _), share in waiting.items():
            shaping = shapings.get((topic, name), Policies())
            stands = shaping.paused or (topic, name) in failing or not shaping.max_rate
            if not stands and share.first_due <= now:
                due.add((topic, name))
        self._begun = {name: each for name, each in self._begun.items() if name in due or each > now}
        self._taken = {name: each for name, each in self._taken.items() if 0 <= now - each < QUANTUM_MS}
        self._begun = dict.fromkeys(due, float(now)) | self._begun

    def took(self, counts: Mapping[Name, tuple[int, int]], now: Ms) -> None:
        """So many messages of a rate (the second number) were handed over, by name, at a time (ms UTC)."""
        for name, (count, rate) in counts.items():
            self._begun[name] = self._since(name, rate, now) + used_by(count, rate)
            self._taken[name] = now

    def _since(self, name: Name, rate: int, now: Ms) -> float:
        """Since when the time of a rate counts, ms UTC. A slow rate keeps the time of one message."""
        begun = self._begun.get(name, now)
        return begun if self.longest is None else max(begun, now - max(self.longest, 1_000 / rate))


def as_of(shapings: Mapping[Name, Policies], hours: Mapping[Name, OpenHours], now: Ms) -> Mapping[Name, Policies]:
    """Policies as they are at a time (ms UTC): who is closed then is paused.

    Args:
        shapings: the policies of those that have some.
        hours: the open hours of those of them that have some.
        now: the time.
    """
    closed = {name: shapings[name].while_closed for name, each in hours.items() if each.closed_until(now) is not None}
    return {**shapings, **closed} if closed else shapings


def within_hours(allowed: dict[Name, Allowance], hours: Mapping[Name, OpenHours], now: Ms) -> dict[Name, Allowance]:
    """What may be taken at a time (ms UTC), of those who are open then only what is due before they close.

    So nothing is prepared for a time at which its subscription is closed.
    """
    if not hours:
        return allowed
    openings = ((name, each.opening(now)) for name, each in hours.items())
    closes = {name: end for name, (begin, end) in openings if begin <= now}
    most = {name: allowed.get(name, Allowance(EVERYTHING)) for name in closes}
    return allowed | {
        name: replace(each, due_until=min(each.due_until, closes[name] - 1)) for name, each in most.items()
    }


def allowances(
    shapings: Mapping[Name, Policies],
    waiting: Mapping[Who, Share],
    lives: Mapping[Name, int],
    most: int,
    pacing: Pacing,
    now: Ms,
    ahead: int = 0,
    failing: Collection[Name] = (),
) -> dict[Name, Allowance]:
    """How much may be taken of those whose runs are held, or may have to be; of the others everything may.

    What is held of a life that is over goes, whatever is allowed. Who has something held and is not paused gets the
    first of it, and as much as the others who do; who has a rate, what that allows of what is due; who has a guard,
    what is due, or soon will be. What has expired is taken beyond that, to be refused.

    Args:
        shapings: the policies of those that have some.
        waiting: what is held.
        lives: the present life of each subscription.
        most: so many positions may be taken of what is held, of all together that have no rate.
        pacing: how far rates are used.
        now: the time, ms UTC.
        ahead: what has a guard is taken so long before it is due (ms).
        failing: those whose guard cannot be evaluated.
    """
    found = {name: _NOTHING for name, each in shapings.items() if each.paused or name in failing}
    free = {name: each for name, each in shapings.items() if name not in found}
    rated = {name: each.max_rate for name, each in free.items() if each.max_rate}
    living = {(topic, name) for topic, name, life in waiting if lives.get((topic, name)) == life}
    open_again = living - found.keys() - rated.keys()
    share = Allowance(max(1, most // max(1, len(open_again))))
    over = {(topic, name) for topic, name, _ in waiting} - living
    paced = {name: _paced(pacing.budget(name, rate, now), now, shapings[name]) for name, rate in rated.items()}
    guarded = {name: replace(share, due_until=now + ahead) for name, each in free.items() if each.guard is not None}
    all_found = dict.fromkeys(over, _NOTHING) | found | dict.fromkeys(open_again, share) | guarded | paced
    late = expired_until(shapings, now)
    return {name: _with_expired(each, late[name], most) if name in late else each for name, each in all_found.items()}


def _paced(budget: int, now: Ms, shaping: Policies) -> Allowance:
    """What a rate allows, and beyond that what may stand in the place of messages that are left out."""
    spare = SPARE if shaping.fair_by is None else FAIR_SPARE
    spare = spare if shaping.guard is None else GUARDED_SPARE
    return Allowance(budget + spare, now, handed=budget) if budget else Allowance(0, now)


def expired_until(shapings: Mapping[Name, Policies], now: Ms) -> dict[Name, int]:
    """What is due until then has expired at a time (ms UTC), of those subscriptions for which messages do."""
    return {name: now - each.ttl_ms - 1 for name, each in shapings.items() if each.ttl_ms is not None}


def _with_expired(allowed: Allowance, until: int, most: int) -> Allowance:
    due = until if allowed.is_nothing else allowed.due_until
    return replace(allowed, due_until=due, expired=most, expired_until=until)


def is_open(
    shapings: Mapping[Name, Policies],
    waiting: Mapping[Who, Share],
    pacing: Pacing,
    now: Ms,
    ahead: int = 0,
    failing: Collection[Name] = (),
) -> bool:
    """Whether something that is held may be taken at a time, up to which `pacing` has followed what waits.

    The arguments are those of `allowances`. What has a guard is waited for until half of the time ahead is over: so one
    batch takes what several would.
    """
    return any(
        _has_expired(shapings, (topic, name), share, now)
        or ((topic, name) not in failing and _may_be_taken(shapings, (topic, name), share, pacing, now, ahead))
        for (topic, name, _), share in waiting.items()
    )


def _has_expired(shapings: Mapping[Name, Policies], name: Name, share: Share, now: Ms) -> bool:
    """Whether something has expired for so long that it goes."""
    ttl_ms = shapings.get(name, Policies()).ttl_ms
    return ttl_ms is not None and share.first_due + ttl_ms + EXPIRY_MS < now


def _may_be_taken(
    shapings: Mapping[Name, Policies], name: Name, share: Share, pacing: Pacing, now: Ms, ahead: int
) -> bool:
    shaping = shapings.get(name, Policies())
    if shaping.paused or (shaping.hours is not None and share.first_due >= shaping.hours.opening(now)[1]):
        return False
    if shaping.max_rate:
        return share.first_due <= now and pacing.budget(name, shaping.max_rate, now) > 0
    return shaping.guard is None or share.first_due <= now + ahead // 2


def next_look(shapings: Mapping[Name, Policies], waiting: Mapping[Who, Share], now: Ms) -> Ms | None:
    """When something that is held may go though nobody writes anything, ms UTC; None: never.

    What is paused goes when it expires; so does what is closed, or when that opens. For a rate or a guard it is looked
    at once a second.
    """
    looks = list[int]()
    for (topic, name, _), share in waiting.items():
        policies = shapings.get((topic, name), Policies())
        opens = None if policies.hours is None else policies.hours.closed_until(now)
        if not policies.paused:
            looks.append(now + _LOOK_MS if opens is None else opens)
        if (policies.paused or opens is not None) and policies.ttl_ms is not None:
            looks.append(max(now, share.first_due + policies.ttl_ms + EXPIRY_MS) + 1)
    return Ms(min(looks)) if looks else None
