"""The policies of a topic: bounds of the delays of its messages, when they may come, and how many with one key wait.

Ingest follows them; how long messages may be late is followed at dispatch.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import date
from functools import cached_property
from typing import Annotated

from pipeline.config.errors import BadValue
from pipeline.config.settings import DAY_MS
from pipeline.subscriptions.policies import EXPIRES, LONGEST_MS, TTL, TTLS
from pipeline.subscriptions.policytable import Option, PolicyTable, Row, Shown, Text, Within
from pipeline.subscriptions.uniqueness import BY, BY_KEY, Uniqueness
from pipeline.subscriptions.windows import UTC_ZONE, TopicWindow
from state.unique import Mode

EXACT, PROPORTIONAL = PRECISIONS = ("exact", "proportional")
_WINDOW, _UNIQUE = "window", "unique"
_NEEDED = {_WINDOW: "a window", _UNIQUE: "unique"}
"""What a policy has no effect without, for people."""
_DELAYS = Within(1, LONGEST_MS)


@dataclass(frozen=True)
class TopicPolicies(PolicyTable):
    """The policies of a topic; the names are those of the registry's map.

    Beside them `closed` has the days of the calendar, as who follows the window has looked them up.

    Attributes:
        fixed_delay_ms: each message is due so long after it was published, whatever its producer asks (ms).
        min_delay_ms: a message is due so long after it was published at the earliest (ms).
        max_delay_ms: a message whose producer asks for a longer delay is rejected (ms). It is not shortened: a message
            never comes before the time that was asked for.
        precision: `exact`, or `proportional`: a message is put off to the end of a bucket of time that is as wide as
            its delay deserves (`state.proportional_deliver_at`): up to a second after a minute, up to a minute after a
            day. So what waits for long takes less room.
        window: the times of the week at which messages may come (`state.windows`), such as
            `Mo-Fr 08:00-20:00; Sa 10:00-14:00`. What would be due at another time is due at the next opening. None:
            any time.
        window_zone: whose clock counts: a time zone, such as `Europe/Rome`; or `property:NAME`, the property that has
            the zone of each recipient. Of a message without one, or with one that is no zone, it is the zone behind a
            comma (`property:NAME, Europe/Rome`), or else UTC.
        window_spread_ms: what has to wait for an opening is spread over so long a time behind it, evenly (ms).
        window_calendar: the name of a calendar, on whose days the window stays closed, by the clock that counts.
        ttl_ms: as that of a subscription (`Policies`), for those that have none of their own (ms).
        unique: no two messages with one key wait (`state.unique`). `replace`: a newer one closes the one that waits.
            `extend`: the same, but what is put off again and again comes after `unique_max_wait_ms`. `drop`: a newer
            one is rejected. None: any number waits.
        unique_by: what the key is: `key`, that of the message, or `property:NAME`. A message without it is not unique.
        unique_max_wait_ms: with `extend`, so long after the first message of a key was published (ms) the last one
            comes at the latest, unless the first one asked for a later time.

    Raises:
        BadValue: a value that cannot be followed.
    """

    fixed_delay_ms: Annotated[
        int | None,
        _DELAYS,
        Option("Of a topic: each message is due so long after it was sent", unset="none"),
        Shown("fixed delay: {}, whatever a producer asks for"),
    ] = None
    min_delay_ms: Annotated[
        int | None,
        _DELAYS,
        Option("Of a topic: a message is due so long after it was sent, at the earliest", unset="none"),
        Shown("shortest delay: {}; what comes sooner is put off"),
    ] = None
    max_delay_ms: Annotated[
        int | None,
        Within(0, LONGEST_MS, not_below="min_delay_ms"),
        Option("Of a topic: a message that asks for a longer delay is rejected", unset="none"),
        Shown("longest delay: {}; what asks for a longer one is rejected"),
    ] = None
    precision: Annotated[
        str,
        Text(", ".join(PRECISIONS), PRECISIONS),
        Option(
            "Of a topic: due times as precise as asked for, or as delays deserve (a minute after a day).",
            unset="as it is",
        ),
        Shown(
            of={
                PROPORTIONAL: "precision: proportional; a message comes up to a second later after a minute, up to a "
                "minute after a day"
            }
        ),
    ] = EXACT
    window: Annotated[
        str | None,
        Text("the times of a week"),
        Option("Of a topic: messages come at these times; what is due at another time waits.", "TIMES", "any time"),
        Shown("window: {}, by the clock of {window_zone}; what is due at another time comes at the next opening"),
    ] = None
    window_zone: Annotated[
        str,
        Row(_WINDOW, _WINDOW),
        Text("a time zone, or property:NAME"),
        Option("Of a topic: whose clock counts for its window.", "ZONE|property:NAME", UTC_ZONE),
    ] = UTC_ZONE
    window_spread_ms: Annotated[
        int,
        Row(_WINDOW, _WINDOW),
        Within(0, DAY_MS),
        Option("Of a topic: what waits for an opening comes within so long behind it, evenly", unset="at once"),
        Shown("  spread over {} behind the opening", {0: ""}),
    ] = 0
    window_calendar: Annotated[
        str | None,
        Row(_WINDOW, _WINDOW),
        Text("the name of a calendar", blank=False),
        Option("Of a topic: its window stays closed on the days of a calendar.", "NAME", "none"),
        Shown("  closed on the days of the calendar {}"),
    ] = None
    ttl_ms: Annotated[int | None, Row(), TTLS, TTL, EXPIRES] = None
    unique: Annotated[
        str | None,
        Text(", ".join(Mode), tuple(Mode)),
        Option("Of a topic: what becomes of messages with the key of one that waits.", unset="they wait, too"),
        Shown("unique: {}, by {unique_by}"),
    ] = None
    unique_by: Annotated[
        str,
        Row(_UNIQUE, _UNIQUE),
        Text(BY),
        Option("Of a topic: what messages are told apart by.", "key|property:NAME", BY_KEY),
    ] = BY_KEY
    unique_max_wait_ms: Annotated[
        int | None,
        Row(_UNIQUE, _UNIQUE),
        _DELAYS,
        Option("Of a topic: with extend, what is put off again and again comes so long after the first", unset="none"),
        Shown("  what is put off again and again comes {} after the first at the latest"),
    ] = None

    closed: frozenset[date] = field(default=frozenset(), init=False)

    def __post_init__(self) -> None:
        """Refuse what cannot be followed."""
        super().__post_init__()
        for name in ("min_delay_ms", "max_delay_ms"):
            if self.fixed_delay_ms is not None and getattr(self, name) is not None:
                raise BadValue(name, getattr(self, name), "a topic without fixed_delay_ms")
        for name, row in self.rows.items():
            if row.needs and getattr(self, row.needs) is None and getattr(self, name) != row.default:
                raise BadValue(name, getattr(self, name), f"a topic with {_NEEDED[row.needs]}")
        # They are checked when they are made.
        self.opening, self.uniqueness  # noqa: B018

    @cached_property
    def opening(self) -> TopicWindow | None:
        """When messages may come; None: at any time."""
        if self.window is None:
            return None
        return TopicWindow.of_texts(self.window, self.window_zone, self.window_spread_ms, self.closed)

    def closed_on(self, days: frozenset[date]) -> TopicPolicies:
        """The same, with days on which the window stays closed."""
        found = replace(self)
        vars(found).update(closed=days)
        # It was looked at when it was made.
        vars(found).pop("opening", None)
        return found

    @cached_property
    def uniqueness(self) -> Uniqueness | None:
        """What becomes of messages with the key of one that waits; None: they wait, too."""
        if self.unique is None:
            return None
        return Uniqueness.of_values(self.unique, self.unique_by, self.unique_max_wait_ms)

    @property
    def floor_ms(self) -> int | None:
        """So long after its publication a message is due at the earliest, ms."""
        return self.min_delay_ms if self.fixed_delay_ms is None else self.fixed_delay_ms

    @property
    def proportional(self) -> int | None:
        """1 when due times are as precise as delays deserve."""
        return 1 if self.precision == PROPORTIONAL else None
