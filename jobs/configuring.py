"""The command `delayline config`: what a start would work with."""
# ruff: noqa: PLC0415 - each command imports what it needs when it runs, see `jobs.cli`

from typing import Annotated

import typer

from jobs.commands import options
from jobs.commands.options import AsJson
from jobs.groups import OPERATE, App
from jobs.terminal import echo

app = App()
config = App(help="The settings of a start.")
app.add_typer(config, name="config", rich_help_panel=OPERATE)


@config.callback()
def below() -> None:
    """Let the group have its one command."""


@config.command()
def show(
    profile: options.Profile = None,
    *,
    stated_settings: options.Set = None,
    metrics_port: options.MetricsPort = None,
    warehouse: Annotated[
        str | None,
        typer.Option(
            "--warehouse",
            "-w",
            envvar="DELAYLINE_WAREHOUSE",
            metavar="DIR",
            parser=options.whole,
            help="Also what a start chooses for this warehouse, and why.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print the settings that a start would have, as a profile, each with the place where it is stated."""
    from jobs.commands import profiles as command
    from jobs.commands.jsonform import json_line

    chosen = command.profile_from(profile, stated_settings or [], metrics_port)
    here = None if warehouse is None else command.place_of(warehouse, chosen)
    found = list(command.shown(chosen, here))
    for line in map(json_line, found) if as_json else command.lines(found):
        echo(line)
