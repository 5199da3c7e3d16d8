"""The commands `delayline schedule ...`: what recurs."""
# ruff: noqa: PLC0415 - each command imports what it needs when it runs, see `jobs.cli`

from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from jobs.commands import options
from jobs.commands.jsonform import json_line
from jobs.commands.options import AsJson, Topic, Warehouse
from jobs.groups import MESSAGES, App
from jobs.terminal import echo, tell
from pipeline.config.printed import printable
from pipeline.config.wallclock import wall_ms

if TYPE_CHECKING:
    from pipeline.subscriptions.schedules import Schedule

app = App()
schedule = App(help="Messages that recur: cron, a rule of RFC 5545, or a span, in a time zone.")
app.add_typer(schedule, name="schedule", rich_help_panel=MESSAGES)


class OnDayOff(StrEnum):
    """What becomes of what falls on a day off."""

    SKIP = "skip"
    NEXT = "next"
    PREVIOUS = "previous"


class OnGap(StrEnum):
    """What becomes of a local time that clocks skip."""

    AFTER = "after"
    SKIP = "skip"


class OnFold(StrEnum):
    """What becomes of a local time that comes twice."""

    FIRST = "first"
    BOTH = "both"


_AS_NOTATION = "as the notation says"
_Cron = Annotated[
    str | None,
    typer.Option("--cron", metavar="FIELDS", help="Five fields: '0 9 * * 1-5'; or six, the second first."),
]
_RRule = Annotated[
    str | None, typer.Option("--rrule", metavar="RULE", help="Or a rule: 'FREQ=MONTHLY;BYDAY=-1FR'; it needs --from.")
]
_Every = Annotated[int | None, options.duration("--every", "Or a span of real time, from a second on")]
_Zone = Annotated[str, typer.Option("--zone", metavar="ZONE", help="Whose local times they are: Europe/Rome.")]
_From = Annotated[datetime | None, options.time("--from", "Nothing comes before; a rule begins then")]
_Until = Annotated[datetime | None, options.time("--until", "Nothing comes after")]
_Occurrences = Annotated[
    int | None, typer.Option("--occurrences", min=1, help="So many come, counted from --from; then it ends.")
]
_Jitter = Annotated[int, options.duration("--jitter", "Each is due up to so much later", "none")]
_DayOff = Annotated[
    list[str] | None, typer.Option("--day-off", metavar="DATE", help="A local day, as 2026-12-25. Repeatable.")
]
_OnDayOff = Annotated[OnDayOff, typer.Option("--on-day-off", help="What becomes of what falls on one.")]
_OnGap = Annotated[
    OnGap | None,
    typer.Option("--on-gap", help="What becomes of a local time that clocks skip.", show_default=_AS_NOTATION),
]
_OnFold = Annotated[
    OnFold | None,
    typer.Option("--on-fold", help="What becomes of one that comes twice.", show_default=_AS_NOTATION),
]


_Name = Annotated[str, typer.Argument(metavar="NAME", help="Its name.")]


class CatchUp(StrEnum):
    """What becomes of what was missed."""

    ALL = "all"
    LATEST = "latest"
    NONE = "none"


