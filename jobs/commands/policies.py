"""Policies of topics and subscriptions on the command line."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from jobs.commands.durations import BadText, duration_ms, spell
from pipeline.subscriptions.guards import tables_of
from pipeline.subscriptions.policies import PROPORTIONAL, REJECT, Policies, TopicPolicies

if TYPE_CHECKING:
    from pipeline.client.subscribing.policysetting import Held

BACKOFFS = "MIN:MULTIPLIER:MAX, two durations and a whole number between them: 1m:2:10m"
_BACKOFF = re.compile(r"([^:]+):([0-9]{1,4}):([^:]+)")


@dataclass(frozen=True)
class Backoff:
    """How long a message that failed waits: the first delay (ms), how many times as long each next one, the longest."""

    min_ms: int
    multiplier: int
    max_ms: int


def backoff(text: str) -> Backoff:
    """A backoff from `1m:2:10m`.

    Raises:
        BadText: another form.
    """
    match = _BACKOFF.fullmatch(text.strip())
    if match is None:
        raise BadText(text, BACKOFFS)
    return Backoff(duration_ms(match[1]), int(match[2]), duration_ms(match[3]))


def named(wait: Backoff | None, **values: Any) -> dict[str, Any]:  # noqa: ANN401 - values of policies
    """The policies that were named; None is what was not."""
    given = {name: value for name, value in values.items() if value is not None}
    if wait is not None:
        given |= {"retry_min_ms": wait.min_ms, "retry_multiplier": wait.multiplier, "retry_max_ms": wait.max_ms}
    return given


def paths(texts: Iterable[str]) -> dict[str, str]:
    """The tables of a guard, from `NAME=PATH`; a path of this machine may begin where the command does.

    Raises:
        BadParameter: another form.
    """
    found = {}
    for each in texts:
        name, equals, path = each.partition("=")
        if not equals or not path:
            raise typer.BadParameter(f"--guard-table {each}: say NAME=PATH")
        found[name] = path if ":" in path else str(Path(path).absolute())
    return found


def past(held: "Sequence[Held]") -> Iterator[str]:
    """What policies were, a line for each change."""
    for each in held:
        texts = ", ".join(f"{name} = {text}" for name, text in each.policies.items())
        yield f"{each.since}  {texts or '(defaults)'}"


def topic_lines(policies: TopicPolicies, batch: int | None) -> Iterator[str]:
    """For people: the policies of a topic, and since when ingest follows them (`batch` is one that it made so)."""
    if policies == TopicPolicies():
        yield "no policies: each message is due when its producer asks for it"
        return
    if policies.fixed_delay_ms is not None:
        yield f"fixed delay: {spell(policies.fixed_delay_ms)}, whatever a producer asks for"
    if policies.min_delay_ms is not None:
        yield f"shortest delay: {spell(policies.min_delay_ms)}; what comes sooner is put off"
    if policies.max_delay_ms is not None:
        yield f"longest delay: {spell(policies.max_delay_ms)}; what asks for a longer one is rejected"
    if policies.precision == PROPORTIONAL:
        yield "precision: proportional; a message comes up to a second later after a minute, up to a minute after a day"
    if policies.ttl_ms is not None:
        yield _expiry(policies.ttl_ms)
    if policies == TopicPolicies(ttl_ms=policies.ttl_ms):
        return
    yield "followed from the next batch of ingest on" if batch is None else f"followed by ingest, as of batch {batch}"


def lines(topic: str, subscription: str, policies: Policies) -> Iterator[str]:
    """For people: all policies, as they are followed."""
    if policies.paused:
        yield "paused: what becomes due is held"
    if policies.max_rate is not None:
        yield f"rate: {policies.max_rate:,} messages a second at most; what is due beyond that comes later"
    if policies.priority is not None:
        yield f"priority: in one bucket of the tick, the highest number in the property {policies.priority} comes first"
    if policies.ttl_ms is not None:
        yield _expiry(policies.ttl_ms)
    if policies.guard is not None:
        yield f"guard: {policies.guard}; what does not meet it when it is due is not delivered"
        yield from (f"  {name} is the table {path}" for name, path in tables_of(policies.guard_tables).items())
    if policies.sink is not None:
        yield f"sink: {policies.sink}, what came after version {policies.sink_after} of deliveries"
        if policies.sink_refused == REJECT:
            yield "  what the broker refuses for good is listed in rejected_dispatch, and the sink goes on"
    if not policies.ack:
        yield "does not acknowledge: what was delivered to it is done with"
        return
    most = "any number" if policies.max_redeliveries is None else f"{policies.max_redeliveries} at most"
    held = f"{policies.max_unacked:,}" if policies.max_unacked else "any number of"
    timeout = f"after {spell(policies.ack_timeout_ms)}" if policies.ack_timeout_ms else "never"
    first, last = spell(policies.retry_min_ms), spell(policies.retry_max_ms)
    longer = f", each next one {policies.retry_multiplier} times as long, up to {last}"
    yield "acknowledges: what its consumers do not settle comes again"
    yield f"ack timeout: {timeout}"
    yield f"backoff: {first}{' each time' if policies.retry_multiplier == 1 else longer}"
    yield f"redeliveries: {most}"
    if policies.max_redeliveries is not None:
        yield f"dead letters: {policies.dead_letters(topic, subscription)}"
    yield f"slots: {policies.slots}"
    yield f"unacked: a consumer holds {held} messages"


def _expiry(ttl_ms: int) -> str:
    return f"time to live: what was not handed over within {spell(ttl_ms)} after it was due is not delivered any more"
