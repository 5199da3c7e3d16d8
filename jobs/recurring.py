"""The commands `delayline schedule ...`: what recurs."""
# ruff: noqa: PLC0415 - each command imports what it needs when it runs, see `jobs.cli`

from datetime import datetime
from enum import StrEnum
from typing import Annotated

import typer

from jobs.commands import options
from jobs.commands.jsonform import json_line
from jobs.commands.options import AsJson
from jobs.groups import MESSAGES, App
from jobs.terminal import echo
from pipeline.config.wallclock import wall_ms

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
    typer.Option(
        "--on-gap", help="What becomes of a local time that clocks skip.", show_default="as the notation says"
    ),
]
_OnFold = Annotated[
    OnFold | None,
    typer.Option("--on-fold", help="What becomes of one that comes twice.", show_default=_AS_NOTATION),
]


@schedule.callback()
def below() -> None:
    """Let the group have its commands."""


@schedule.command()
def preview(  # noqa: PLR0913 - a parameter is an option
    *,
    cron: _Cron = None,
    rrule: _RRule = None,
    every: _Every = None,
    zone: _Zone = "UTC",
    first: _From = None,
    until: _Until = None,
    occurrences: _Occurrences = None,
    jitter: _Jitter = 0,
    day_off: _DayOff = None,
    on_day_off: _OnDayOff = OnDayOff.SKIP,
    on_gap: _OnGap = None,
    on_fold: _OnFold = None,
    after: Annotated[datetime | None, options.time("--after", "What comes after this; else after now")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=10_000, help="So many at most.")] = 10,
    as_json: AsJson = False,
) -> None:
    """Print the next times at which something would come: local time, offset, UTC, and the rule that applied."""
    from jobs.commands import schedules as command
    from pipeline.subscriptions.schedules import Schedule

    row = {
        "name": "preview",
        "topic": "preview",
        "cron": cron,
        "rrule": rrule,
        "every_ms": every,
        "zone": zone,
        "start": first,
        "until": until,
        "limit": occurrences,
        "jitter_ms": jitter,
        "days_off": ",".join(day_off or ()),
        "on_day_off": on_day_off,
        "on_gap": on_gap,
        "on_fold": on_fold,
    }
    after_ms = wall_ms() if after is None else int(after.timestamp() * 1_000)
    found = command.coming(Schedule.of_row(row), after_ms, limit)
    for line in map(json_line, found) if as_json else command.lines(found):
        echo(line)
