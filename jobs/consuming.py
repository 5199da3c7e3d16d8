"""The commands around acknowledgement, beside those of `jobs.cli`: how subscriptions stand, consuming, dead letters."""
# ruff: noqa: PLC0415 - each command imports what it needs when it runs, see `jobs.cli`

import time as clock
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jobs.commands import options
from jobs.commands.durations import UNITS_MS
from jobs.commands.jsonform import json_line
from jobs.commands.options import AnySubscription, AnyTopic, AsJson, Subscription, Topic, Warehouse
from jobs.commands.policies import flags, lines, named, stated
from jobs.groups import CHANGE, LOOK, MESSAGES, App
from jobs.terminal import echo, tell
from pipeline.client.subscribing.policysetting import set_policy as set_some
from pipeline.client.subscribing.subscriptions import unsubscribe as end
from pipeline.config.printed import printable
from pipeline.subscriptions.policies import Policies
from pipeline.subscriptions.topicnames import plain_topic
from pipeline.subscriptions.topicpolicies import TopicPolicies

if TYPE_CHECKING:
    from pipeline.client.subscribing.seeking import Where

app = App()
policy = App(help="Delays of a topic; acknowledgement of a subscription, and what becomes of what fails.")
dead_letters = App(help="Messages that failed too often.")
app.add_typer(policy, name="policy", rich_help_panel=MESSAGES)
app.add_typer(dead_letters, name="dead-letters", rich_help_panel=MESSAGES)
_TOPICS = TopicPolicies.rows
_OF_A_TOPIC = "delays, --precision and windows are policies of a topic: leave --subscription out"
_OF_A_SUBSCRIPTION = (
    "only delays, --precision, windows and --ttl are policies of a topic: name a subscription with --subscription"
)
_OfSubscription = Annotated[
    str | None,
    typer.Option("--subscription", "-s", help="Policies of this subscription.", show_default="of the topic"),
]
_DeadTopic = Annotated[
    str | None,
    typer.Option(
        "--dead-letter-topic",
        metavar="TOPIC",
        parser=plain_topic,
        help="Another topic of dead letters.",
        show_default="by the policies",
    ),
]


@app.command(panel=MESSAGES)
def unsubscribe(warehouse: Warehouse, topic: Topic, subscription: Subscription) -> None:
    """End a subscription. If it comes back under its name, it begins anew, and nothing of before is open for it."""
    end(warehouse, topic, subscription)
    tell(f"{printable(f'{topic}/{subscription}')} is ended")


@app.command(panel=MESSAGES)
def topic(
    warehouse: Warehouse,
    topic: Topic,
    partitions: Annotated[
        int | None,
        typer.Option("--partitions", min=1, help="Divide it into so many, or into more than it has."),
    ] = None,
) -> None:
    """Print the partitions of a topic, after it was divided if that is asked for. Divide it before you send to it."""
    from pipeline.client.subscribing.topics import create_partitioned_topic
    from pipeline.client.tables.partitions import topic_partitions

    if partitions is not None:
        from jobs.commands.names import warn_of_new

        warn_of_new(warehouse, topic)
        for each in create_partitioned_topic(warehouse, topic, partitions):
            echo(f"{each} was a topic of its own, with messages or subscriptions; it is a partition now", err=True)
    for each in topic_partitions(warehouse, topic):
        tell(printable(each))


@app.command(panel=CHANGE)
def clear(
    warehouse: Warehouse,
    topic: Topic,
    subscription: Subscription,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what it would drop, and do nothing.")] = False,
) -> None:
    """Drop all that is open for a subscription, and all that waits for its time; it goes on with what is sent later."""
    from pipeline.client.message import MessageId

    _seek(warehouse, (topic, subscription), lambda _: MessageId.latest, dry=dry_run)


@app.command(panel=CHANGE)
def seek(
    warehouse: Warehouse,
    topic: Topic,
    subscription: Subscription,
    *,
    position: options.Position = None,
    time: options.Since = None,
    earliest: Annotated[bool, typer.Option("--earliest", help="From the beginning of the log.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what it would drop and bring, and do nothing.")
    ] = False,
) -> None:
    """Let a subscription begin anew at a place of its topic's log; what is open for it is dropped."""
    from pipeline.client.message import MessageId

    if sum((position is not None, time is not None, earliest)) != 1:
        raise typer.BadParameter("say one of --position, --time and --earliest")

    def where(log: str) -> MessageId | int:
        if position is not None:
            return MessageId.of(log, position.ledger, position.entry)
        return MessageId.earliest if time is None else time

    _seek(warehouse, (topic, subscription), where, dry=dry_run)


