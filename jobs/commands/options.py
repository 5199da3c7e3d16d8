"""The options that commands share, as Typer wants them."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from jobs.commands.durations import BadText, duration_ms
from jobs.commands.policies import Backoff, backoff
from jobs.commands.times import instant
from jobs.commands.values import Place, position, since
from pipeline.config.paths import one_spelling


def checked(parse: Callable[[str], Any]) -> Callable[[Any], Any]:
    """A parser whose refusal is a usage error. Defaults come parsed and pass through."""

    def parser(given: Any) -> Any:  # noqa: ANN401 - a text, or a default of the parser's type
        try:
            return parse(given) if isinstance(given, str) else given
        except BadText as error:
            raise typer.BadParameter(str(error)) from error

    return parser


def duration(name: str, text: str, default: str | None = None) -> Any:  # noqa: ANN401 - Typer does not name the type
    """An option for a duration, in ms."""
    about = f"{text} (250ms, 1.5h, 1d12h)."
    return typer.Option(
        name, parser=checked(duration_ms), metavar="DURATION", help=about, show_default=default or False
    )


def time(name: str, text: str) -> Any:  # noqa: ANN401 - Typer does not name the type
    """An option for an instant."""
    about = f"{text} (ISO, tomorrow 9am, a zone; else UTC)."
    return typer.Option(name, parser=checked(instant), metavar="TIME", help=about)


def _whole(path: str) -> str:
    """A path in its one spelling; one of this machine from the root on, so that whatever names it says where it is."""
    is_here = path.strip() and ":" not in path.partition("/")[0]
    return one_spelling(str(Path(path).absolute()) if is_here else path)


Warehouse = Annotated[
    str,
    typer.Option(
        "--warehouse",
        "-w",
        envvar="DELAYLINE_WAREHOUSE",
        metavar="DIR",
        parser=_whole,
        help="Folder of the tables; s3://BUCKET/FOLDER with the AWS_* variables.",
    ),
]
Topic = Annotated[str, typer.Option("--topic", "-t", help="Topic.")]
Subscription = Annotated[str, typer.Option("--subscription", "-s", help="Its name within the topic.")]
AnyTopic = Annotated[str | None, typer.Option("--topic", "-t", help="Only this topic.")]
AnySubscription = Annotated[str | None, typer.Option("--subscription", "-s", help="Only this subscription.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
AckTimeout = Annotated[
    int | None, duration("--ack-timeout", "What a consumer has had for so long, and not settled, comes again", "never")
]
Backoffs = Annotated[
    Backoff | None,
    typer.Option(
        "--backoff",
        parser=checked(backoff),
        metavar="MIN:MULT:MAX",
        help="Delays of what comes again: the first, how many times as long each next one, the longest.",
        show_default="1m:1:10m",
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
        help="From the first message on that was sent then or later (ISO, UTC without an offset; or ms).",
        show_default=False,
    ),
]
MaxRedeliveries = Annotated[
    int | None,
    typer.Option(
        "--max-redeliveries", metavar="N", help="Then it goes to the dead letters.", show_default="any number"
    ),
]
DeadLetterTopic = Annotated[
    str | None,
    typer.Option("--dead-letter-topic", metavar="TOPIC", help="Where to.", show_default="TOPIC-SUBSCRIPTION-DLQ"),
]
Slots = Annotated[
    int | None,
    typer.Option(
        "--slots", metavar="N", help="Parts that consumers share; fixed while it is there.", show_default="64"
    ),
]
Sink = Annotated[
    str | None,
    typer.Option(
        "--sink",
        metavar="ADDRESS",
        help="Publish there, too: kafka://HOST:PORT/TOPIC or pulsar://HOST:PORT/TENANT/NAMESPACE/TOPIC.",
        show_default="none",
    ),
]
SinkAfter = Annotated[
    int | None,
    typer.Option(
        "--sink-after", metavar="VERSION", help="The sink begins behind this version.", show_default="the newest"
    ),
]
SinkRefused = Annotated[
    str | None,
    typer.Option(
        "--sink-refused",
        metavar="stop|reject",
        help="The sink stands still before what its broker refuses for good, or lists it in rejected_dispatch.",
        show_default="stop",
    ),
]
MaxRate = Annotated[
    int | None,
    typer.Option("--max-rate", metavar="N", help="Messages a second that come at most.", show_default="any number"),
]
FixedDelay = Annotated[
    int | None, duration("--fixed-delay", "Of a topic: each message is due so long after it was sent", "none")
]
MinDelay = Annotated[
    int | None,
    duration("--min-delay", "Of a topic: a message is due so long after it was sent, at the earliest", "none"),
]
MaxDelay = Annotated[
    int | None, duration("--max-delay", "Of a topic: a message that asks for a longer delay is rejected", "none")
]
Precision = Annotated[
    Literal["exact", "proportional"] | None,
    typer.Option(
        "--precision",
        help="Of a topic: due times as precise as asked for, or as delays deserve (a minute after a day).",
        show_default="as it is",
    ),
]
Ttl = Annotated[
    int | None,
    duration(
        "--ttl", "What could not be handed over within so long after it was due is not delivered any more", "none"
    ),
]
Guard = Annotated[
    str | None,
    typer.Option(
        "--guard",
        metavar="SQL",
        help="What does not meet this condition when it is due is not delivered.",
        show_default="none",
    ),
]
GuardTables = Annotated[
    list[str] | None,
    typer.Option("--guard-table", metavar="NAME=PATH", help="A Delta table that the guard reads.", show_default=False),
]
Priority = Annotated[
    str | None,
    typer.Option(
        "--priority",
        metavar="PROPERTY",
        help="Of what is due in one bucket, the highest number in this property comes first.",
        show_default="by time",
    ),
]
MayAck = Annotated[
    bool | None, typer.Option("--ack/--no-ack", help="Whether its consumers acknowledge.", show_default="as it is")
]
MaxUnacked = Annotated[
    int | None,
    typer.Option("--max-unacked", metavar="N", help="Messages that a consumer may hold; 0: any.", show_default="50000"),
]
