"""The commands `delayline calendar ...`: days off."""
# ruff: noqa: PLC0415 - each command imports what it needs when it runs, see `jobs.cli`

from typing import Annotated

import typer

from jobs.commands.jsonform import json_line
from jobs.commands.options import AsJson, Warehouse
from jobs.groups import MESSAGES, App
from jobs.terminal import echo, tell
from pipeline.config.printed import printable

app = App()
calendar = App(help="Days on which nothing recurs: those of the schedules that name a calendar.")
app.add_typer(calendar, name="calendar", rich_help_panel=MESSAGES)
_Name = Annotated[str, typer.Argument(metavar="NAME", help="Its name.")]


@calendar.command("set")
def set_(
    warehouse: Warehouse,
    name: _Name,
    days: Annotated[list[str], typer.Argument(metavar="DAY[=TEXT]...", help="Days, as 2026-12-25=Christmas.")],
    *,
    as_json: AsJson = False,
) -> None:
    """Set a calendar, in the place of the one that has the name."""
    from pipeline.client.subscribing.calendars import set_calendar

    texts = dict(each.partition("=")[::2] for each in days)
    _tell(name, len(set_calendar(warehouse, name, texts)), as_json=as_json)


@calendar.command("list")
def list_(warehouse: Warehouse, *, as_json: AsJson = False) -> None:
    """List the calendars; and rows that are no days, and why."""
    from jobs.commands import calendars as command
    from pipeline.client.subscribing.calendars import calendars

    found = calendars(warehouse)
    for line in map(json_line, command.records(found)) if as_json else command.listed(found):
        echo(line)


@calendar.command()
def show(warehouse: Warehouse, name: _Name, *, as_json: AsJson = False) -> None:
    """Print the days of a calendar."""
    from jobs.commands import calendars as command
    from pipeline.client.subscribing.calendars import calendar as held

    found = held(warehouse, name)
    for line in map(json_line, command.days(name, found)) if as_json else command.described(found):
        echo(line)


@calendar.command("import")
def import_(
    warehouse: Warehouse,
    name: _Name,
    country: Annotated[str, typer.Option("--country", metavar="CODE", help="Whose public holidays: IT, US, DE.")],
    years: Annotated[list[int], typer.Option("--year", min=1, max=9_998, help="Of which year. Repeatable.")],
    region: Annotated[
        str | None, typer.Option("--region", metavar="CODE", help="Of which part of it.", show_default="the whole")
    ] = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Take the public holidays of years into a calendar, by the package `holidays`; its other years stay."""
    from jobs.commands import calendars as command
    from pipeline.client.subscribing.calendars import set_calendar

    taken = command.public_days(country, region, years)
    _tell(name, len(set_calendar(warehouse, name, taken, years=years)), as_json=as_json)


@calendar.command()
def delete(warehouse: Warehouse, name: _Name, *, as_json: AsJson = False) -> None:
    """Delete a calendar. A schedule that names it is not followed until it names another one, or none."""
    from pipeline.client.subscribing.calendars import calendar as held
    from pipeline.client.subscribing.calendars import set_calendar

    held(warehouse, name)
    set_calendar(warehouse, name, ())
    tell(json_line({"calendar": name}) if as_json else printable(f"{name}: deleted"))


def _tell(name: str, count: int, *, as_json: bool) -> None:
    """Say how many days a calendar has."""
    tell(json_line({"calendar": name, "days": count}) if as_json else printable(f"{name}: {count} days"))
