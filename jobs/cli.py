"""The command `delayline`: options in, calls out.

Each command imports what it needs when it runs. Spark takes seconds to load and delta-rs a part of one; `send`,
`receive` and `pending` answer in about a second because they load the second only.
"""
# ruff: noqa: PLC0415 - the reason stands above

import sys
import time
from datetime import datetime
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer

from jobs import calendars, commanding, configuring, consuming, importing, insight, operating, recurring
from jobs.commands import options
from jobs.commands.durations import UNITS_MS
from jobs.commands.logs import LogFormat, LogLevel, reporter, stamped
from jobs.commands.options import AnySubscription, AnyTopic, AsJson, Subscription, Topic, Warehouse
from jobs.commands.policies import stated
from jobs.commands.values import pairs
from jobs.groups import MESSAGES, OPERATE, RUN, App, Commands
from jobs.terminal import OutputFailed, echo, echo_lines, open_descriptors, tell
from pipeline.client.subscribing import subscriptions, topics
from pipeline.config.extras import need
from pipeline.config.paths import one_spelling
from pipeline.config.printed import printable
from pipeline.config.sizing import DEFAULT_RATE
from pipeline.config.version import VERSION
from pipeline.subscriptions.policies import Policies
from pipeline.subscriptions.records import REPLACES


class Start(StrEnum):
    """Where reading starts."""

    EARLIEST = "earliest"
    LATEST = "latest"


class Kind(StrEnum):
    """Subscription types."""

    EXCLUSIVE = "exclusive"
    FAILOVER = "failover"
    SHARED = "shared"
    KEY_SHARED = "key_shared"


class Rebuilt(StrEnum):
    """What can be rebuilt."""

    INGEST = "ingest"
    SCHEDULE = "schedule"
    DISPATCH = "dispatch"
    ALL = "all"


_EXAMPLES = """
A first hour, with `export DELAYLINE_WAREHOUSE=warehouse`:

- `delayline init`, then `delayline subscribe -t orders -s checkout`, then `delayline run &`
- `delayline send -t orders -k order-1 --deliver-after 30m "paid?"`
- `delayline list -t orders`, or `delayline cancel -t orders -k order-1`
- `delayline receive -t orders -s checkout`
"""
app = App(
    name="delayline",
    cls=Commands,
    help="Delayed message delivery on Spark and Delta tables. DELAYLINE_DEBUG=1 shows the stack trace of an error.",
    epilog=_EXAMPLES,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "token_normalize_func": options.spelled},
)


def _version(asked: bool) -> None:  # noqa: FBT001 - as Typer calls it
    if asked:
        echo(f"delayline {VERSION}")
        raise typer.Exit


