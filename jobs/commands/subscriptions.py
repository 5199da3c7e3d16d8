"""`delayline subscriptions` and `delayline consumers`: tables of how they stand, as text or JSON."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from jobs.commands.columns import in_columns
from jobs.commands.jsonform import json_line, record
from pipeline.client.insight.pending import Backlog, Pending
from pipeline.client.insight.standing import Leased, Standing
from pipeline.config.printed import printable
from pipeline.config.spelling import iso_text, spell

_HEADS = ("SUBSCRIPTION", "TYPE", "ACK", "PENDING", "OUTSTANDING", "WAITING", "OLDEST", "CONSUMERS", "HELD")
_CONSUMERS = ("SUBSCRIPTION", "CONSUMER", "SLOTS", "LEASE")


def report(found: Sequence[Standing], backlog: Pending, now_ms: int) -> Iterator[str]:
    """Lines for people: one a subscription, in columns."""
    if not found:
        yield "No active subscription."
        return
    counts = _counts(backlog)
    yield from in_columns(_HEADS, [_row(each, counts, now_ms) for each in found])
    for each in found:
        error = _of(each, counts).guard_error
        if error is not None:
            yield f"The guard of {_name(each)} fails, and what it guards waits: {printable(error)}"


def as_json(found: Sequence[Standing], backlog: Pending) -> str:
    """The same for scripts; what is not known is null."""
    return json_line(records(found, backlog))


def records(found: Sequence[Standing], backlog: Pending) -> list[dict[str, object]]:
    """What JSON has of each subscription."""
    counts = _counts(backlog)
    return [_fields(each, counts) for each in found]


def consumers(found: Sequence[Standing], settled_ms: int | None) -> Iterator[str]:
    """Lines for people: one a consumer, and which slots nobody has."""
    rows = [row for each in found if each.slots for row in _shares(each)]
    if settled_ms is not None:
        yield f"By the last batch of settle, {iso_text(settled_ms)}:"
    yield from in_columns(_CONSUMERS, rows) if rows else ["No consumer."]


def consumers_json(found: Sequence[Standing], settled_ms: int | None) -> str:
    """The same for scripts."""
    shared = [
        {**_named(each), "slots": each.slots, "consumers": list(map(_consumer, each.consumers))}
        for each in found
        if each.slots
    ]
    return json_line(record(settled_ms=settled_ms, subscriptions=shared))


def _row(each: Standing, backlog: Mapping[tuple[str, str], Backlog], now_ms: int) -> list[str]:
    name, line = _name(each), each.line
    known = each.outstanding is not None
    ack = "yes" if line.policies.ack else "no"
    waits = _of(each, backlog)
    columns = [line.type, ack, f"{waits.count:,}"]
    opened = [_number(each.outstanding), _number(each.waiting), _age(each, now_ms)]
    return [name, *columns, *opened, f"{len(each.consumers)}" if known else "-", _held(waits)]


def _held(waits: Backlog) -> str:
    """How much is held, and why or for how long."""
    words = [f"{waits.held:,}"]
    words += ["paused"] if waits.paused else []
    words += [] if waits.closed_until is None else [f"closed until {iso_text(waits.closed_until)}"]
    words += [spell(waits.held_ms)] if waits.held and waits.held_ms is not None else []
    return ", ".join(words) if waits.held or len(words) > 1 else "-"


def _fields(each: Standing, backlog: Mapping[tuple[str, str], Backlog]) -> dict[str, object]:
    line, waits = each.line, _of(each, backlog)
    return _named(each) | record(
        type=line.type,
        ack=line.policies.ack,
        pending=waits.count,
        outstanding=each.outstanding,
        waiting=each.waiting,
        oldest=each.oldest,
        oldest_due=each.oldest_due,
        consumer_count=len(each.consumers),
        held=waits.held,
        paused=waits.paused,
        closed_until=waits.closed_until,
        held_for_ms=waits.held_ms,
        guard_error=waits.guard_error,
    )


def _consumer(each: Leased) -> dict[str, object]:
    return record(
        consumer=each.consumer,
        session=each.session,
        priority_level=each.priority,
        lease_ms=each.lease_ms,
        slot_numbers=each.slots,
    )


def _shares(each: Standing) -> Iterator[list[str]]:
    for consumer in each.consumers:
        share = _runs(consumer.slots) or "none"
        yield [_name(each), printable(consumer.consumer), share, spell(consumer.lease_ms)]
    free = sorted(set(range(each.slots)) - {slot for consumer in each.consumers for slot in consumer.slots})
    if free:
        yield [_name(each), "(nobody)", _runs(free), ""]


def _runs(numbers: Sequence[int]) -> str:
    """Numbers, ascending, as runs: `0-3, 7`."""
    runs = (list(run) for _, run in groupby(enumerate(numbers), lambda each: each[1] - each[0]))
    ends = ((run[0][1], run[-1][1]) for run in runs)
    return ", ".join(f"{first}" if first == last else f"{first}-{last}" for first, last in ends)


def _age(each: Standing, now_ms: int) -> str:
    if each.oldest is None:
        return "-"
    place = f"{each.oldest[0]}:{each.oldest[1]}"
    return place if each.oldest_due is None else f"{place}, {spell(now_ms - each.oldest_due)}"


def _counts(backlog: Pending) -> dict[tuple[str, str], Backlog]:
    return {(each.topic, each.subscription): each for each in backlog.backlogs}


def _of(each: Standing, backlog: Mapping[tuple[str, str], Backlog]) -> Backlog:
    name = each.line.named
    return backlog.get(name, Backlog(*name, 0, None, {}, paused=each.line.policies.paused))


def _named(each: Standing) -> dict[str, object]:
    return {"topic": each.line.topic, "subscription": each.line.name}


def _name(each: Standing) -> str:
    return printable(f"{each.line.topic}/{each.line.name}")


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"
