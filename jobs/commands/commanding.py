"""What `cancel`, `reschedule`, `shift`, `release`, `undo` and `commands` print, as text or JSON."""

from collections.abc import Iterator, Sequence
from dataclasses import fields

from jobs.commands.jsonform import json_line, record
from jobs.commands.times import spoken
from pipeline.client.commanding.commands import Command
from pipeline.client.commanding.outcomes import Outcome
from pipeline.config.printed import printable
from pipeline.config.spelling import iso_text

_DONE = {
    "cancel": "cancelled",
    "reschedule": "rescheduled",
    "shift": "shifted",
    "release": "released",
    "undo": "taken back",
}


def as_json(found: Command) -> str:
    """A command for scripts."""
    chosen = found.selection
    selection = record(
        count=chosen.count,
        count_by_subscription=chosen.subscriptions,
        first_due=chosen.first_due,
        last_due=chosen.last_due,
        examples=chosen.examples,
    )
    return json_line(
        record(
            command_id=found.command_id,
            kind=found.kind,
            selection=selection,
            first_then=found.first_then,
            last_then=found.last_then,
        )
    )


def outcome_as_json(found: Outcome) -> str:
    """What became of a command, for scripts."""
    same = {each.name: getattr(found, each.name) for each in fields(found)}
    return json_line(record(subscription_names=same.pop("subscriptions"), **same))


def report(topic: str, found: Command, *, dry: bool) -> Iterator[str]:
    """Lines for people: how many, for whom, when they are due, some of them, and how to take it back."""
    chosen, what = found.selection, _DONE[found.kind]
    if not chosen.count:
        yield f"{printable(topic)}: nothing that is pending is meant"
        return
    yield f"{printable(topic)}: {chosen.count:,} {'would be ' if dry else ''}{what}"
    yield from (f"  for {printable(name)}: {count:,}" for name, count in sorted(chosen.subscriptions.items()))
    if chosen.first_due is not None and chosen.last_due is not None:
        yield f"first due {iso_text(chosen.first_due)}, last due {iso_text(chosen.last_due)}"
    if found.first_then is not None and found.last_then is not None:
        yield f"then first due {spoken(found.first_then)}, last due {spoken(found.last_then)}"
    for each in chosen.examples:
        key = "" if each.key is None else f" [{printable(each.key)}]"
        ledger, entry = each.position
        yield f"  {printable(each.subscription)} {ledger}:{entry}{key} due {iso_text(each.due)}"
    if found.command_id is not None:
        yield f"command {found.command_id}"


def listed(found: Sequence[Outcome]) -> Iterator[str]:
    """A line for each command, and what it asked for."""
    if not found:
        yield "No command."
    for each in found:
        at = _at(each)
        when = "" if at is None else f"{iso_text(at)}  "
        by = "" if each.by is None else f" by {printable(each.by)}"
        names = ", ".join(each.subscriptions)
        what = f"of {printable(each.undoes)}" if each.undoes else f"{printable(f'{each.topic}/{names}')}"
        yield f"{when}{printable(each.command_id)}  {printable(each.kind)} {what}{by}"
        yield f"  {each.count:,} named: {', '.join(_figures(each))}"
        texts = (("where", each.asked), ("reason", each.reason))
        yield from (f"  {name}: {printable(text)}" for name, text in texts if text)


def _at(found: Outcome) -> int | None:
    """When the command was given, ms UTC."""
    return None if found.at is None else int(found.at.timestamp() * 1_000)


def _figures(found: Outcome) -> Iterator[str]:
    """What became of it; what is nothing is left out, but for what was applied."""
    yield f"{found.applied:,} applied"
    rest = (("too late", found.too_late), ("undone", found.undone), ("being decided", found.deciding))
    yield from (f"{number:,} {name}" for name, number in rest if number)