@app.callback()
def delayline(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Take what stands before the name of a command."""


@app.command(panel=RUN)
def init(
    warehouse: Warehouse,
    rate: Annotated[
        int, typer.Option("--rate", metavar="N", help="Messages a second that the busiest topic is expected to get.")
    ] = DEFAULT_RATE,
    segment: Annotated[
        int | None,
        options.duration("--segment", "Span of due time that one state value covers; fixed for ever", "by the rate"),
    ] = None,
) -> None:
    """Create the tables of a warehouse. Those that exist are left as they are."""
    from jobs.commands.init import init as lines

    for line in lines(warehouse, rate, segment):
        tell(line)


@app.command(panel=MESSAGES)
@options.with_policies(row for row in Policies.rows.values() if row.needs == "ack" or row.name == "sink")
def subscribe(
    warehouse: Warehouse,
    topic: Topic,
    subscription: Subscription,
    tick: Annotated[
        int | None, options.duration("--tick", "Precision: a message comes up to so much late, never early", "1s")
    ] = None,
    start: Annotated[
        Start | None,
        typer.Option("--start", help="With what is in the log already, or from now on.", show_default="latest"),
    ] = None,
    kind: Annotated[
        Kind | None,
        typer.Option(
            "--type", help="How its consumers share it; `deliveries` does not depend on it.", show_default="shared"
        ),
    ] = None,
    *,
    ack: Annotated[
        bool, typer.Option("--ack", help="Its consumers acknowledge; what they do not settle comes again.")
    ] = False,
    **values: Any,  # noqa: ANN401 - of policies
) -> None:
    """Register a subscription. It counts from the next batch of a running job on. One that is there has to be so."""
    given = stated(values)
    if not ack and given.keys() - {"sink"}:
        raise typer.BadParameter("policies need --ack")
    columns = {"type": kind and kind.value, "start": start and start.value, "tick_ms": tick}
    stated_columns: dict[str, Any] = {name: each for name, each in columns.items() if each is not None}
    new = subscriptions.Subscription(topic, subscription, policies=Policies(ack=ack, **given), **stated_columns)
    from jobs.commands.names import warn_of_new

    warn_of_new(warehouse, topic)
    fresh = topics.subscribe_each(warehouse, new, {*stated_columns, *given, *(["ack"] if ack else [])})
    tell(f"{printable(f'{topic}/{subscription}')} is {'registered' if fresh else 'registered already'}")


@app.command(panel=MESSAGES)
def send(  # noqa: PLR0913 - a parameter is an option
    warehouse: Warehouse,
    topic: Topic,
    payload: Annotated[str | None, typer.Argument(help="The payload; without it, each line of stdin is one.")] = None,
    file: Annotated[
        list[Path] | None,
        typer.Option(
            "--file", "-f", exists=True, dir_okay=False, help="A file whose content is a payload. Repeatable."
        ),
    ] = None,
    *,
    key: Annotated[str | None, typer.Option("--key", "-k", help="Message key.")] = None,
    property_: Annotated[
        list[str] | None, typer.Option("--property", "-p", metavar="NAME=VALUE", help="A property. Repeatable.")
    ] = None,
    deliver_at: Annotated[datetime | None, options.time("--deliver-at", "Not before this time")] = None,
    deliver_after: Annotated[
        int | None, options.duration("--deliver-after", "Not before so long after it is sent")
    ] = None,
    replaces: Annotated[
        str | None,
        typer.Option("--replaces", metavar="KEY", help="Nothing comes that waits with this key; it is the key."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Send messages: the argument, or each --file as a whole, or each line of stdin as it comes."""
    if payload is not None and file:
        raise typer.BadParameter("a payload and --file exclude each other")
    if deliver_at is not None and deliver_after is not None:
        raise typer.BadParameter("--deliver-at and --deliver-after exclude each other")
    properties = options.checked(lambda _: pairs(property_ or []))("")
    if replaces is not None:
        if not replaces or key not in (None, replaces):
            raise typer.BadParameter("--replaces names a key, and --key no other one")
        key, properties = replaces, {**properties, REPLACES: replaces}
    from jobs.commands import send as command
    from jobs.commands.lines import Lines
    from jobs.commands.names import heard_by
    from pipeline.client.producing.inbox import OutgoingMessage

    form = OutgoingMessage(topic, b"", None, key, properties, deliver_at, deliver_after)
    outbox = command.Outbox(warehouse, form)
    heard = heard_by(warehouse, topic)
    command.warn_of_delay(warehouse, form)
    lines = None if payload is not None or file else Lines(_stdin())
    try:
        if lines is None:
            command.send_whole(outbox, command.payloads(payload, file or []))
        else:
            command.send_lines(outbox, lines)
    except BaseException:
        if outbox.sent:
            tell(command.summary(outbox, heard, as_json=as_json))
        raise
    tell(command.summary(outbox, heard, as_json=as_json))
    if lines is not None and lines.stopped_by is not None:
        if lines.left:
            echo(f"delayline: a line without its end was not sent ({lines.left} bytes)", err=True)
        raise typer.Exit(128 + lines.stopped_by)


@app.command(panel=MESSAGES)
def receive(
    warehouse: Warehouse,
    topic: AnyTopic = None,
    subscription: AnySubscription = None,
    *,
    follow: Annotated[bool, typer.Option("--follow/--no-follow", help="Wait for more; Ctrl-C ends it.")] = True,
    start: Annotated[Start, typer.Option("--start", help="With the deliveries there are, or from now on.")] = (
        Start.EARLIEST
    ),
    key: options.Key = None,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, help="End after so many.")] = None,
    as_json: AsJson = False,
) -> None:
    """Print deliveries as they appear, in order, with how late each one was."""
    from jobs.commands import receive as command
    from pipeline.client.tables.deliveries import Deliveries

    form = command.as_json if as_json else command.line
    deliveries = Deliveries(warehouse, earliest=start is Start.EARLIEST)
    warn = partial(echo, err=True)
    command.receive(deliveries, (topic, subscription, key), echo, warn, form=form, follow=follow, limit=limit)


