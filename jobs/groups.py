"""What all commands have in common: errors as one line with an exit code, and the nearest name of a wrong one."""

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from jobs import interrupts
from jobs.commands.failures import INTERRUPTED, explain
from jobs.terminal import echo, hint
from pipeline.client.exceptions import SubscriptionNotFound
from pipeline.config.printed import print_logs
from pipeline.config.threads import panics_raised

DEBUG = "DELAYLINE_DEBUG"
_MAKING = ("init", "replay")
"""Commands that make a warehouse where none is; so does `run --init`."""
_SERVICES = ("run", "web")
"""Commands that go on until somebody ends them: an interrupt is their end, and no failure."""
_NAMING = ("init", "report", "run", "status", "stop", "top", "web")
"""Commands that say by themselves on which warehouse they work."""
_SENDING = ("pulsar", "send", "subscribe")
"""Commands that name a topic which need not be there."""
OF_ITS_OWN = {
    "consume": "prints messages as they come",
    "receive": "prints messages as they come",
    "send": "sends what it is given as it comes, which may never end",
    "run": "tells how the job stands",
    "top": "shows how the job stands",
    "web": "serves until it is stopped",
    "demo": "starts Spark, and shows how far it is after that",
    "rebuild": "starts Spark, and shows how far it is after that",
    "replay": "starts Spark, and shows how far it is after that",
}
"""Commands of which nothing is shown but what they show themselves, and why. Of all others it is said when they take
longer than two seconds (`jobs.progress`), for they read or write as much as there is."""

PANELS = RUN, MESSAGES, LOOK, CHANGE, OPERATE = "Run", "Produce and consume", "Look", "Change", "Operate"
"""The panels of the help, in this order."""


def _explain(shown: Any, context: Any) -> None:  # noqa: ANN401 - Typer's own types are private
    """Print the help of a command, as wide as the terminal is. What a wrong use is told stays a plain line."""
    from typer.rich_utils import rich_format_help  # noqa: PLC0415 - only help needs it, and it takes a tenth of a second

    rich_format_help(obj=shown, ctx=context, markup_mode="markdown")


class Group(TyperGroup):
    """A group with that help."""

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401, ARG002 - as above
        """Print it."""
        _explain(self, ctx)


class Commands(Group):
    """A group whose commands fail with one line and an exit code, instead of a stack trace."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401 - Typer's own type is private
        """The names of the commands, panel by panel."""
        panels = {name: getattr(each, "rich_help_panel", None) for name, each in self.commands.items()}
        return sorted(super().list_commands(ctx), key=lambda name: PANELS.index(panels[name]))

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 - Typer's own type is private
        """Run a command. With DELAYLINE_DEBUG set, an error keeps its stack trace."""
        print_logs()
        interrupts.is_raised()
        try:
            return self._invoked(ctx)
        except _Interrupted:
            raise typer.Exit(0 if ctx.invoked_subcommand in _SERVICES else INTERRUPTED) from None
        except Exception as error:
            if isinstance(error, typer.Exit | typer.Abort | typer.TyperException | BrokenPipeError):
                raise
            if interrupts.came():
                raise typer.Exit(INTERRUPTED) from None
            if os.environ.get(DEBUG):
                raise
            code, line = explain(error)
            echo(f"delayline: {line}", err=True)
            raise typer.Exit(code) from error

    @panics_raised()
    def _invoked(self, ctx: Any) -> Any:  # noqa: ANN401 - as above
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise _Interrupted from error


class _Interrupted(Exception):
    """Ctrl-C."""


class Command(TyperCommand):
    """A command that says so when its folder is no warehouse, and names the nearest of a name that nobody knows."""

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401, ARG002 - as above
        """Print its help."""
        _explain(self, ctx)

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 - Typer's own type is private
        """Run it, if it makes a warehouse or there is one."""
        root = ctx.params.get("warehouse")
        if root is not None and ctx.info_name not in _MAKING and not ctx.params.get("make"):
            from pipeline.delta.deltars import check_warehouse  # noqa: PLC0415 - `--help` needs none

            check_warehouse(root)
            _check_names(root, ctx)
        if root is not None and ctx.info_name not in _NAMING:
            # A relative path, and a variable of the environment, do not say where.
            hint(f"warehouse {root}")
        try:
            with _shown(ctx):
                return super().invoke(ctx)
        except SubscriptionNotFound as error:
            from jobs.commands.names import with_nearest  # noqa: PLC0415 - only a failure needs it

            raise with_nearest(ctx.params["warehouse"], error) from error


def _shown(ctx: Any) -> AbstractContextManager[Any]:  # noqa: ANN401 - as above
    """What shows how far a command is, unless it follows what comes."""
    words = ctx.command_path.split()[1:] or [ctx.info_name]
    if words[0] in OF_ITS_OWN or ctx.params.get("follow"):
        return nullcontext()
    from jobs.progress import progress  # noqa: PLC0415 - `--help` needs none

    return progress(" ".join(words))


def _check_names(root: str, ctx: Any) -> None:  # noqa: ANN401 - as above
    """Refuse a topic and a subscription that nobody knows, unless the command makes them."""
    topic, subscription = ctx.params.get("topic"), ctx.params.get("subscription")
    sets_topic = ctx.info_name == "set" and subscription is None
    makes = sets_topic or ctx.info_name in _SENDING or ctx.params.get("partitions") is not None
    if not makes and (topic, subscription) != (None, None):
        from jobs.commands.names import check_names  # noqa: PLC0415 - `--help` needs none

        check_names(root, topic, subscription)


class App(typer.Typer):
    """Commands of that kind."""

    def __init__(self, *, cls: type[Group] = Group, **options: Any) -> None:  # noqa: ANN401 - as Typer's
        """Make a group without commands."""
        super().__init__(cls=cls, **options)

    def command(self, name: str | None = None, *, panel: str | None = None, **options: Any) -> Callable[[Any], Any]:  # noqa: ANN401 - as Typer's
        """Add a command, to a panel of the help."""
        return super().command(name, cls=Command, rich_help_panel=panel, **options)
