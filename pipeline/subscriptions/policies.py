"""The policies of a subscription: what it asks for beside its delays.

A policy is a row of a table: a field, and its line in the docstring. All else follows from these: checks, options of
the command, what `policy show` says, and the tables in `docs/policies.md`. Topics have a table of their own
(`pipeline.subscriptions.topicpolicies`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any, Self

from pipeline.config.errors import BadValue
from pipeline.config.settings import DAY_MS
from pipeline.subscriptions.destination import Destination, same_topic
from pipeline.subscriptions.fairness import FAIR, WEIGHTS, FairRule
from pipeline.subscriptions.policytable import Option, PolicyTable, Row, Shown, Text, Within
from pipeline.subscriptions.windows import UTC_ZONE, OpenHours
from state import Backoff, RetryPolicy
from state.buckets import MAX_TIME
from state.retry import MAX_ROUND, UnackedLimit
from state.settling import MAX_VERSION
from state.slots import MAX_SLOTS, SLOTS, SubscriptionType

LONGEST_MS = 3_650 * DAY_MS
"""Of a duration, ms."""
STOP, REJECT = REFUSED = "stop", "reject"
"""What a sink may do about a message that its broker refuses."""
_ACK, _SINK, _GUARD, _OPEN, _FAIR = "ack", "sink", "guard", "open", "fair_by"
SHORTEST_TTL_MS = 1_000
"""With a shorter one a batch that takes its time would let messages expire."""
TTLS = Within(SHORTEST_TTL_MS, LONGEST_MS)
TTL = Option("What could not be handed over within so long after it was due is not delivered any more", unset="none")
EXPIRES = Shown("time to live: what was not handed over within {} after it was due is not delivered any more")


@dataclass(frozen=True)
class Policies(PolicyTable):
    """The policies of a subscription; the names are those of the registry's map.

    Attributes:
        ack: consumers acknowledge, and what they do not settle comes again.
        ack_after: the version of `redelivery` up to which what was released counts as settled; None: the version
            at which settle first sees the policy.
        ack_timeout_ms: a message that was handed to an application and is not settled after so long comes again
            (ms); 0: it does not.
        retry_min_ms: delay of the first redelivery of a message that failed (ms), when the consumer names none.
        retry_multiplier: each further delay is so many times as long.
        retry_max_ms: the longest of these delays (ms).
        max_redeliveries: so often a message may come again; then it goes to the dead-letter topic. None: any number.
        dead_letter_topic: where to; None: `<topic>-<subscription>-DLQ`.
        slots: parts of a shared subscription that consumers divide among them. Exclusive and failover have one.
        max_unacked: messages that a consumer may hold without having settled them; 0: any number. A consumer
            follows what it was when it began, as for `ack_timeout_ms`.
        sink: the topic of a broker in which deliveries are published, too (`pipeline.subscriptions.destination`).
        sink_after: the version of `deliveries` behind which that begins; None: the one at which the sink was named.
        sink_refused: what becomes of a message that the broker does not take, and will not take later: `stop` (the sink
            stands still before it), or `reject` (it gets a row in `rejected_dispatch`, and the sink goes on).
        paused: what becomes due is held, and comes when this is over.
        max_rate: messages a second that come at most; what is due beyond that is held, and comes later. None: any
            number.
        open: the times of the week at which what is due may come (`state.windows`), such as `Mo-Fr 08:00-20:00`. At
            other times it is held. None: any time.
        open_zone: the time zone whose clock counts for them, such as `Europe/Rome`.
        fair_by: of what is held each `key`, or value of a property (`property:NAME`), has its turn. None: by due time.
        fair_weights: so many messages has each in its turn, of those that have more than one: `gold=3, silver=2`.
        ttl_ms: a message that was not handed over within so long after its due time (ms) is not delivered any more.
            None: as the topic says (`TopicPolicies`).
        guard: a condition (SQL) that a message has to meet when it is due, or it is not delivered
            (`pipeline.subscriptions.guards`). None: there is none.
        guard_tables: the Delta tables that it reads: a JSON object of paths by names.
        priority: the property that has a message's priority, a whole number of up to nine digits. Of what is due in one
            bucket of the tick the highest comes first; what has none counts as 0. None: by time and position.

    Raises:
        BadValue: a name or a value that cannot be followed.
    """

    ack: Annotated[
        bool,
        Option("Whether its consumers acknowledge.", unset="as it is", flag="--ack/--no-ack"),
        Shown(
            of={
                True: "acknowledges: what its consumers do not settle comes again",
                False: "does not acknowledge: what was delivered to it is done with",
            }
        ),
    ] = False
    ack_after: Annotated[int | None, Row(_ACK), Within(-1, MAX_VERSION)] = None
    ack_timeout_ms: Annotated[
        int,
        Row(_ACK),
        Within(1_000, MAX_TIME, off=0),
        Option("What a consumer has had for so long, and not settled, comes again", unset="never"),
        Shown("ack timeout: after {}", {0: "ack timeout: never"}),
    ] = 0
    retry_min_ms: Annotated[
        int,
        Row(_ACK),
        Within(0, MAX_TIME),
        Option(
            "Delays of what comes again: the first, how many times as long each next one, the longest.",
            "MIN:MULT:MAX",
            "1m:1:10m",
            "--backoff",
        ),
    ] = 60_000
    retry_multiplier: Annotated[
        int,
        Row(_ACK),
        Within(1, 1_000),
        Shown(
            "backoff: {retry_min_ms}, each next one {} times as long, up to {retry_max_ms}",
            {1: "backoff: {retry_min_ms} each time"},
        ),
    ] = 1
    retry_max_ms: Annotated[int, Row(_ACK, "retry_min_ms"), Within(0, MAX_TIME, not_below="retry_min_ms")] = 600_000
    max_redeliveries: Annotated[
        int | None,
        Row(_ACK),
        Within(0, MAX_ROUND),
        Option("Then it goes to the dead letters.", "N", "any number"),
        Shown("redeliveries: {} at most", {None: "redeliveries: any number"}),
    ] = None
    dead_letter_topic: Annotated[
        str | None,
        Row(_ACK),
        Text("a name", blank=False),
        Option("Where to.", "TOPIC", "TOPIC-SUBSCRIPTION-DLQ"),
        Shown("dead letters: {}"),
    ] = None
    slots: Annotated[
        int,
        Row(_ACK),
        Within(1, MAX_SLOTS),
        Option("Parts that consumers share; fixed while it is there.", "N", f"{SLOTS}"),
        Shown("slots: {}"),
    ] = SLOTS
    max_unacked: Annotated[
        int,
        Row(_ACK),
        Within(0, MAX_ROUND),
        Option("Messages that a consumer may hold; 0: any.", "N", "50000"),
        Shown("unacked: a consumer holds {:,} messages", {0: "unacked: a consumer holds any number of messages"}),
    ] = 50_000
    sink: Annotated[
        str | None,
        Option(
            "Publish there, too: kafka://HOST:PORT/TOPIC or pulsar://HOST:PORT/TENANT/NAMESPACE/TOPIC.",
            "ADDRESS",
            "none",
        ),
        Shown("sink: {}, what came after version {sink_after} of deliveries"),
    ] = None
    sink_after: Annotated[
        int | None,
        Row(_SINK, _SINK),
        Within(-1, MAX_VERSION),
        Option("The sink begins behind this version.", "VERSION", "the newest"),
    ] = None
    sink_refused: Annotated[
        str,
        Row(_SINK, _SINK),
        Text(" or ".join(REFUSED), REFUSED),
        Option(
            "The sink stands still before what its broker refuses for good, or lists it in rejected_dispatch.",
            "|".join(REFUSED),
            STOP,
        ),
        Shown(of={REJECT: "  what the broker refuses for good is listed in rejected_dispatch, and the sink goes on"}),
    ] = STOP
    paused: Annotated[bool, Row(shapes=True), Shown(of={True: "paused: what becomes due is held"})] = False
    max_rate: Annotated[
        int | None,
        Row(shapes=True),
        Within(1, 10_000_000),
        Option("Messages a second that come at most.", "N", "any number"),
        Shown("rate: {:,} messages a second at most; what is due beyond that comes later"),
    ] = None
    open: Annotated[
        str | None,
        Row(shapes=True),
        Text("the times of a week"),
        Option("What is due at another time is held until one of these times begins.", "TIMES", "any time"),
        Shown("open: {}, by the clock of {open_zone}; what is due at another time is held until then"),
    ] = None
    open_zone: Annotated[
        str,
        Row(_OPEN, _OPEN),
        Text("a time zone"),
        Option("Whose clock counts for its open hours.", "ZONE", UTC_ZONE),
    ] = UTC_ZONE
    fair_by: Annotated[
        str | None,
        Row(shapes=True),
        Text(FAIR),
        Option("Of what is held all values of this have their turn.", "key|property:NAME", "what was due first"),
        Shown("turns: by {}; of what is held each has its turn"),
    ] = None
    fair_weights: Annotated[
        str | None,
        Row(_FAIR, _FAIR),
        Text(WEIGHTS),
        Option("So many messages each of these has in its turn.", "VALUE=N,...", "1 each"),
        Shown("  messages in a turn: {}, others 1"),
    ] = None
    ttl_ms: Annotated[int | None, Row(shapes=True), TTLS, TTL, EXPIRES] = None
    guard: Annotated[
        str | None,
        Row(shapes=True),
        Option("What does not meet this condition when it is due is not delivered.", "SQL", "none"),
        Shown("guard: {}; what does not meet it when it is due is not delivered"),
    ] = None
    guard_tables: Annotated[
        str | None,
        Row(_GUARD, _GUARD),
        Option("A Delta table that the guard reads.", "NAME=PATH", flag="--guard-table"),
        Shown("  {} is the table {}"),
    ] = None
    priority: Annotated[
        str | None,
        Row(shapes=True),
        Text("the name of a property"),
        Option("Of what is due in one bucket, the highest number in this property comes first.", "PROPERTY", "by time"),
        Shown("priority: in one bucket of the tick, the highest number in the property {} comes first"),
    ] = None

    def __post_init__(self) -> None:
        """Refuse what cannot be followed."""
        super().__post_init__()
        if self.guard_tables is not None and self.guard is None:
            raise BadValue("guard_tables", self.guard_tables, "a subscription with a guard")
        if self.open is None and self.open_zone != UTC_ZONE:
            raise BadValue("open_zone", self.open_zone, "a subscription with open hours")
        if self.fair_weights is not None and self.fair_by is None:
            raise BadValue("fair_weights", self.fair_weights, "a subscription with fair_by")
        self.hours, self.turns  # noqa: B018 - they are checked when they are made
        if self.sink is not None:
            Destination.parse(self.sink)
            if self.ack:
                raise BadValue("sink", "an address", "a subscription that does not acknowledge")

    @classmethod
    def changed(cls, texts: Mapping[str, str | None], values: Mapping[str, Any]) -> Self:
        """As for all tables; another sink does not begin where the one before did."""
        other = "sink" in values and not same_topic(values["sink"], texts.get("sink"))
        return super().changed({**texts, "sink_after": None} if other else texts, values)

    @property
    def retry(self) -> RetryPolicy:
        """What becomes of a message that failed."""
        backoff = Backoff(self.retry_min_ms, self.retry_multiplier, self.retry_max_ms)
        return RetryPolicy(backoff, self.max_redeliveries)

    @cached_property
    def hours(self) -> OpenHours | None:
        """When what is due may come; None: at any time."""
        return None if self.open is None else OpenHours.of_texts(self.open, self.open_zone)

    @cached_property
    def turns(self) -> FairRule | None:
        """Between whose messages turns are taken; None: they are not."""
        return None if self.fair_by is None else FairRule.of_texts(self.fair_by, self.fair_weights)

    @cached_property
    def while_closed(self) -> Policies:
        """The policies while its hours are not open: nothing comes, as if it were paused."""
        return replace(self, paused=True)

    @property
    def shapes(self) -> bool:
        """Whether dispatch has something to follow."""
        return any(getattr(self, name) != default for name, default in _SHAPING)

    @property
    def unacked(self) -> UnackedLimit:
        """How much a consumer holds at most, nothing of it yet."""
        return UnackedLimit(self.max_unacked)

    def slots_of(self, subscription_type: str) -> int:
        """How many slots a subscription of a type (one of `SubscriptionType`) has."""
        return SubscriptionType(subscription_type).slots(self.slots)

    def dead_letters(self, topic: str, subscription: str) -> str:
        """The topic to which dead letters go."""
        return self.dead_letter_topic or f"{topic}-{subscription}-DLQ"


_SHAPING = [(row.name, row.default) for row in Policies.rows.values() if row.shapes]
