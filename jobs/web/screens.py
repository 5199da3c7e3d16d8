"""What each screen shows: a template, and its values."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, TypeVar

import numpy as np

from jobs.commands import sinks, sources
from jobs.commands.deadletters import topic_of as letters_topic
from jobs.commands.durations import BadText, duration_ms
from jobs.commands.forecast import Asked, look
from jobs.commands.schedules import when
from jobs.commands.times import instant
from jobs.commands.tracing import state_words, step_words
from jobs.commands.values import position
from pipeline.client.clock import clock_of
from pipeline.client.commanding.outcomes import outcomes
from pipeline.client.insight.facts import payloads
from pipeline.client.insight.forecast import together
from pipeline.client.insight.minutecounts import MinuteCounts
from pipeline.client.insight.pending import Backlog
from pipeline.client.insight.pendingrows import pending_rows
from pipeline.client.insight.recurring import SchedulesFollower, plan_of
from pipeline.client.insight.topics import topic_states
from pipeline.client.insight.trace import Trace, trace
from pipeline.client.subscribing.deadletters import DeadLetter, dead_letters
from pipeline.client.subscribing.lines import history
from pipeline.client.subscribing.schedules import state_of
from pipeline.client.subscribing.subscriptions import registered, subscriptions
from pipeline.config.printed import printable
from pipeline.config.settings import MINUTE_MS
from pipeline.config.spelling import iso_text
from pipeline.delta.deltars import instant as sql_time
from pipeline.delta.deltars import open_table, quoted
from pipeline.insight.overview import Overview, OverviewFollower
from pipeline.storage.arrays import python_rows
from pipeline.subscriptions.topicnames import topic_of
from schemas import SUBSCRIPTIONS
from state.units import Ms

_ROWS, _LETTERS, _COUNTED, _COMMANDS, _HISTORIES = 100, 50, 10_000, 50, 20
"""So many messages or subscriptions, letters, commands and histories are shown; so many letters are counted."""
_DIGITS = 12
"""Of a number."""
_LONGEST_SHOWN = 65_536
"""Bytes of a payload."""


@dataclass(frozen=True)
class Site:
    """What all screens know.

    Attributes:
        root: the warehouse.
        follower: says how it stands.
        schedules: says what recurs.
        allow_commands: whether actions are offered.
    """

    root: str
    follower: OverviewFollower
    schedules: SchedulesFollower
    allow_commands: bool


@dataclass(frozen=True)
class Answer:
    """What a screen shows, or where an action leads.

    Attributes:
        template: the file.
        values: what stands in it.
        then: another page of ours; None: this is it.
    """

    template: str
    values: Mapping[str, Any] = field(default_factory=dict)
    then: str | None = None


Query = Mapping[str, str]
T = TypeVar("T")
Screen = Callable[[Site, Query], Answer]


def overview(site: Site, _query: Query) -> Answer:
    """How the warehouse stands."""
    found = _seen(site)
    return Answer("overview.html", {"title": "Overview", "live": True, "seen": found})


def foremost(backlogs: Sequence[Backlog], most: int = _ROWS) -> Sequence[Backlog]:
    """So many backlogs: all by topic and name, or of more those with something held or wrong, and the largest."""
    if len(backlogs) <= most:
        return backlogs

    def calm(each: Backlog) -> bool:
        return not (each.held or each.paused or each.guard_error)

    return sorted(backlogs, key=lambda each: (calm(each), -each.count))[:most]


def subscriptions_(site: Site, query: Query) -> Answer:
    """Subscriptions whose topic or name has some text in it, so many on a page."""
    found, part = _seen(site), query.get("part", "").strip()
    backlogs = {(each.topic, each.subscription): each for each in found.pending.backlogs}
    lines = [each for each in found.standings if part in each.line.topic or part in each.line.name]
    pages = max(1, -(-len(lines) // _ROWS))
    page = min(whole(query, "page", 1, (1, 1_000_000)), pages)
    rows = [(each, backlogs.get(each.line.named)) for each in lines[(page - 1) * _ROWS : page * _ROWS]]
    values = {"rows": rows, "seen": found, "part": part, "count": len(lines), "page": page, "pages": pages}
    return Answer("subscriptions.html", {"title": "Subscriptions", "live": True, **values})


def subscription(site: Site, query: Query) -> Answer:
    """One subscription: how it stands, what holds for it, and what held before."""
    name = query.get("topic", ""), query.get("subscription", "")
    line, found = registered(site.root, *name), _seen(site)
    backlog = next((each for each in found.pending.backlogs if (each.topic, each.subscription) == name), None)
    standing = next((each for each in found.standings if each.line.named == name), None)
    held = [(row["start"], row["policies"]) for row in history(open_table(site.root, SUBSCRIPTIONS), name)]
    values = {"line": line, "backlog": backlog, "standing": standing, "held": held[::-1]}
    return Answer("subscription.html", {"title": "Subscription", "live": True, **values})


def schedules(site: Site, query: Query) -> Answer:
    """What recurs, whose name or topic has some text in it: those that are not followed first."""
    view, part = site.schedules.look(), query.get("part", "").strip()
    named = [each for each in view.rows if part in each.name or (each.schedule and part in each.schedule.topic)]
    rows = sorted(named, key=lambda each: each.error is None)
    pages = max(1, -(-len(rows) // _ROWS))
    page = min(whole(query, "page", 1, (1, 1_000_000)), pages)
    now = Ms(clock_of(site.root).wall())
    states = [state_of(each, now) for each in rows[(page - 1) * _ROWS : page * _ROWS]]
    shown = [(each, each.schedule and when(each.schedule)) for each in states]
    values: dict[str, Any] = {"rows": shown, "plan": plan_of(site.root), "part": part}
    values |= {"count": len(rows), "total": len(view.rows), "page": page, "pages": pages}
    return Answer("schedules.html", {"title": "Schedules", "live": True, **values})


def messages(site: Site, query: Query) -> Answer:
    """What waits, by topic, subscription, key, condition and due time."""
    topic, name = query.get("topic") or None, query.get("subscription") or None
    where = condition(query)
    cut = _cut(site, topic, name) if where == "true" else None
    near = where if cut is None else f"due_time < {sql_time(cut)}"
    rows = python_rows(pending_rows(site.root, topic, name, where=near, limit=_ROWS + 1))
    if cut is not None and len(rows) <= _ROWS:
        # Some of what was counted has come meanwhile.
        rows = python_rows(pending_rows(site.root, topic, name, where=where, limit=_ROWS + 1))
    values: dict[str, Any] = {"rows": rows[:_ROWS], "more": len(rows) > _ROWS, "where": where, "asked": _asked(query)}
    values["topics"] = sorted({each.topic for each in subscriptions(site.root)})
    return Answer("messages.html", {"title": "Messages", "live": False, **values})


def _cut(site: Site, topic: str | None, name: str | None) -> int | None:
    """A time, ms UTC, before which more is due than is shown; None: there is not so much.

    Without it the positions of all that waits would be held to find those that are due first.
    """
    whose = (each for each in _seen(site).pending.backlogs if name in (None, each.subscription))
    mine = [each.minutes for each in whose if topic in (None, each.topic, topic_of(each.topic))]
    minutes = MinuteCounts.together(mine)
    enough = minutes.starts[np.cumsum(minutes.counts) > _ROWS]
    return int(enough[0]) + MINUTE_MS if len(enough) else None


def condition(query: Query) -> str:
    """The filter of a page of messages as a condition of SQL.

    Raises:
        BadText: a time is not one.
    """
    parts = []
    if key := query.get("key"):
        parts.append(f"message_key = {quoted(key)}")
    for field_, sign in (("from", ">="), ("until", "<")):
        if text := query.get(field_, "").strip():
            ms = int(instant(text).timestamp() * 1_000)
            parts.append(f"due_time {sign} {sql_time(ms)}")
    if where := query.get("where", "").strip():
        parts.append(f"({where})" if parts else where)
    return " AND ".join(parts) or "true"


def message(site: Site, query: Query) -> Answer:
    """The histories of a message by its position, or of those with a key."""
    topic = query.get("topic", "")
    if query.get("position"):
        place = position(query["position"])
        found = trace(site.root, topic, position=(place.ledger, place.entry))
    elif "key" in query:
        found = trace(site.root, topic, key=query["key"], limit=_HISTORIES)
    else:
        raise BadText(topic, "a topic with a position or a key")
    histories = [(each, list(map(state_words, each.states)), _steps(each)) for each in reversed(found)]
    form = query.get("payload")
    shown = {} if form is None else {each.sent.position: _payload(site.root, each, form) for each in found}
    values = {"topic": topic, "histories": histories, "payloads": shown, "asked": _asked(query), "form": form}
    return Answer("message.html", {"title": "Message", "live": True, **values})


def commands(site: Site, _query: Query) -> Answer:
    """What was commanded, by whom and why, and what became of it."""
    found = outcomes(site.root, _COMMANDS)
    undone = {each.undoes for each in found}
    return Answer("commands.html", {"title": "Commands", "live": True, "found": found, "undone": undone})


def letters(site: Site, _query: Query) -> Answer:
    """The dead letters of each subscription that makes some."""
    found = []
    for line in subscriptions(site.root):
        if line.policies.max_redeliveries is not None:
            topic = letters_topic(site.root, *line.named)
            count, some = 0, list[tuple[DeadLetter, int]]()
            for each in islice(dead_letters(site.root, topic, origin=line.named), _COUNTED):
                count += 1
                if count <= _LETTERS:
                    some.append((replace(each, payload=b""), len(each.payload or b"")))
            if some:
                found.append((line, topic, count, count == _COUNTED, some))
    return Answer("letters.html", {"title": "Dead letters", "live": False, "found": found})


def forecast(site: Site, query: Query) -> Answer:
    """What will be due, come and wait, under what is set now and what if."""
    asked = Asked(
        hours=whole(query, "hours", 24, (1, 24 * 366)),
        until=None,
        late_than=duration_ms(query.get("late_than") or "5s"),
        at=instant(query["at"]) if query.get("at") else None,
        max_rate=whole(query, "max_rate", None, (1, 10_000_000)),
        pause=duration_ms(query["pause"]) if query.get("pause") else None,
        outage=duration_ms(query["outage"]) if query.get("outage") else None,
        add=None,
    )
    found = look(site.root, query.get("topic") or None, query.get("subscription") or None, asked)
    total = together(found.subscriptions) if found.subscriptions else None
    names = ("topic", "subscription", "hours", "late_than", "at", "max_rate", "pause", "outage")
    values = {"found": found, "total": total, "asked": {name: query.get(name, "") for name in names}}
    return Answer("forecast.html", {"title": "Forecast", "live": False, **values})


def whole(query: Query, name: str, usual: T, span: tuple[int, int]) -> int | T:
    """A whole number of a form.

    Raises:
        BadText: it is none, or not within the span.
    """
    text = query.get(name, "").strip()
    if not text:
        return usual
    if not text.isdecimal() or len(text) > _DIGITS or not span[0] <= int(text) <= span[1]:
        raise BadText(text, f"a whole number in {span[0]}..{span[1]:,}")
    return int(text)


def system(site: Site, _query: Query) -> Answer:
    """The job, topics, tables, sinks and sources, and all that the doctor says."""
    found = _seen(site)
    values: dict[str, Any] = {"seen": found, "topics": topic_states(site.root, found.pending.backlogs)}
    values |= {"sinks": list(sinks.noted(site.root)), "sources": sources.noted(site.root)}
    return Answer("system.html", {"title": "System", "live": True, **values})


SCREENS: dict[str, Screen] = {
    "/": overview,
    "/subscriptions": subscriptions_,
    "/subscription": subscription,
    "/schedules": schedules,
    "/messages": messages,
    "/message": message,
    "/commands": commands,
    "/dead-letters": letters,
    "/forecast": forecast,
    "/system": system,
}


def _seen(site: Site) -> Overview:
    """How the warehouse stands now."""
    return site.follower.look(clock_of(site.root).wall())


def _asked(query: Query) -> dict[str, str]:
    """The fields of a form as they were filled in."""
    names = ("topic", "subscription", "key", "from", "until", "where", "position")
    return {name: query.get(name, "") for name in names}


def _steps(found: Trace) -> list[tuple[str, str, str]]:
    """When, for whom, and what happened."""
    return [
        ("" if each.at is None else iso_text(each.at), each.subscription or "", _with_count(each))
        for each in found.steps
    ]


def _with_count(step: Any) -> str:  # noqa: ANN401 - a step
    again = f", redelivery {step.redelivery_count}" if step.redelivery_count else ""
    return f"{step_words(step.what, step.details)}{again}"


def _payload(root: str, found: Trace, form: str) -> str:
    """The payload of a message for people, as `text`, `json` or `hex`."""
    if found.sent.position is None:
        return "It waits in the inbox; its payload is told when the job has taken it."
    kept = payloads(root, found.topic, [found.sent.position])
    return formed(kept[found.sent.position], form) if kept else "No table keeps it any more."


def formed(payload: bytes | None, form: str) -> str:
    """Bytes for people: `text`, `json`, `hex`; anything else is base64."""
    if payload is None:
        return "NULL: it has no payload."
    some = payload[:_LONGEST_SHOWN]
    rest = f"\n... and {len(payload) - len(some):,} bytes more" if len(payload) > len(some) else ""
    match form:
        case "hex":
            return some.hex(" ", -4) + rest
        case "json":
            try:
                text = json.dumps(json.loads(payload), ensure_ascii=False, indent=2)
            except (ValueError, RecursionError):
                return "It is no JSON."
            more = "" if len(text) <= _LONGEST_SHOWN else f"\n... and {len(text) - _LONGEST_SHOWN:,} characters more"
            return _lines(text[:_LONGEST_SHOWN] + more)
        case "text":
            return _lines(some.decode(errors="backslashreplace") + rest)
        case _:
            return base64.b64encode(some).decode() + rest


def _lines(text: str) -> str:
    """A text with its line ends, without what a browser or a terminal would follow."""
    return "\n".join(map(printable, text.splitlines()))
