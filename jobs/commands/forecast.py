"""`delayline forecast`: what will be due, come and wait, as text, JSON or picture."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from jobs.commands.campaign import campaign
from jobs.commands.columns import in_columns
from jobs.commands.durations import UNITS_MS
from jobs.commands.jsonform import json_line, record
from pipeline.client.insight.departures import Outage, Pause, Rate, WhatIf
from pipeline.client.insight.forecast import MINUTE_MS, NUMBERS, Forecast, SubscriptionForecast, together
from pipeline.client.insight.forecasting import forecast
from pipeline.config.errors import BadValue
from pipeline.config.extras import need
from pipeline.config.printed import printable
from pipeline.config.spelling import iso_text, late_text, spell

_LINES, _PICTURES = 24, (".png", ".svg")
_SPANS = tuple(
    count * UNITS_MS[unit] // MINUTE_MS for unit, count in (("m", 1), ("m", 5), ("m", 15), ("h", 1), ("h", 6))
)
_LONGEST = UNITS_MS["d"] // MINUTE_MS
_HEADS = ("FROM (UTC)", "DUE", "DELIVERED", "EXPIRED", "OVERDUE", "LATE")


@dataclass(frozen=True)
class Asked:
    """What is asked for: for how long, what is late, and what if; durations in ms, None: nothing is asked."""

    hours: int
    until: datetime | None
    late_than: int
    at: datetime | None
    max_rate: int | None
    pause: int | None
    outage: int | None
    add: Path | None

    def events(self, now: int) -> list[WhatIf]:
        """What is to happen."""
        at, found = now if self.at is None else _ms(self.at), list[WhatIf]()
        if self.max_rate is not None:
            found.append(Rate(at, self.max_rate))
        if self.pause is not None:
            found.append(Pause(at, at + self.pause))
        if self.outage is not None:
            found.append(Outage(at, at + self.outage))
        return found


def look(root: str, topic: str | None, subscription: str | None, asked: Asked) -> Forecast:
    """The forecast.

    Raises:
        NoWarehouse: the folder lacks a table.
        BadValue: the campaign cannot be read; or as for `pipeline.client.insight.forecasting.forecast`.
    """
    now = time.time_ns() // 1_000_000
    until = now + asked.hours * UNITS_MS["h"] if asked.until is None else _ms(asked.until)
    added = {} if asked.add is None else campaign(asked.add, topic)
    return forecast(
        root, topic, subscription, until=until, late_than_ms=asked.late_than, what_if=asked.events(now), campaign=added
    )


def _ms(when: datetime) -> int:
    return round(when.timestamp() * 1_000)


def check_picture(path: Path) -> None:
    """See that a picture can be drawn, before anything is counted for it.

    Raises:
        BadValue: its name says no kind of picture.
        ExtraMissing: matplotlib is not installed.
    """
    if path.suffix.lower() not in _PICTURES:
        raise BadValue("picture", str(path), f"a file whose name ends with {' or '.join(_PICTURES)}")
    need("demo", only="matplotlib")


def draw(found: Forecast, path: Path) -> None:
    """Draw what becomes due, comes and waits by minute, over all subscriptions."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - only a picture needs it

    total = together(found.subscriptions) if found.subscriptions else None
    figure = Figure(figsize=(11, 5), layout="constrained")
    above, below = figure.subplots(2, sharex=True)
    if total is not None:
        times = [datetime.fromtimestamp(ms / 1_000, UTC) for ms in total.minutes.tolist()]
        for axes, name, label in (
            (above, "due_count", "due"),
            (above, "delivered", "delivered"),
            (below, "overdue_at_end", "overdue"),
        ):
            axes.plot(times, getattr(total, name), drawstyle="steps-post", label=label)
    for axes in (above, below):
        axes.set_ylabel("messages a minute" if axes is above else "messages")
        axes.set_ylim(bottom=0)
        axes.legend(loc="upper right")
    above.set_title("What will be due, come and wait")
    below.set_xlabel("time, UTC")
    figure.savefig(path, dpi=110)


def report(found: Forecast, *, every_minute: bool = False) -> Iterator[str]:
    """Lines for people: what is to be said of each subscription, then a table over all of them.

    Its lines have spans of time that are as short as they can be with 24 lines; or a minute each, when that is asked
    for. Spans in which nothing happens are left out.
    """
    if not found.subscriptions:
        yield "No active subscription."
        return
    for each in found.subscriptions:
        yield from _said(each, found)
    total = together(found.subscriptions)
    if len(total.is_something):
        yield ""
        yield from _table(total, every_minute=every_minute)
    if found.in_inbox:
        yield f"{found.in_inbox:,} more in the inbox, not yet taken by ingest; they are not in the forecast"


