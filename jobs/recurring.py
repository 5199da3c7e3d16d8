"""The commands `delayline schedule ...`: what recurs."""
# ruff: noqa: PLC0415 - each command imports what it needs when it runs, see `jobs.cli`

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jobs.commands import options
from jobs.commands.jsonform import json_line
from jobs.commands.options import AsJson, Topic, Warehouse
from jobs.groups import MESSAGES, App
from jobs.terminal import echo, tell
from pipeline.config.printed import printable
from pipeline.config.wallclock import wall_ms
from pipeline.subscriptions.schedules import GAPS, CatchUp
from state.localtime import Fold
from state.recurrence import DayOff

if TYPE_CHECKING:
    from pipeline.subscriptions.schedules import Schedule

app = App()
schedule = App(help="Messages that recur: cron, a rule of RFC 5545, or a span, in a time zone.")
app.add_typer(schedule, name="schedule", rich_help_panel=MESSAGES)


_AS_NOTATION = "as the notation says"
_WHEN: dict[str, Any] = {
    "cron": Annotated[
        str | None,
        typer.Option("--cron", metavar="FIELDS", help="Five fields: '0 9 * * 1-5'; or six, the second first."),
    ],
    "rrule": Annotated[
        str | None,
        typer.Option("--rrule", metavar="RULE", help="Or a rule: 'FREQ=MONTHLY;BYDAY=-1FR'; it needs --from."),
    ],
    "every_ms": Annotated[int | None, options.duration("--every", "Or a span of real time, from a second on")],
    "zone": Annotated[
        str | None,
        typer.Option("--zone", metavar="ZONE", help="Whose local times they are: Europe/Rome.", show_default="UTC"),
    ],
    "start": Annotated[datetime | None, options.time("--from", "Nothing comes before; a rule begins then")],
    "until": Annotated[datetime | None, options.time("--until", "Nothing comes after")],
    "limit": Annotated[
        int | None, typer.Option("--occurrences", min=1, help="So many come, counted from --from; then it ends.")
    ],
    "jitter_ms": Annotated[int | None, options.duration("--jitter", "Each is due up to so much later", "none")],
    "days_off": Annotated[
        list[str] | None, typer.Option("--day-off", metavar="DATE", help="A local day, as 2026-12-25. Repeatable.")
    ],
    "calendar": Annotated[
        str | None, typer.Option("--calendar", metavar="NAME", help="The days of a calendar are off, too.")
    ],
    "on_day_off": options.choice("--on-day-off", "What becomes of what falls on one.", DayOff, DayOff.SKIP.value),
    "on_gap": options.choice("--on-gap", "What becomes of a local time that clocks skip.", GAPS, _AS_NOTATION),
    "on_fold": options.choice("--on-fold", "What becomes of one that comes twice.", Fold, _AS_NOTATION),
}
"""Options that say when something recurs, by columns of the table."""
_WHAT: dict[str, Any] = {
    "catch_up": options.choice(
        "--catch-up", "What becomes of what was missed while no job ran.", CatchUp, CatchUp.LATEST.value
    ),
    "catch_up_within_ms": Annotated[
        int | None, options.duration("--catch-up-within", "What was missed longer ago does not come", "1d")
    ],
    "message_key": Annotated[str | None, typer.Option("--key", "-k", help="The key of the messages.")],
    "properties": Annotated[
        list[str] | None, typer.Option("--property", metavar="NAME=VALUE", help="A property of them. Repeatable.")
    ],
}
"""Options that say what comes then."""
_Name = Annotated[str, typer.Argument(metavar="NAME", help="Its name.")]


@schedule.command("set")
@options.with_options(_WHEN | _WHAT)
def set_(
    warehouse: Warehouse,
    name: _Name,
    topic: Topic,
    payload: Annotated[str, typer.Argument(metavar="[PAYLOAD]", help="{occurrence} in it is the time.")] = "",
    *,
    as_json: AsJson = False,
    **values: Any,  # noqa: ANN401 - of columns
) -> None:
    """Set a schedule, in the place of the one that has the name. What that has planned is taken back."""
    from jobs.commands.values import pairs
    from pipeline.client.subscribing.schedules import set_schedule

    how = {each: value for each, value in values.items() if value is not None}
    how["properties"] = pairs(how.get("properties", []))
    made = set_schedule(warehouse, name, topic, payload=payload, **how)
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
@options.with_options(_WHEN)
def preview(
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
            help="With NAME or --calendar: where it is.",
        ),
    ] = None,
    *,
    after: Annotated[datetime | None, options.time("--after", "What comes after this; else after now")] = None,
    most: Annotated[int, typer.Option("--limit", "-n", min=1, max=10_000, help="So many at most.")] = 10,
    as_json: AsJson = False,
    **values: Any,  # noqa: ANN401 - of columns
) -> None:
    """Print the next times at which something comes: local time, offset, UTC, and the rule that applied."""
    from jobs.commands import schedules as command

    if warehouse is None and (name is not None or values["calendar"] is not None):
        raise typer.BadParameter("NAME and --calendar are of a warehouse: say --warehouse, too")
    named = None if name is None or warehouse is None else _held(warehouse, name)
    after_ms = wall_ms() if after is None else int(after.timestamp() * 1_000)
    found = command.coming(named or command.stated(warehouse, values), after_ms, most)
    for line in map(json_line, found) if as_json else command.lines(found):
        echo(line)


def _held(warehouse: str, name: str) -> "Schedule":
    """A schedule of a warehouse."""
    from pipeline.client.subscribing.schedules import schedule as held

    return held(warehouse, name)


def _tell(made: "Schedule", line: str, *, as_json: bool) -> None:
    from jobs.commands.schedules import as_record

    tell(json_line(as_record(made.name, made)) if as_json else printable(line))
