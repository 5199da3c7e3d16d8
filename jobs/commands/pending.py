"""`delayline pending`: counts, next due times and a histogram, as text or JSON."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping

from jobs.commands.values import UNITS_MS, iso, printable, spell
from pipeline.client.pending import Backlog, Pending

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
    if found.in_inbox:
        yield f"{found.in_inbox:,} in the inbox, not yet taken by ingest"


def as_json(found: Pending) -> str:
    """The same for scripts; times in ms UTC, `due_by_minute` as [minute, count] pairs."""
    pending = [
        {
            "topic": each.topic,
            "subscription": each.subscription,
            "count": each.count,
            "next_due_ms": each.next_due,
            "due_by_minute": sorted(each.minutes.items()),
        }
        for each in found.backlogs
    ]
    return json.dumps({"pending": pending, "in_inbox": found.in_inbox, "versions": dict(found.versions)})


def _line(backlog: Backlog, now_ms: int) -> str:
    name = printable(f"{backlog.topic}/{backlog.subscription}")
    if backlog.next_due is None:
        return f"{name}  nothing pending"
    left = backlog.next_due - now_ms
    when = f"in {spell(left)}" if left >= 0 else f"{spell(left)} ago"
    return f"{name}  {backlog.count:,} pending, next due {iso(backlog.next_due)} ({when})"


def _bars(minutes: Mapping[int, int]) -> Iterator[str]:
    """A bar for each span of due time that holds something; spans as short as the number of bars allows."""
    spans = (_spans(minutes, span) for span in _SPANS_MS)
    counts = next((each for each in spans if len(each) <= _BARS), None) or _spans(minutes, _SPANS_MS[-1])
    most = max(counts.values(), default=1)
    for start in sorted(counts):
        bar = "█" * max(1, round(_WIDTH * counts[start] / most))
        yield f"  {iso(start)[:16]}  {bar} {counts[start]:,}"


def _spans(minutes: Mapping[int, int], span: int) -> Counter[int]:
    counts = Counter[int]()
    for minute, count in minutes.items():
        counts[minute - minute % span] += count
    return counts
