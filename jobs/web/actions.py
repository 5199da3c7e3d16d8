"""What forms do. What names messages, or drops some, is looked at first: the number, the times, examples, a reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import pyarrow as pa

from jobs.commands.deadletters import topic_of
from jobs.commands.durations import BadText, span_ms
from jobs.commands.times import instant
from jobs.commands.values import position
from jobs.web.screens import Answer, Site, whole
from pipeline.client.commanding.commands import Command, cancel, release_now, reschedule, shift, undo
from pipeline.client.insight.prospect import prospect
from pipeline.client.message import MessageId
from pipeline.client.subscribing.deadletters import put_back
from pipeline.client.subscribing.policysetting import set_policy
from pipeline.client.subscribing.schedules import pause_schedule, resume_schedule, run_schedule_now
from pipeline.client.subscribing.schedules import schedule as schedule_of
from pipeline.client.subscribing.seeking import begin_anew
from pipeline.config.spelling import iso_text

Form = Mapping[str, str]
Action = Callable[[Site, Form], Answer]
_COMMANDS: dict[str, Callable[..., Command]] = {
    "cancel": cancel,
    "release": release_now,
    "reschedule": reschedule,
    "shift": shift,
}
_LONGEST = 1_000
"""Characters of who and why."""


def command(site: Site, form: Form) -> Answer:
    """Say what a command would do; with `sure` do it."""
    kind, topic, name = form.get("kind", ""), form.get("topic", ""), form.get("subscription") or None
    if kind not in _COMMANDS:
        raise BadText(kind, " or ".join(_COMMANDS))
    how = _named(form) | _then(kind, form)
    if form.get("sure") != "yes":
        found = _COMMANDS[kind](site.root, topic, name, dry_run=True, **how)
        # Who confirms it means the time that was shown, and not in two hours from then on.
        stated = {**form, "to": iso_text(how["to"])} if "to" in how else form
        return _preview(stated, kind, topic, found)
    by, reason = _who(form)
    _COMMANDS[kind](site.root, topic, name, **how, by=by, reason=reason)
    return Answer("", then="/commands")


def take_back(site: Site, form: Form) -> Answer:
    """Say what taking a command back would bring; with `sure` do it."""
    topic, command_id = form.get("topic", ""), form.get("command_id", "")
    if form.get("sure") != "yes":
        return _preview(form, "undo", topic, undo(site.root, command_id, dry_run=True))
    by, reason = _who(form)
    undo(site.root, command_id, by=by, reason=reason)
    return Answer("", then="/commands")


def policy(site: Site, form: Form) -> Answer:
    """Pause, resume, or give a rate."""
    name = form.get("topic", ""), form.get("subscription", "")
    match form.get("set"):
        case "pause" | "resume" as which:
            set_policy(site.root, *name, paused=which == "pause")
        case "rate":
            set_policy(site.root, *name, max_rate=whole(form, "rate", None, (1, 10_000_000)))
        case other:
            raise BadText(other or "", "pause, resume or rate")
    return Answer("", then="/subscriptions")


def schedule(site: Site, form: Form) -> Answer:
    """Pause or resume what recurs. Say what it would send now; with `sure` send it."""
    name = form.get("schedule", "")
    match form.get("set"):
        case "pause":
            pause_schedule(site.root, name)
        case "resume":
            resume_schedule(site.root, name)
        case "run-now" if form.get("sure") == "yes":
            run_schedule_now(site.root, name)
        case "run-now":
            found = schedule_of(site.root, name)
            return Answer("runnow.html", {"title": "Look first", "form": form, "found": found})
        case other:
            raise BadText(other or "", "pause, resume or run-now")
    return Answer("", then="/schedules")


def begin(site: Site, form: Form) -> Answer:
    """Say what a seek, or a clear, would drop and bring; with `sure` do it."""
    name = form.get("topic", ""), form.get("subscription", "")
    where = _place(form, name[0])
    if form.get("sure") != "yes":
        found = prospect(site.root, *name, where)
        stated = {**form, "time": iso_text(where)} if isinstance(where, int) else form
        return Answer("seek.html", {"title": "Begin anew", "form": stated, "found": found, "name": name})
    begin_anew(site.root, *name, where)
    return Answer("", then="/subscriptions")


def letters(site: Site, form: Form) -> Answer:
    """Put dead letters back, the first ones."""
    name, text = (form.get("topic", ""), form.get("subscription", "")), form.get("limit", "").strip()
    most = None if text == "all" else whole({"limit": text}, "limit", 0, (1, 1_000_000_000))
    if most == 0:
        raise BadText(text, "how many, from 1 on; or all")
    for _ in put_back(site.root, topic_of(site.root, *name), name, most):
        pass
    return Answer("", then="/dead-letters")


ACTIONS: dict[str, Action] = {
    "/command": command,
    "/undo": take_back,
    "/policy": policy,
    "/schedule": schedule,
    "/seek": begin,
    "/put-back": letters,
}


def _named(form: Form) -> dict[str, Any]:
    """What a command names: positions that were chosen, or all that meets the condition."""
    places = [each for each in form.get("positions", "").split() if each]
    if not places:
        return {"where": form.get("where") or "true"}
    pairs = [position(each) for each in places]
    columns = {"ledger_id": [each.ledger for each in pairs], "entry_id": [each.entry for each in pairs]}
    return {"positions": pa.table({name: pa.array(each, pa.int64()) for name, each in columns.items()})}


def _then(kind: str, form: Form) -> dict[str, Any]:
    """The other time that a command gives."""
    match kind:
        case "reschedule":
            return {"to": instant(form.get("to", ""))}
        case "shift":
            return {"span": timedelta(milliseconds=span_ms(form.get("span", "")))}
        case _:
            return {}


def _who(form: Form) -> tuple[str, str]:
    """Who commands it, and why.

    Raises:
        BadText: one of them is missing.
    """
    found = {name: form.get(name, "").strip()[:_LONGEST] for name in ("by", "reason")}
    for name, text in found.items():
        if not text:
            raise BadText(text, f"a text: {'who does it' if name == 'by' else 'why'} is kept with the command")
    return found["by"], found["reason"]


def _preview(form: Form, kind: str, topic: str, found: Command) -> Answer:
    values = {"form": form, "kind": kind, "topic": topic, "found": found, "chosen": found.selection}
    return Answer("preview.html", {"title": "Look first", **values})


def _place(form: Form, topic: str) -> MessageId | int:
    """Where a subscription begins anew."""
    match form.get("to"):
        case "latest":
            return MessageId.latest
        case "earliest":
            return MessageId.earliest
        case "time":
            return int(instant(form.get("time", "")).timestamp() * 1_000)
        case "position":
            place = position(form.get("position", ""))
            return MessageId.of(topic, place.ledger, place.entry)
        case other:
            raise BadText(other or "", "latest, earliest, time or position")
