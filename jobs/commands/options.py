"""The options that commands share, as Typer wants them."""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from inspect import Parameter, signature
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import typer

from jobs.commands.durations import BadText, duration_ms
from jobs.commands.policies import backoff
from jobs.commands.times import instant
from jobs.commands.values import Handle, Place, handle, position, since
from pipeline.config.paths import one_spelling
from pipeline.config.wallclock import wall_ms
from pipeline.subscriptions.policytable import Option, Row
from pipeline.subscriptions.topicnames import plain_topic

F = TypeVar("F", bound=Callable[..., None])
_TYPES = {"guard_tables": list[str]}
"""What the command takes of a policy that is not one value for it."""


def checked(parse: Callable[[str], Any]) -> Callable[[Any], Any]:
    """A parser whose refusal is a usage error. Defaults come parsed and pass through."""

    def parser(given: Any) -> Any:  # noqa: ANN401 - a text, or a default of the parser's type
        try:
            return parse(given) if isinstance(given, str) else given
        except BadText as error:
            raise typer.BadParameter(str(error)) from error

    return parser


def spelled(word: str) -> str:
    """An option, a command or a choice in its one spelling: `ttl_ms`, as JSON and programs say it, is `ttl`."""
    return word.replace("_", "-").removesuffix("-ms")


def duration(name: str, text: str, default: str | None = None) -> Any:  # noqa: ANN401 - Typer does not name the type
    """An option for a duration, in ms."""
    about = f"{text} (250ms, 90min, 1d12h)."
    return typer.Option(
        name, parser=checked(duration_ms), metavar="DURATION", help=about, show_default=default or False
    )


_TIMES = "ISO, tomorrow 9am, in 5 minutes, a zone; else UTC"
"""Of the help of each option for a time."""


def time(name: str, text: str, *others: str) -> Any:  # noqa: ANN401 - Typer does not name the type
    """An option for an instant, under one name or several."""
    return typer.Option(name, *others, parser=checked(instant), metavar="TIME", help=f"{text} ({_TIMES}).")


def whole(path: str) -> str:
    """A path in its one spelling; one of this machine from the root on, so that whatever names it says where it is."""
    is_here = path.strip() and ":" not in path.partition("/")[0]
    return one_spelling(str(Path(path).absolute()) if is_here else path)


def passed_ms(as_of: datetime | None) -> int | None:
    """What `--as-of` says, ms UTC; None: nothing. A time that has not passed is a usage error."""
    then_ms = None if as_of is None else int(as_of.timestamp() * 1_000)
    if then_ms is not None and then_ms > wall_ms():
        raise typer.BadParameter("--as-of is a time that has passed")
    return then_ms


def folder(name: str, text: str) -> Any:  # noqa: ANN401 - Typer does not name the type
    """An option for another folder of tables."""
    return typer.Option(name, metavar="DIR", parser=whole, help=text)


Warehouse = Annotated[
    str,
    typer.Option(
        "--warehouse",
        "-w",
        envvar="DELAYLINE_WAREHOUSE",
        metavar="DIR",
        parser=whole,
        help="Folder of the tables; s3://BUCKET/FOLDER with the AWS_* variables.",
    ),
]
Topic = Annotated[str, typer.Option("--topic", "-t", metavar="TEXT", parser=plain_topic, help="Topic.")]
Subscription = Annotated[str, typer.Option("--subscription", "-s", help="Its name within the topic.")]
AnyTopic = Annotated[
    str | None, typer.Option("--topic", "-t", metavar="TEXT", parser=plain_topic, help="Only this topic.")
]
AnySubscription = Annotated[str | None, typer.Option("--subscription", "-s", help="Only this subscription.")]
Profile = Annotated[
    Path | None,
    typer.Option(
        "--profile",
        exists=True,
        dir_okay=False,
        help="A TOML file; it is laid over conf/local.toml.",
        show_default=False,
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="A setting, as settings.driver_rows=0. Repeatable."),
]
MetricsPort = Annotated[
    int | None, typer.Option("--metrics-port", min=1, max=65_535, help="Serve metrics for Prometheus at this port.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Key = Annotated[str | None, typer.Option("--key", "-k", help="Messages with this key.")]
Where = Annotated[
    str | None,
    typer.Option(
        "--where",
        metavar="SQL",
        help="Or a condition over topic, subscription, message_key, properties, due_time, publish_time, "
        "payload_bytes, ledger_id, entry_id, redelivery_count.",
    ),
]
Position = Annotated[
    Place | None,
    typer.Option(
        "--position",
        parser=checked(position),
        metavar="LEDGER:ENTRY",
        help="From this position on.",
        show_default=False,
    ),
]
AnyId = Annotated[
    Handle | None,
    typer.Option(
        "--id",
        parser=checked(handle),
        metavar="NAME:NUMBER",
        help="Or the message with this id, as `send` prints it: its producer and sequence id.",
        show_default=False,
    ),
]
OnePosition = Annotated[
    Place | None,
    typer.Option(
        "--position",
        parser=checked(position),
        metavar="LEDGER:ENTRY",
        help="Or the message at this position.",
        show_default=False,
    ),
]
Since = Annotated[
    int | None,
    typer.Option(
        "--time",
        parser=checked(since),
        metavar="TIME",
        help=f"From the first message on that was sent then or later ({_TIMES}; or ms since 1970).",
        show_default=False,
    ),
]


def with_id(topic: str, how: Mapping[str, Any]) -> dict[str, Any]:
    """What a command names, with the id of its message as the client has it."""
    from pipeline.client.message import MessageId  # noqa: PLC0415 - not each command needs it

    named: Handle | None = how["message_id"]
    return {**how, "message_id": None if named is None else MessageId.sent(topic, named.producer, named.number)}


def with_policies(rows: Iterable[Row]) -> Callable[[F], F]:
    """Let a command take policies: an option for each row that has one, in the place of its `**values`."""
    return with_options({row.name: _annotation(row, row.option) for row in rows if row.option is not None})


def with_options(annotations: Mapping[str, Any]) -> Callable[[F], F]:
    """Let a command take options in the place of its `**values`; what is not said is None.

    Args:
        annotations: the types of the values with their options, by name.
    """
    own = Parameter.KEYWORD_ONLY
    stated = [Parameter(name, own, default=None, annotation=each) for name, each in annotations.items()]

    def decorated(command: F) -> F:
        whole = signature(command)
        own = [each for each in whole.parameters.values() if each.kind is not Parameter.VAR_KEYWORD]
        vars(command).update(__signature__=whole.replace(parameters=[*own, *stated]))
        command.__annotations__ = {each.name: each.annotation for each in [*own, *stated]}
        return command

    return decorated


def choice(name: str, text: str, choices: Iterable[str], default: str) -> Any:  # noqa: ANN401 - a type of Typer's
    """A type with an option for one of some texts; `default` is what is so if nothing is said."""
    return Annotated[Literal[tuple(map(str, choices))] | None, typer.Option(name, help=text, show_default=default)]


def _annotation(row: Row, option: Option) -> Any:  # noqa: ANN401 - a type of Typer's
    kind: Any = _TYPES.get(row.name, row.kind)
    if row.name == "retry_min_ms" or not row.is_duration:
        if row.text is not None and option.metavar is None:
            kind = Literal[row.text.choices]
        parser = checked(backoff) if row.name == "retry_min_ms" else None
        shown = option.unset or False
        info = typer.Option(row.flag, parser=parser, metavar=option.metavar, help=option.help, show_default=shown)
    else:
        info = duration(row.flag, option.help, option.unset)
    return Annotated[kind | None, info]
