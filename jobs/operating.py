"""The commands for whoever operates a warehouse, beside those of `jobs.cli`."""
# ruff: noqa: PLC0415 - each command imports what it needs when it runs, see `jobs.cli`

from contextlib import ExitStack
from datetime import datetime
from typing import Annotated

import typer

from jobs.commands import options
from jobs.commands.options import AsJson, Warehouse
from jobs.groups import OPERATE, App
from jobs.terminal import echo, tell

app = App()


@app.command(panel=OPERATE)
def clone(
    warehouse: Warehouse,
    target: Annotated[str, options.folder("--target", "Folder of the copy; it is empty, or not there.")],
    as_of: Annotated[datetime | None, options.time("--as-of", "What was pending then, and not what is")] = None,
    *,
    keep_sinks: Annotated[
        bool, typer.Option("--keep-sinks", help="Subscriptions publish from the copy, too: for a move.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Make another warehouse with what waits in this one, to try things on or to move. Its job may run meanwhile."""
    from jobs.commands import clone as command
    from jobs.progress import on_step
    from pipeline.service.clone import clone as make

    then_ms = options.passed_ms(as_of)
    with ExitStack() as held:
        opened = command.opener(target, held)
        done = make(warehouse, target, as_of=then_ms, keep_sinks=keep_sinks, warehouse=opened, on_step=on_step)
    for line in [command.as_json(done)] if as_json else command.report(done):
        tell(line)


@app.command(panel=OPERATE)
def ddl(
    warehouse: Warehouse,
    schema: Annotated[
        str | None, typer.Option("--schema", metavar="TEXT", help="Where the catalog names them: S or CATALOG.S.")
    ] = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Print the SQL that registers the tables in a catalog, external, by their folders. It changes nothing."""
    from jobs.commands import ddl as command
    from pipeline.client.tables.ddl import registrations

    found = registrations(warehouse, schema)
    for line in [command.as_json(found)] if as_json else command.report(found):
        echo(line)
