"""The commands that bring over what waits in brokers, beside those of `jobs.cli`."""
# ruff: noqa: PLC0415 - each command imports what it needs when it runs, see `jobs.cli`

from typing import Annotated

import typer

from jobs.commands import options
from jobs.commands.durations import UNITS_MS
from jobs.commands.jsonform import json_line
from jobs.commands.options import AsJson, Warehouse
from jobs.groups import App
from jobs.terminal import tell

app = App(help="Bring over what waits in a broker for its time.")


@app.callback()
def brokers() -> None:
    """Bring over what waits in a broker for its time."""


@app.command()
def pulsar(  # noqa: PLR0913 - a parameter is an option
    warehouse: Warehouse,
    service: Annotated[str, typer.Option("--service", metavar="ADDRESS", help="The cluster: pulsar://HOST:PORT.")],
    admin: Annotated[str, typer.Option("--admin", metavar="ADDRESS", help="Its REST interface: http://HOST:PORT.")],
    topic: Annotated[
        str, typer.Option("--topic", "-t", metavar="TENANT/NAMESPACE/TOPIC", help="Where the messages wait.")
    ],
    subscription: Annotated[
        str, typer.Option("--subscription", "-s", help="What it has not acknowledged is taken; Shared or Key_Shared.")
    ],
    into: Annotated[
        str | None,
        typer.Option(
            "--into", metavar="TOPIC", help="The topic of the warehouse.", show_default="TOPIC without the rest"
        ),
    ] = None,
    margin: Annotated[
        int, options.duration("--margin", "What will be due within that time stays with Pulsar", "1m")
    ] = UNITS_MS["m"],
    *,
    acknowledge: Annotated[
        bool, typer.Option("--acknowledge", help="Acknowledge there what is taken, so that it comes from here only.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what it would take, and do nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Take the delayed messages of a topic of Pulsar that a subscription still waits for; each once.

    It may be ended and begun again with the same addresses and names.
    """
    from jobs.commands import importing as command
    from jobs.commands.names import check_heard, heard_by
    from jobs.progress import on_step
    from pipeline.moving.places import Wanted
    from pipeline.moving.pulsar import take
    from pipeline.subscriptions.topicnames import plain_topic

    to = into or topic.rpartition("/")[2]
    (check_heard if acknowledge and not dry_run else heard_by)(warehouse, plain_topic(to))
    wanted = Wanted(service, admin, topic, subscription, to, margin, acknowledge)
    found = list(command.followed(take(warehouse, wanted, dry=dry_run), on_step))
    for line in [json_line(found)] if as_json else command.report(found, dry=dry_run):
        tell(line)