@app.command(panel=OPERATE)
def doctor(warehouse: Warehouse, *, as_json: AsJson = False) -> None:
    """Check tables and checkpoints against each other, changing nothing; stages may run. Exit code 1: look at it."""
    from jobs.commands import doctor as command
    from pipeline.doctor.examine import examine

    found = examine(warehouse, time.time_ns() // 1_000_000)
    for line in [command.as_json(found)] if as_json else command.report(found):
        echo(line)
    if not found.healthy:
        raise typer.Exit(1)


@app.command(panel=RUN)
def run(
    warehouse: Warehouse,
    profile: options.Profile = None,
    *,
    stated_settings: options.Set = None,
    metrics_port: options.MetricsPort = None,
    make: Annotated[bool, typer.Option("--init", help="Make the warehouse if it is not there.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print warnings and errors only.")] = False,
    log_level: Annotated[LogLevel, typer.Option("--log-level", help="Log messages from this level on.")] = (
        LogLevel.WARNING
    ),
    log_format: Annotated[LogFormat, typer.Option("--log-format", help="How messages are written.")] = LogFormat.TEXT,
) -> None:
    """Run all stages here, on the live clock, until Ctrl-C, SIGTERM or `delayline stop`. Needs Java 17."""
    need("spark")
    from jobs.commands import run as command
    from jobs.commands.profiles import profile_from

    chosen = profile_from(profile, stated_settings or [], metrics_port)
    command.run(warehouse, chosen, reporter(log_level, log_format, quiet=quiet), make=make)


@app.command(panel=RUN)
def replay(
    warehouse: Warehouse,
    first: Annotated[datetime, options.time("--from", "The first instant")],
    last: Annotated[datetime, options.time("--until", "The last instant", "--to")],
    step: Annotated[int, options.duration("--step", "From one instant to the next")],
    source: Annotated[
        str | None,
        typer.Option(
            "--input",
            metavar="FILE_OR_TABLE",
            parser=one_spelling,
            help="Delta table, .parquet, .json or .jsonl. Without it nothing is sent, and what waits comes.",
            show_default=False,
        ),
    ] = None,
    profile: options.Profile = None,
    *,
    stated_settings: options.Set = None,
    as_json: AsJson = False,
) -> None:
    """Replay messages under the virtual clock, as fast as it goes. Needs Java 17.

    The input has the columns of the inbox; a row enters when the clock passes its publish_time. Call it again after a
    crash with the same options, and it goes on where it was.
    """
    need("spark")
    from jobs.commands import replay as command
    from jobs.commands.profiles import profile_from
    from pipeline.service.replay import ReplayClock

    course = ReplayClock(int(first.timestamp() * 1_000), int(last.timestamp() * 1_000), step)
    chosen = profile_from(profile, stated_settings or [])
    command.run(command.Choices(warehouse, source, course, chosen, as_json), echo, stamped)


@app.command(panel=RUN)
def stop(
    warehouse: Warehouse,
    wait: Annotated[
        int | None, options.duration("--wait", "Wait until it has stopped, for so long at most; then exit code 1")
    ] = None,
) -> None:
    """Ask whoever runs on a warehouse to stop between two batches."""
    from jobs.commands.stopping import ask, await_end

    found = ask(warehouse)
    tell(str(found))
    if wait is not None:
        await_end(warehouse, found.processes, wait)


@app.command(panel=OPERATE)
def rebuild(
    warehouse: Warehouse,
    stage: Annotated[Rebuilt, typer.Option("--stage", help="It must be stopped; for the schedule ingest too.")],
    *,
    reset_clock: Annotated[
        bool, typer.Option("--reset-clock", help="Begin at the present time, also when the last run was ahead of it.")
    ] = False,
) -> None:
    """Let stages that are stopped go on from what the tables say, on new checkpoints. Needs Java 17."""
    need("spark")
    from jobs.commands import rebuild as command

    for line in command.run(warehouse, stage.value, reset_clock=reset_clock):
        tell(line)


@app.command(panel=RUN)
def demo(
    output: Annotated[
        Path | None, typer.Option("--output", help="Folder for tables and picture.", show_default="a temporary one")
    ] = None,
    count: Annotated[
        int | None, typer.Option("--flights", min=1, help="How many, drawn at random.", show_default="all 336,776")
    ] = None,
    step: Annotated[int, options.duration("--step", "Step of the virtual clock", "14d")] = 14 * UNITS_MS["d"],
    *,
    live: Annotated[bool, typer.Option("--live/--no-live", help="Begin with a minute on the live clock.")] = True,
) -> None:
    """Show it: a minute live, then the New York flights of 2013 in minutes, checked. Needs Java 17."""
    need("spark", "demo", "web")
    from jobs.commands import demo as command

    command.run(command.Choices(output, count, step, live), echo_lines)


app.add_typer(consuming.app)
app.add_typer(commanding.app)
app.add_typer(insight.app)
app.add_typer(operating.app)
app.add_typer(importing.app, name="import", rich_help_panel=OPERATE)
app.add_typer(configuring.app)
app.add_typer(recurring.app)
app.add_typer(calendars.app)


def _stdin() -> BinaryIO:
    """Standard input; a process may be started without one."""
    if sys.stdin is None:
        raise typer.BadParameter("there is no payload, and standard input is closed")
    return sys.stdin.buffer


def main() -> None:
    """The entry point."""
    open_descriptors()
    try:
        app(prog_name="delayline")
    except OSError as error:
        # The help, which is printed before there is a command.
        echo(f"delayline: {OutputFailed(str(error.strerror))}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