@policy.command("set")
@options.with_policies([*_TOPICS.values(), *(row for row in Policies.rows.values() if row.name not in _TOPICS)])
def set_policy(
    warehouse: Warehouse,
    topic: Topic,
    subscription: _OfSubscription = None,
    *,
    no_sink: Annotated[bool, typer.Option("--no-sink", help="Publish in no broker any more.")] = False,
    **values: Any,  # noqa: ANN401 - of policies
) -> None:
    """Change policies; what is not named stays as it is. They count from the next batch of a running job on."""
    from jobs.commands.names import heard_by

    given, known = stated(values), _TOPICS if subscription is None else Policies.rows
    if no_sink:
        sinks = {name: row for name, row in Policies.rows.items() if "sink" in (name, row.needs)}
        if not given.keys().isdisjoint(sinks):
            raise typer.BadParameter(f"--no-sink excludes {flags(sinks.values())}")
        given |= {"sink": None, "sink_after": None}
    if not given.keys() <= known.keys():
        raise typer.BadParameter(_elsewhere(subscription))
    if subscription is None and not given:
        raise typer.BadParameter(f"say one of {flags(_TOPICS.values())}, or name a subscription")
    fresh = set_some(warehouse, topic, subscription, **given)
    if subscription is None:
        heard_by(warehouse, topic)
    tell(f"{_named(topic, subscription)} {'has other policies' if fresh else 'had these already'}")


@app.command(panel=CHANGE)
def pause(warehouse: Warehouse, topic: Topic, subscription: Subscription) -> None:
    """Hold what becomes due for a subscription, until it is resumed. What is prepared, for seconds, still comes."""
    fresh = set_some(warehouse, topic, subscription, paused=True)
    tell(f"{_named(topic, subscription)} is paused{'' if fresh else ' already'}")


@app.command(panel=CHANGE)
def resume(warehouse: Warehouse, topic: Topic, subscription: Subscription) -> None:
    """Let a paused subscription go on: what was held comes first, in order."""
    fresh = set_some(warehouse, topic, subscription, paused=False)
    tell(f"{_named(topic, subscription)} {'goes on' if fresh else 'was not paused'}")


@policy.command("unset", context_settings={"ignore_unknown_options": True})
def unset_policy(
    warehouse: Warehouse,
    topic: Topic,
    names: Annotated[
        list[str], typer.Argument(help="Names of policies, as `policy set` or as `policy show --json` has them.")
    ],
    subscription: _OfSubscription = None,
) -> None:
    """Give policies their defaults again. That counts from the next batch of a running job on."""
    from pipeline.client.subscribing.policysetting import unset_policy as unset

    known = _TOPICS if subscription is None else Policies.rows
    fresh = unset(warehouse, topic, *named(names, known.values()), subscription=subscription)
    tell(f"{_named(topic, subscription)} {'has other policies' if fresh else 'had these already'}")


