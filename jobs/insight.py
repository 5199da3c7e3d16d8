"""The commands that tell what happened, beside those of `jobs.cli`."""
# ruff: noqa: PLC0415 - each command imports what it needs when it runs, see `jobs.cli`

from typing import Annotated

import typer

from jobs.commands import options
from jobs.commands.options import AnySubscription, AsJson, Topic, Warehouse

app = typer.Typer()


@app.command()
def trace(
    warehouse: Warehouse,
    topic: Topic,
    subscription: AnySubscription = None,
    *,
    key: Annotated[str | None, typer.Option("--key", "-k", help="Messages with this key.")] = None,
    position: options.OnePosition = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="So many messages at most, the newest.")] = 5,
    as_json: AsJson = False,
) -> None:
    """Tell the history of a message: sent, accepted, cancelled, published, acknowledged, and how it stands."""
    if (key is None) == (position is None):
        raise typer.BadParameter("say one of --key and --position")
    from jobs.commands import tracing as command
    from pipeline.client.tracing.trace import trace as look

    place = None if position is None else (position.ledger, position.entry)
    # One more, to see whether there is one more.
    found = look(warehouse, topic, subscription, key=key, position=place, limit=limit + 1)
    lines = command.as_json(found[-limit:]) if as_json else command.report(topic, found, limit)
    for line in lines:
        typer.echo(line)
