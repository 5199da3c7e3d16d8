"""The commands that tell what happened, beside those of `jobs.cli`."""
# ruff: noqa: PLC0415 - each command imports what it needs when it runs, see `jobs.cli`

import time
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from jobs.commands import options
from jobs.commands.jsonform import json_line
from jobs.commands.options import AnySubscription, AnyTopic, AsJson, Key, Topic, Warehouse, Where
from jobs.groups import LOOK, App
from jobs.terminal import echo
from pipeline.config.extras import need

app = App()


class By(StrEnum):
    """What is counted together."""

    SUBSCRIPTION = "subscription"
    TOPIC = "topic"
    MINUTE = "minute"
    KEY = "key"


@app.command(panel=LOOK)
def pending(
    warehouse: Warehouse,
    topic: AnyTopic = None,
    subscription: AnySubscription = None,
    *,
    by: Annotated[By, typer.Option("--group-by", help="A line for each of these; by key those that have most.")] = (
        By.SUBSCRIPTION
    ),
    as_of: Annotated[datetime | None, options.time("--as-of", "What was pending then")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="By key, so many lines at most.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Count what is accepted and not yet delivered, with the next due time and a histogram."""
    now_ms, then_ms = time.time_ns() // 1_000_000, options.passed_ms(as_of)
    from jobs.commands import pending as command
    from pipeline.client.insight.pending import pending as count
    from pipeline.client.insight.pending import pending_by_key

    if by is By.KEY:
        keys = pending_by_key(warehouse, topic, subscription, limit=limit, as_of=then_ms)
        lines = command.keys_json(keys) if as_json else command.keys(keys)
    else:
        found = count(warehouse, topic, subscription, as_of=then_ms)
        forms = {By.SUBSCRIPTION: command.report, By.TOPIC: command.by_topic, By.MINUTE: command.by_minute}
        lines = iter([command.as_json(found)]) if as_json else forms[by](found, then_ms or now_ms)
    for line in lines:
        echo(line)


@app.command(panel=LOOK)
def forecast(  # noqa: PLR0913 - a parameter is an option
    warehouse: Warehouse,
    topic: AnyTopic = None,
    subscription: AnySubscription = None,
    *,
    by: Annotated[By, typer.Option("--group-by", help="What is told together; not key.")] = By.SUBSCRIPTION,
    hours: Annotated[
        int | None, typer.Option("--hours", min=1, max=8_784, help="For so many hours from now on.", show_default="24")
    ] = None,
    until: Annotated[datetime | None, options.time("--until", "Or until then")] = None,
    late_than: Annotated[int, options.duration("--late-than", "What comes later than that is late", "5s")] = 5_000,
    max_rate: Annotated[
        int | None,
        typer.Option("--max-rate", metavar="N", min=1, max=10_000_000, help="What if they had this rate (a second)."),
    ] = None,
    pause: Annotated[int | None, options.duration("--pause", "What if they were paused for so long")] = None,
    outage: Annotated[int | None, options.duration("--outage", "What if no job ran for so long")] = None,
    at: Annotated[datetime | None, options.time("--at", "When that begins; now, if nothing is said")] = None,
    add: Annotated[
        Path | None,
        typer.Option("--add", help="What if these came, too: due_time, count, topic."),
    ] = None,
    picture: Annotated[Path | None, typer.Option("--picture", help="Draw it, too, as PNG or SVG.")] = None,
    as_json: AsJson = False,
) -> None:
    """Tell what will be due in each minute, what will come, what will wait, and how late; and what if."""
    if by is By.KEY:
        raise typer.BadParameter("--group-by is subscription, topic or minute: what waits is not told by key")
    if hours is not None and until is not None:
        raise typer.BadParameter("--hours and --until exclude each other")
    if at is not None and max_rate is pause is outage is None:
        raise typer.BadParameter("--at says when --max-rate, --pause or --outage begins: say one of them")
    from jobs.commands import forecast as command

    if picture is not None:
        command.check_picture(picture)
    asked = command.Asked(hours or 24, until, late_than, at, max_rate, pause, outage, add)
    found = command.look(warehouse, topic, subscription, asked)
    if picture is not None:
        command.draw(found, picture)
    found = found if by is By.SUBSCRIPTION else found.by_topic if by is By.TOPIC else found.in_all
    for line in command.as_json(found) if as_json else command.report(found, every_minute=by is By.MINUTE):
        echo(line)


@app.command(panel=LOOK)
def status(warehouse: Warehouse, *, as_json: AsJson = False) -> None:
    """Tell how it stands: the job, what waits, subscriptions, what was rejected, and what the doctor says."""
    from jobs.commands import status as command

    seen = command.look(warehouse, time.time_ns() // 1_000_000)
    for line in [command.as_json(seen)] if as_json else command.report(seen):
        echo(line)


@app.command(panel=LOOK)
def top(
    warehouse: Warehouse,
    *,
    interval: Annotated[int, options.duration("--interval", "Between two looks", "2s")] = 2_000,
) -> None:
    """Watch how it stands on a terminal; Ctrl-C ends it. Where nobody looks at one it is told once."""
    from jobs.commands.top import top as watch

    watch(warehouse, interval / 1_000, lambda: time.time_ns() // 1_000_000)


@app.command(panel=LOOK)
def report(
    warehouse: Warehouse,
    *,
    out: Annotated[Path, typer.Option("--output", "--out", dir_okay=False, help="The file to write.")],
    as_of: Annotated[datetime | None, options.time("--as-of", "How it stood then")] = None,
) -> None:
    """Write how it stands, or stood, into one HTML file, to send to somebody."""
    need("web")
    then_ms = options.passed_ms(as_of)
    from jobs.web.report import report as made

    text = made(warehouse, time.time_ns() // 1_000_000, then_ms)
    out.write_text(text, encoding="utf-8", errors="replace")
    echo(f"Report of {warehouse}: {out.absolute()}")


@app.command(panel=LOOK)
def web(
    warehouse: Warehouse,
    *,
    host: Annotated[str, typer.Option("--host", help="Address to listen at; a token guards any but the loopback.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option("--port", min=0, max=65_535, help="Port; 0: any that is free.")] = 8642,
    allow_commands: Annotated[
        bool, typer.Option("--allow-commands", help="Offer actions, too; without it the page only shows.")
    ] = False,
    base_path: Annotated[str, typer.Option("--base-path", help="Path of the page behind a proxy.")] = "",
) -> None:
    """Serve a page for a browser: what waits, what happened, what is wrong, and actions when they are allowed."""
    need("web")
    from jobs.commands.web import serve

    serve(warehouse, host, port, base_path, allow_commands=allow_commands)


@app.command(panel=LOOK)
def topics(warehouse: Warehouse, *, as_json: AsJson = False) -> None:
    """List topics: their partitions and subscriptions, how many messages they hold, and how many of these wait."""
    from jobs.commands import topics as command
    from pipeline.client.insight.topics import topics as look

    found = look(warehouse)
    for line in [command.as_json(found)] if as_json else command.report(found):
        echo(line)


@app.command("list", panel=LOOK)
def list_waiting(  # noqa: PLR0913 - a parameter is an option
    warehouse: Warehouse,
    topic: AnyTopic = None,
    subscription: AnySubscription = None,
    *,
    key: Key = None,
    where: Where = None,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, help="So many at most, by due time.")] = None,
    follow: Annotated[bool, typer.Option("--follow/--no-follow", help="Wait for more; Ctrl-C ends it.")] = False,
    payload: Annotated[bool, typer.Option("--payload", help="Print the payloads, too.")] = False,
    as_json: AsJson = False,
) -> None:
    """List what waits, message by message, by due time: what a command with the same options would name."""
    if key is not None and where is not None:
        raise typer.BadParameter("--key and --where exclude each other")
    from jobs.commands import listing as command
    from pipeline.client.insight.pendingrows import pending_rows
    from pipeline.client.insight.waiting import in_inbox
    from pipeline.storage.arrays import python_rows

    form, most = command.as_json if as_json else command.line, None if follow else limit

    def look() -> list[dict[str, Any]]:
        rows = pending_rows(warehouse, topic, subscription, key=key, where=where, limit=most, payload=payload)
        return python_rows(rows)

    for row in command.listed(look, follow=follow, limit=limit):
        echo(form(row))
    if count := in_inbox(warehouse):
        echo(f"{count:,} more in the inbox, not yet taken by ingest", err=True)


@app.command(panel=LOOK)
def trace(
    warehouse: Warehouse,
    topic: Topic,
    subscription: AnySubscription = None,
    *,
    key: Key = None,
    message_id: options.AnyId = None,
    position: options.OnePosition = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="So many messages at most, the newest.")] = 5,
    as_json: AsJson = False,
) -> None:
    """Tell the history of a message: sent, accepted, cancelled, published, acknowledged, and how it stands."""
    if sum(each is not None for each in (key, message_id, position)) != 1:
        raise typer.BadParameter("say one of --key, --id and --position")
    from jobs.commands import tracing as command
    from pipeline.client.insight.trace import trace as look

    place = None if position is None else (position.ledger, position.entry)
    # One more, to see whether there is one more.
    how = options.with_id(topic, {"key": key, "message_id": message_id, "position": place, "limit": limit + 1})
    found = look(warehouse, topic, subscription, **how)
    lines = map(json_line, found[-limit:]) if as_json else command.report(topic, found, limit)
    for line in lines:
        echo(line)