@policy.command("show")
def show_policy(
    warehouse: Warehouse,
    topic: Topic,
    subscription: _OfSubscription = None,
    *,
    history: Annotated[bool, typer.Option("--history", help="What they were, the oldest first.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print the policies, as they are followed."""
    from jobs.commands import policies as command
    from pipeline.client.subscribing.policysetting import followed_since, policies_of, policy_history

    found = policies_of(warehouse, topic, subscription)
    if history:
        held = policy_history(warehouse, topic, subscription)
        printed = map(json_line, held) if as_json else command.past(held)
    elif as_json:
        printed = iter([json_line(found)])
    elif isinstance(found, Policies):
        printed = lines(topic, subscription or "", found)
    else:
        printed = command.topic_lines(found, followed_since(warehouse, topic))
    for line in printed:
        echo(line)


@app.command(panel=LOOK)
def subscriptions(
    warehouse: Warehouse, topic: AnyTopic = None, subscription: AnySubscription = None, *, as_json: AsJson = False
) -> None:
    """List subscriptions: what is pending, outstanding and waiting, the oldest that is open, how many consumers."""
    from jobs.commands import subscriptions as command
    from pipeline.client.insight.pending import pending
    from pipeline.client.insight.standing import standings

    found, backlog = standings(warehouse, topic, subscription), pending(warehouse, topic, subscription)
    report = command.report(found, backlog, clock.time_ns() // 1_000_000)
    for line in [command.as_json(found, backlog)] if as_json else report:
        echo(line)


@app.command(panel=LOOK)
def sinks(warehouse: Warehouse, *, as_json: AsJson = False) -> None:
    """List sinks: how much they have published, how far they are behind, and why one stands still."""
    from jobs.commands import sinks as command

    for line in [command.as_json(warehouse)] if as_json else command.report(warehouse):
        echo(line)


@app.command(panel=LOOK)
def sources(warehouse: Warehouse, *, as_json: AsJson = False) -> None:
    """List sources: how much they have taken in, how far they are behind, and why one stands still."""
    from jobs.commands import sources as command

    for line in [command.as_json(warehouse)] if as_json else command.report(warehouse):
        echo(line)


@app.command(panel=LOOK)
def consumers(
    warehouse: Warehouse, topic: AnyTopic = None, subscription: AnySubscription = None, *, as_json: AsJson = False
) -> None:
    """List consumers, and which slots of their subscription each of them has."""
    from jobs.commands import subscriptions as command
    from pipeline.client.insight.standing import settled_at, standings

    settled, found = settled_at(warehouse), standings(warehouse, topic, subscription)
    for line in [command.consumers_json(found, settled)] if as_json else command.consumers(found, settled):
        echo(line)


@app.command(panel=MESSAGES)
def consume(  # noqa: PLR0913 - a parameter is an option
    warehouse: Warehouse,
    topic: Topic,
    subscription: Subscription,
    *,
    name: Annotated[str | None, typer.Option("--consumer", "--name", help="Its name.", show_default="drawn")] = None,
    follow: Annotated[bool, typer.Option("--follow/--no-follow", help="Wait for more; Ctrl-C ends it.")] = True,
    wait: Annotated[
        int, options.duration("--wait", "With --no-follow, the end when nothing came for so long", "5s")
    ] = 5 * UNITS_MS["s"],
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, help="End after so many.")] = None,
    nack_rate: Annotated[
        float, typer.Option("--nack-rate", min=0, max=1, help="This share of them fails, drawn at random.")
    ] = 0.0,
    as_json: AsJson = False,
) -> None:
    """Receive messages of a subscription that acknowledges, print them, and acknowledge them."""
    from jobs.commands import consume as command

    form = command.as_json if as_json else command.line
    choices = command.Choices(name, follow, wait, limit, nack_rate)
    note = partial(echo, err=True)
    done, failed = command.consume(warehouse, (topic, subscription), choices, command.Says(echo, form, note))
    echo(f"{done:,} acknowledged, {failed:,} failed", err=True)


@dead_letters.command("list")
def list_dead_letters(
    warehouse: Warehouse,
    topic: Topic,
    subscription: Subscription,
    dead_letter_topic: _DeadTopic = None,
    *,
    every: Annotated[bool, typer.Option("--all", help="Also those that were put back.")] = False,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, help="So many at most.")] = None,
    as_json: AsJson = False,
) -> None:
    """Print the dead letters of a subscription, the oldest first, with where each was and why it failed."""
    from itertools import chain, islice

    from jobs.commands import deadletters as command
    from pipeline.client.subscribing.deadletters import dead_letters as letters

    ways = command.ways(warehouse, topic, subscription, dead_letter_topic)
    found = chain.from_iterable(letters(warehouse, dead, origin=origin, every=every) for origin, dead in ways)
    for each in islice(found, limit):
        echo(command.as_json(each) if as_json else command.line(each))


@dead_letters.command("put-back")
def put_back_dead_letters(
    warehouse: Warehouse,
    topic: Topic,
    subscription: Subscription,
    dead_letter_topic: _DeadTopic = None,
    *,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, help="So many, the oldest first.")] = None,
) -> None:
    """Send dead letters to their topic again, without a delay: each once. All subscriptions of the topic get them."""
    from jobs.commands import deadletters as command
    from jobs.progress import on_step
    from pipeline.client.subscribing.deadletters import count_letters, put_back

    ways, done = command.ways(warehouse, topic, subscription, dead_letter_topic), 0
    there = sum(count_letters(warehouse, dead, origin) for origin, dead in ways)
    try:
        for origin, dead in ways:
            for count in put_back(warehouse, dead, origin, None if limit is None else limit - done):
                done += count
                on_step("put back", done, max(done, there if limit is None else min(there, limit)))
    except BaseException:
        if done:
            tell(f"{done:,} put back")
        raise
    tell(f"{done:,} put back" if done else "nothing to put back")


def _seek(root: str, name: tuple[str, str], where: "Callable[[str], Where]", *, dry: bool) -> None:
    """Say what a seek does, and do it, unless it is `dry`; `where` gives the place in the log of a topic."""
    from jobs.commands import seek as command
    from pipeline.client.insight.prospect import prospect
    from pipeline.client.subscribing.seeking import seek as begin
    from pipeline.client.subscribing.subscriptions import meant

    for each in meant(root, *name):
        found = prospect(root, *each.named, where(each.topic))
        if not dry:
            begin(root, *each.named, found.position)
        for line in command.report("/".join(each.named), found, dry=dry):
            tell(line)


def _elsewhere(subscription: str | None) -> str:
    """Why policies that are named are none of what they are named for."""
    if subscription is None:
        return f"only {flags(_TOPICS.values())} are policies of a topic: name a subscription with --subscription"
    own = (row for row in _TOPICS.values() if row.name not in Policies.rows)
    return f"{flags(own)} are policies of a topic: leave --subscription out"


def _named(topic: str, subscription: str | None) -> str:
    return printable(topic if subscription is None else f"{topic}/{subscription}")
