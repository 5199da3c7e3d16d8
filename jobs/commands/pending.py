"""`delayline pending`: counts, next due times and a histogram, as text or JSON."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from jobs.commands.durations import UNITS_MS
from jobs.commands.jsonform import json_line, record
from pipeline.client.insight.pending import Backlog, KeyBacklog, Pending, first_due
from pipeline.config.printed import printable
from pipeline.config.spelling import iso_text, spell

_BARS, _WIDTH = 12, 40
_SPANS_MS = tuple(
    count * UNITS_MS[unit]
    for unit, counts in (("m", (1, 5, 15)), ("h", (1, 6)), ("d", (1, 7, 30, 91, 365, 3_650)))
    for count in counts
)


def report(found: Pending, now_ms: int) -> Iterator[str]:
    """Lines for people: a line a subscription, then bars over due time, then what waits in the inbox."""
    if not found.backlogs:
        yield "No active subscription."
    yield from (_line(each, now_ms) for each in found.backlogs)
    total = Counter[int]()
    for each in found.backlogs:
        total.update(each.minutes)
    yield from _bars(total)
    yield from _besides(found)


def by_topic(found: Pending, now_ms: int) -> Iterator[str]:
    """A line a topic: what is pending for all its subscriptions together."""
    topics = {each.topic: [other for other in found.backlogs if other.topic == each.topic] for each in found.backlogs}
    for topic, mine in topics.items():
        yield counted(printable(topic), sum(each.count for each in mine), first_due(mine), now_ms)
    yield from _besides(found)


def by_minute(found: Pending, now_ms: int) -> Iterator[str]:  # noqa: ARG001 - a form takes the time
    """A line a minute of due time that has something, over all subscriptions."""
    total = Counter[int]()
    for each in found.backlogs:
        total.update(each.minutes)
    yield from (f"{iso_text(minute)[:16]}  {total[minute]:,}" for minute in sorted(total))
    yield from _besides(found)


def keys(found: Sequence[KeyBacklog]) -> Iterator[str]:
    """A line a key and subscription, those with most first."""
    for each in found:
        key = "(no key)" if each.key is None else printable(each.key)
        yield f"{each.count:>12,}  {printable(f'{each.topic}/{each.subscription}')}  {key}"


def keys_json(found: Sequence[KeyBacklog]) -> Iterator[str]:
    """The same for scripts, a line each."""
    for each in found:
        yield json_line(record(topic=each.topic, subscription=each.subscription, key=each.key, pending=each.count))


def as_json(found: Pending) -> str:
    """The same for scripts; `due_by_minute` as [minute, count] pairs."""
    subscriptions = [
        record(
            topic=each.topic,
            subscription=each.subscription,
            pending=each.count,
            next_due=each.next_due,
            due_by_minute=[(iso_text(minute), count) for minute, count in sorted(each.minutes.items())],
            held=each.held,
            paused=each.paused,
            closed_until=each.closed_until,
            held_for_ms=each.held_ms,
            fair_by=each.fair_by,
        )
        for each in found.backlogs
    ]
    return json_line({"subscriptions": subscriptions, "in_inbox": found.in_inbox} | _versions(found))


def _versions(found: Pending) -> dict[str, object]:
    """What the counts are made of, and how sure they are."""
    return {"versions": found.versions, "uncertain": found.uncertain}


def _besides(found: Pending) -> Iterator[str]:
    if found.in_inbox:
        yield f"{found.in_inbox:,} in the inbox, not yet taken by ingest"
    if found.uncertain:
        yield f"{found.uncertain:,} more that were cancelled since may have been there: their rows are deleted"


def _line(backlog: Backlog, now_ms: int) -> str:
    name = printable(f"{backlog.topic}/{backlog.subscription}")
    more = f", {backlog.held:,} of them held" if backlog.held else ""
    more += ", paused" if backlog.paused else ""
    more += "" if backlog.closed_until is None else f", closed until {iso_text(backlog.closed_until)}"
    if backlog.held and backlog.held_ms is not None:
        more += f", the last one in {spell(backlog.held_ms)} at {backlog.max_rate:,} a second"
    if backlog.held and backlog.fair_by is not None:
        more += f", in turn by {printable(backlog.fair_by)}"
    return counted(name, backlog.count, backlog.next_due, now_ms) + more


def counted(name: str, count: int, next_due: int | None, now_ms: int) -> str:
    """How much is pending under a name, and when the first of it is due."""
    if next_due is None:
        return f"{name}  nothing pending"
    left = next_due - now_ms
    when = f"in {spell(left)}" if left >= 0 else f"{spell(left)} ago"
    return f"{name}  {count:,} pending, next due {iso_text(next_due)} ({when})"


def _bars(minutes: Mapping[int, int]) -> Iterator[str]:
    """A bar for each span of due time that holds something; spans as short as the number of bars allows."""
    spans = (_spans(minutes, span) for span in _SPANS_MS)
    counts = next((each for each in spans if len(each) <= _BARS), None) or _spans(minutes, _SPANS_MS[-1])
    most = max(counts.values(), default=1)
    for start in sorted(counts):
        bar = "█" * max(1, round(_WIDTH * counts[start] / most))
        yield f"  {iso_text(start)[:16]}  {bar} {counts[start]:,}"


def _spans(minutes: Mapping[int, int], span: int) -> Counter[int]:
    counts = Counter[int]()
    for minute, count in minutes.items():
        counts[minute - minute % span] += count
    return counts
