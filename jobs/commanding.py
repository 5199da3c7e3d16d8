"""The commands by which users change their mind about messages that wait, beside those of `jobs.cli`."""
# ruff: noqa: PLC0415 - each command imports what it needs when it runs, see `jobs.cli`

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jobs.commands.durations import span_ms
from jobs.commands.options import AnyId, AnySubscription, AsJson, Key, Topic, Warehouse, Where, checked, time, with_id
from jobs.groups import CHANGE, LOOK, App
from jobs.terminal import echo, tell

if TYPE_CHECKING:
    from pipeline.client.commanding.commands import Command

app = App()
_How = dict[str, Any]
"""What a command names, and who commands it."""
_DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what it would do, and do nothing.")]
_IssuedBy = Annotated[
    str | None, typer.Option("--issued-by", metavar="NAME", help="Who commands it; kept with the command.")
]
_Reason = Annotated[str | None, typer.Option("--reason", metavar="TEXT", help="Why; kept with the command.")]


@app.command(panel=CHANGE)
def cancel(  # noqa: PLR0913 - a parameter is an option
    warehouse: Warehouse,
    topic: Topic,
    subscription: AnySubscription = None,
    *,
    key: Key = None,
    message_id: AnyId = None,
    where: Where = None,
    dry_run: _DryRun = False,
    issued_by: _IssuedBy = None,
    reason: _Reason = None,
    as_json: AsJson = False,
) -> None:
    """Cancel messages that wait, or failed and are to come again. What is due within seconds may be taken already."""
    from pipeline.client.commanding.commands import cancel as begin

    how = {"key": key, "message_id": message_id, "where": where, "by": issued_by, "reason": reason}
    _give(begin, warehouse, topic, subscription, how, dry_run=dry_run, as_json=as_json)


@app.command(panel=CHANGE)
def reschedule(  # noqa: PLR0913 - a parameter is an option
    warehouse: Warehouse,
    topic: Topic,
    to: Annotated[datetime, time("--to", "When they are due; a time that has passed is now")],
    subscription: AnySubscription = None,
    *,
    key: Key = None,
    message_id: AnyId = None,
    where: Where = None,
    dry_run: _DryRun = False,
    issued_by: _IssuedBy = None,
    reason: _Reason = None,
    as_json: AsJson = False,
) -> None:
    """Give messages that wait another due time. What is due within seconds may be taken already."""
    from pipeline.client.commanding.commands import reschedule as begin

    how = {"key": key, "message_id": message_id, "where": where, "by": issued_by, "reason": reason}
    _give(partial(begin, to=to), warehouse, topic, subscription, how, dry_run=dry_run, as_json=as_json)


@app.command(panel=CHANGE)
def shift(  # noqa: PLR0913 - a parameter is an option
    warehouse: Warehouse,
    topic: Topic,
    span: Annotated[
        int,
        typer.Option(
            "--by", parser=checked(span_ms), metavar="SPAN", help="How much later, or earlier with a minus: +2h, -30m."
        ),
    ],
    subscription: AnySubscription = None,
    *,
    key: Key = None,
    message_id: AnyId = None,
    where: Where = None,
    dry_run: _DryRun = False,
    issued_by: _IssuedBy = None,
    reason: _Reason = None,
    as_json: AsJson = False,
) -> None:
    """Let messages that wait come later or earlier. What is due within seconds may be taken already."""
    from pipeline.client.commanding.commands import shift as begin

    later, how = (
        timedelta(milliseconds=span),
        {"key": key, "message_id": message_id, "where": where, "by": issued_by, "reason": reason},
    )
    _give(partial(begin, span=later), warehouse, topic, subscription, how, dry_run=dry_run, as_json=as_json)


@app.command(panel=CHANGE)
def release(  # noqa: PLR0913 - a parameter is an option
    warehouse: Warehouse,
    topic: Topic,
    subscription: AnySubscription = None,
    *,
    key: Key = None,
    message_id: AnyId = None,
    where: Where = None,
    dry_run: _DryRun = False,
    issued_by: _IssuedBy = None,
    reason: _Reason = None,
    as_json: AsJson = False,
) -> None:
    """Let messages that wait come now."""
    from pipeline.client.commanding.commands import release_now as begin

    how = {"key": key, "message_id": message_id, "where": where, "by": issued_by, "reason": reason}
    _give(begin, warehouse, topic, subscription, how, dry_run=dry_run, as_json=as_json)


@app.command(panel=CHANGE)
def undo(
    warehouse: Warehouse,
    command_id: Annotated[str, typer.Argument(help="The id that the command printed.")],
    *,
    dry_run: _DryRun = False,
    issued_by: _IssuedBy = None,
    reason: _Reason = None,
    as_json: AsJson = False,
) -> None:
    """Take a command back, for those of its messages that have not come meanwhile."""
    from pipeline.client.commanding.commands import undo as begin

    found = begin(warehouse, command_id, dry_run=dry_run, by=issued_by, reason=reason)
    _tell(f"undo of {command_id}", found, as_json=as_json, dry=dry_run)


@app.command(panel=LOOK)
def commands(
    warehouse: Warehouse,
    *,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="So many at most.")] = 20,
    as_json: AsJson = False,
) -> None:
    """List commands, the newest first, and what became of the messages that each of them names."""
    from jobs.commands import commanding as command
    from pipeline.client.commanding.outcomes import outcomes

    found = outcomes(warehouse, limit)
    for line in map(command.outcome_as_json, found) if as_json else command.listed(found):
        echo(line)


def _give(
    begin: Callable[..., "Command"],
    warehouse: str,
    topic: str,
    subscription: str | None,
    how: _How,
    *,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Give a command over what a key, an id or a condition names, and tell what it did."""
    if sum(how[name] is not None for name in ("key", "message_id", "where")) != 1:
        raise typer.BadParameter("say one of --key, --id and --where; --where true names all that is pending")
    found = begin(warehouse, topic, subscription, dry_run=dry_run, **with_id(topic, how))
    _tell(topic, found, as_json=as_json, dry=dry_run)


def _tell(what: str, found: "Command", *, as_json: bool, dry: bool) -> None:
    from jobs.commands import commanding as command

    for line in [command.as_json(found)] if as_json else command.report(what, found, dry=dry):
        tell(line)