def as_json(found: Forecast) -> Iterator[str]:
    """A line for each subscription and minute in which something happens or waits, then one for each subscription."""
    for each in found.subscriptions:
        for place in each.is_something.tolist():
            numbers: dict[str, int | None] = {name: int(getattr(each, name)[place]) for name in NUMBERS}
            if each.late_ms[place] < 0:
                numbers["late_ms"] = None
            yield json_line(_named(each, minute=int(each.minutes[place]), **numbers))
    for each in found.subscriptions:
        yield json_line(_answers(each))


def _answers(each: SubscriptionForecast) -> dict[str, object]:
    return _named(
        each,
        paused=each.paused,
        closed_until=each.closed_until,
        overdue=each.overdue,
        due_count=int(each.due_count.sum()),
        delivered=int(each.delivered.sum()),
        expired=int(each.expired.sum()),
        overdue_at_end=int(each.overdue_at_end[-1]),
        late_ms=each.latest_ms,
        worst_minute=each.worst_minute,
        gone_at=each.gone_at,
        missed=each.missed,
        missed_at=each.missed_at,
    )


def _named(each: SubscriptionForecast, **values: object) -> dict[str, object]:
    return record(topic=each.topic, subscription=each.subscription, **values)


def _said(each: SubscriptionForecast, found: Forecast) -> Iterator[str]:
    name = printable("/".join(part for part in (each.topic, each.subscription) if part is not None)) or "all"
    now = f"{each.overdue:,} overdue now, " if each.overdue else ""
    set_now = ", paused" if each.paused else f", {each.max_rate:,} a second at most" if each.max_rate else ""
    set_now += "" if each.closed_until is None else f", closed until {iso_text(each.closed_until)}"
    until = iso_text(found.horizon.end)[:16]
    yield f"{name}  {now}{int(each.due_count.sum()):,} more due until {until}{set_now}"
    if each.worst_minute is not None:
        most, last = int(each.overdue_at_end.max()), int(each.overdue_at_end[-1])
        gone = f"{last:,} still are at the end" if each.gone_at is None else f"none is at {iso_text(each.gone_at)}"
        yield f"  most are overdue at the end of {iso_text(each.worst_minute)[:16]}: {most:,}; {gone}"
    if each.missed and each.missed_at is not None:
        latest = "" if each.latest_ms is None else f"; the latest that comes is {spell(each.latest_ms)} late"
        limit = spell(found.horizon.late_than_ms)
        yield f"  {each.missed:,} are later than {limit}, the first at {iso_text(each.missed_at)}{latest}"
    if expired := int(each.expired.sum()):
        yield f"  {expired:,} expire"


def _table(total: SubscriptionForecast, *, every_minute: bool) -> Iterator[str]:
    spans = (span for span in _SPANS if len(_spans(total, span)) <= _LINES)
    span = 1 if every_minute else next(spans, _LONGEST)
    rows = [_row(total, start, end) for start, end in _spans(total, span)]
    unused = {_HEADS.index("EXPIRED")} if not total.expired.any() else set()
    kept = [place for place in range(len(_HEADS)) if place not in unused]
    yield from in_columns([_HEADS[place] for place in kept], [[row[place] for place in kept] for row in rows])


def _spans(total: SubscriptionForecast, span: int) -> list[tuple[int, int]]:
    """Where spans of so many minutes begin and end that hold something; they are those of the clock."""
    shift = int(total.minutes[0]) // MINUTE_MS % span
    starts = np.unique((total.is_something + shift) // span) * span - shift
    return [(max(0, each), min(each + span, len(total.minutes))) for each in starts.tolist()]


def _row(total: SubscriptionForecast, start: int, end: int) -> tuple[str, ...]:
    late = int(total.late_ms[start:end].max())
    sums = {name: f"{int(getattr(total, name)[start:end].sum()):,}" for name in ("due_count", "delivered", "expired")}
    begin, overdue = iso_text(int(total.minutes[start]))[:16], f"{int(total.overdue_at_end[end - 1]):,}"
    return begin, *sums.values(), overdue, "-" if late < 0 else late_text(late)
