"""The commands by which users change their mind about messages that wait, beside those of `jobs.cli`."""
# ruff: noqa: PLC0415 - each command imports what it needs when it runs, see `jobs.cli`

from typing import Annotated

import typer

from jobs.commands.options import AnySubscription, AsJson, Topic, Warehouse

app = typer.Typer()
_DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what it would do, and do nothing.")]
_By = Annotated[str | None, typer.Option("--by", metavar="NAME", help="Who commands it; kept with the command.")]
_Reason = Annotated[str | None, typer.Option("--reason", metavar="TEXT", help="Why; kept with the command.")]


@app.command()
def cancel(  # noqa: PLR0913 - a parameter is an option
    warehouse: Warehouse,
    topic: Topic,
    subscription: AnySubscription = None,
    *,
    key: Annotated[str | None, typer.Option("--key", "-k", help="Messages with this key.")] = None,
    where: Annotated[
        str | None,
        typer.Option(
            "--where",
            metavar="SQL",
            help="Or a condition over topic, subscription, message_key, properties, due_time, publish_time, "
            "payload_bytes, ledger_id, entry_id, redelivery_count.",
        ),
    ] = None,
    dry_run: _DryRun = False,
    by: _By = None,
    reason: _Reason = None,
    as_json: AsJson = False,
) -> None:
    """Cancel messages that wait, or failed and are to come again. What is due within seconds may be taken already."""
    if (key is None) == (where is None):
        raise typer.BadParameter("say one of --key and --where; --where true names all that is pending")
    from jobs.commands import commanding as command
    from pipeline.client.commanding.commands import cancel as begin

    found = begin(warehouse, topic, subscription, key=key, where=where, dry_run=dry_run, by=by, reason=reason)
    for line in [command.as_json(found)] if as_json else command.report(topic, found, dry=dry_run):
        typer.echo(line)


@app.command()
def undo(
    warehouse: Warehouse,
    command_id: Annotated[str, typer.Argument(help="The id that the cancel printed.")],
    *,
    dry_run: _DryRun = False,
    by: _By = None,
    reason: _Reason = None,
    as_json: AsJson = False,
) -> None:
    """Take a cancel back, for those of its messages whose time has not passed."""
    from jobs.commands import commanding as command
    from pipeline.client.commanding.commands import undo as begin

    found = begin(warehouse, command_id, dry_run=dry_run, by=by, reason=reason)
    for line in [command.as_json(found)] if as_json else command.report(f"undo of {command_id}", found, dry=dry_run):
        typer.echo(line)


@app.command()
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
    for line in command.listed_json(found) if as_json else command.listed(found):
        typer.echo(line)