@schedule.command("set")
def set_(  # noqa: PLR0913 - a parameter is an option
    warehouse: Warehouse,
    name: _Name,
    topic: Topic,
    payload: Annotated[str, typer.Argument(metavar="[PAYLOAD]", help="{occurrence} in it is the time.")] = "",
    *,
    cron: _Cron = None,
    rrule: _RRule = None,
    every_ms: _Every = None,
    zone: _Zone = "UTC",
    start: _From = None,
    until: _Until = None,
    limit: _Occurrences = None,
    jitter_ms: _Jitter = 0,
    days_off: _DayOff = None,
    on_day_off: _OnDayOff = OnDayOff.SKIP,
    on_gap: _OnGap = None,
    on_fold: _OnFold = None,
    catch_up: Annotated[
        CatchUp, typer.Option("--catch-up", help="What becomes of what was missed while no job ran.")
    ] = CatchUp.LATEST,
    catch_up_within_ms: Annotated[
        int, options.duration("--catch-up-within", "What was missed longer ago does not come", "1d")
    ] = 86_400_000,
    message_key: Annotated[str | None, typer.Option("--key", "-k", help="The key of the messages.")] = None,
    properties: Annotated[
        list[str] | None, typer.Option("--property", metavar="NAME=VALUE", help="A property of them. Repeatable.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Set a schedule, in the place of the one that has the name. What that has planned is taken back."""
    from jobs.commands.schedules import row_of
    from jobs.commands.values import pairs
    from pipeline.client.subscribing.schedules import set_schedule

    row = row_of(
        {
            "cron": cron,
            "rrule": rrule,
            "every_ms": every_ms,
            "zone": zone,
            "start": start,
            "until": until,
            "limit": limit,
            "jitter_ms": jitter_ms,
            "on_day_off": on_day_off.value,
            "payload": payload,
            "on_gap": on_gap and on_gap.value,
            "on_fold": on_fold and on_fold.value,
            "catch_up": catch_up.value,
            "catch_up_within_ms": catch_up_within_ms,
            "message_key": message_key,
            "properties": pairs(properties or []),
        }
    )
    made = set_schedule(warehouse, name, topic, **{**row, "days_off": days_off or []})
    _tell(made, f"{name}: set", as_json=as_json)


@schedule.command("list")
def list_(warehouse: Warehouse, *, as_json: AsJson = False) -> None:
    """List the schedules, with when the next message of each is due; and those that are not followed, and why."""
    from jobs.commands import schedules as command
    from pipeline.client.subscribing.schedules import schedules

    found = schedules(warehouse)
    for line in map(json_line, command.states(found)) if as_json else command.listed(found):
        echo(line)


@schedule.command()
def show(warehouse: Warehouse, name: _Name, *, as_json: AsJson = False) -> None:
    """Print what a schedule says."""
    from jobs.commands import schedules as command

    found = _held(warehouse, name)
    for line in [json_line(command.as_record(name, found))] if as_json else command.described(found):
        echo(line)


@schedule.command()
def pause(warehouse: Warehouse, name: _Name, *, as_json: AsJson = False) -> None:
    """Let a schedule send nothing until it is resumed. What it has planned is taken back."""
    from pipeline.client.subscribing.schedules import pause_schedule

    _tell(pause_schedule(warehouse, name), f"{name}: paused", as_json=as_json)


@schedule.command()
def resume(warehouse: Warehouse, name: _Name, *, as_json: AsJson = False) -> None:
    """Let a schedule go on. What would have come meanwhile does not."""
    from pipeline.client.subscribing.schedules import resume_schedule

    _tell(resume_schedule(warehouse, name), f"{name}: resumed", as_json=as_json)


@schedule.command()
def delete(warehouse: Warehouse, name: _Name, *, as_json: AsJson = False) -> None:
    """Delete a schedule. What it has planned is taken back."""
    from pipeline.client.subscribing.schedules import delete_schedule

    delete_schedule(warehouse, name)
    tell(json_line({"schedule": name}) if as_json else printable(f"{name}: deleted"))


@schedule.command("run-now")
def run_now(warehouse: Warehouse, name: _Name, *, as_json: AsJson = False) -> None:
    """Send the message of a schedule now, beside those that it sends."""
    from pipeline.client.subscribing.schedules import run_schedule_now

    sent = run_schedule_now(warehouse, name)
    tell(json_line({"schedule": name, "occurrence": sent}) if as_json else printable(f"{name}: sent, as of {sent}"))


@schedule.command()
def preview(  # noqa: PLR0913 - a parameter is an option
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="A schedule of the warehouse, instead of the options.")
    ] = None,
    warehouse: Annotated[
        str | None,
        typer.Option(
            "--warehouse",
            "-w",
            envvar="DELAYLINE_WAREHOUSE",
            metavar="DIR",
            parser=options.whole,
            help="With NAME: where it is.",
        ),
    ] = None,
    *,
    cron: _Cron = None,
    rrule: _RRule = None,
    every_ms: _Every = None,
    zone: _Zone = "UTC",
    start: _From = None,
    until: _Until = None,
    occurrences: _Occurrences = None,
    jitter_ms: _Jitter = 0,
    days_off: _DayOff = None,
    on_day_off: _OnDayOff = OnDayOff.SKIP,
    on_gap: _OnGap = None,
    on_fold: _OnFold = None,
    after: Annotated[datetime | None, options.time("--after", "What comes after this; else after now")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=10_000, help="So many at most.")] = 10,
    as_json: AsJson = False,
) -> None:
    """Print the next times at which something comes: local time, offset, UTC, and the rule that applied."""
    from jobs.commands import schedules as command
    from pipeline.subscriptions.schedules import Schedule

    row = {
        "name": "preview",
        "topic": "preview",
        "cron": cron,
        "rrule": rrule,
        "every_ms": every_ms,
        "zone": zone,
        "start": start,
        "until": until,
        "limit": occurrences,
        "jitter_ms": jitter_ms,
        "days_off": days_off,
        "on_day_off": on_day_off.value,
        "on_gap": on_gap and on_gap.value,
        "on_fold": on_fold and on_fold.value,
    }
    if name is not None and warehouse is None:
        raise typer.BadParameter("NAME is a schedule of a warehouse: say --warehouse, too")
    named = None if name is None or warehouse is None else _held(warehouse, name)
    after_ms = wall_ms() if after is None else int(after.timestamp() * 1_000)
    found = command.coming(named or Schedule.of_row(command.row_of(row)), after_ms, limit)
    for line in map(json_line, found) if as_json else command.lines(found):
        echo(line)


def _held(warehouse: str, name: str) -> "Schedule":
    """A schedule of a warehouse."""
    from pipeline.client.subscribing.schedules import schedule as held

    return held(warehouse, name)


def _tell(made: "Schedule", line: str, *, as_json: bool) -> None:
    from jobs.commands.schedules import as_record

    tell(json_line(as_record(made.name, made)) if as_json else printable(line))
