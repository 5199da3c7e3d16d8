"""What `Client.subscribe` does to the registry: a line that is missing is added, and what the caller states is set.

What the caller does not state stays as it is, so consumers of one subscription need not all state the same.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import Any

from deltalake import DeltaTable

from pipeline.client.checks import check_limit
from pipeline.client.choices import (
    ConsumerType,
    InitialPosition,
    KeySharedMode,
)
from pipeline.client.clock import clock_of
from pipeline.client.consuming.arguments import HowConsumed
from pipeline.client.consuming.options import ConsumerOptions
from pipeline.client.exceptions import InvalidConfiguration
from pipeline.client.subscribing.lines import Change, replace_chosen, with_history
from pipeline.client.subscribing.subscriptions import (
    Subscription,
    active,
    change,
    row_of,
    subscribe,
    subscriptions,
    with_policies,
)
from pipeline.config.errors import AlreadySubscribed, BadValue
from pipeline.delta.deltars import open_table, quoted
from pipeline.subscriptions.policies import Policies
from pipeline.subscriptions.topicnames import plain_topic, topic_of
from schemas import SUBSCRIPTIONS
from state import OutOfRange

_OWN = {each.name for each in fields(ConsumerOptions)} - {"unacked_messages_timeout_ms"}
"""What is said of a consumer under the name that its options have."""
_LISTED = 100
"""So many topics are named to those who look for their lines."""


def consumer_options(
    consumer_type: ConsumerType, how: HowConsumed, stats_interval_s: int, spell: Callable[[str], str]
) -> ConsumerOptions:
    """What is said of the consumer; the policies of each subscription say the rest."""
    own: dict[str, Any] = {name: value for name, value in how.items() if name in _OWN and value is not None}
    return ConsumerOptions(
        consumer_type, priority=how.get("priority_level", 0), stats_interval_s=stats_interval_s, spell=spell, **own
    )


def register(
    root: str, topics: Sequence[str], name: str, consumer_type: ConsumerType, how: HowConsumed
) -> dict[str, Policies]:
    """Let a subscription of each of some topics be there, acknowledging, as somebody states it.

    Args:
        root: the warehouse.
        topics: the topics.
        name: of the subscription.
        consumer_type: one that is there must have it.
        how: what is said of the subscription; one that is there must have the tick, if one is said.

    Returns:
        The policies of the subscription of each topic.

    Raises:
        NoWarehouse: there is no registry.
        InvalidConfiguration: what is stated cannot be followed.
        AlreadySubscribed: the type or the tick is another one.
        StillConflicting: others changed the line every time.
    """
    stated, keys = _stated_over(Policies(), how), how.get("key_shared_policy")
    if keys is not None and keys.key_shared_mode is KeySharedMode.Sticky:
        raise InvalidConfiguration("key_shared_policy", keys, "consumers balance slots themselves; leave AutoSplit")
    if not topics:
        return {}
    _register_new(root, topics, name, consumer_type, how)
    for topic in topics:
        mine = _of_topic(topic, name, how)
        _register_one(root, topic, name, consumer_type, mine)
        letters = mine.get("dead_letter_policy")
        if letters is not None and letters.initial_subscription_name is not None:
            where = _stated_over(Policies(), mine).dead_letters(topic, name)
            _keep_dead_letters(root, where, letters.initial_subscription_name)
    there = {each.topic: each.policies for each in active(open_table(root, SUBSCRIPTIONS), _of(topics, name))}
    return {each: there.get(each) or stated for each in topics}


def registered_for(root: str, topics: Collection[str] | None, name: str) -> set[str]:
    """Those of some topics (None: of all) that have a subscription of a name."""
    return {
        each.topic for each in subscriptions(root) if each.name == name and (topics is None or each.topic in topics)
    }


def _of_topic(topic: str, name: str, how: HowConsumed) -> HowConsumed:
    """The same for one topic: partitions share the dead-letter topic of their topic."""
    letters = how.get("dead_letter_policy")
    if letters is None or letters.dead_letter_topic is not None or topic_of(topic) == topic:
        return how
    shared = replace(letters, dead_letter_topic=Policies().dead_letters(topic_of(topic), name))
    return {**how, "dead_letter_policy": shared}


@contextmanager
def _configuring() -> Iterator[None]:
    """Let who said what cannot be followed be told so.

    Raises:
        InvalidConfiguration: a value is refused.
    """
    try:
        yield
    except BadValue as error:
        raise InvalidConfiguration(error.field, error.value, f"allowed: {error.allowed}") from error
    except OutOfRange as error:
        raise InvalidConfiguration(error.field, error.value, f"allowed: {error.low}..{error.high}") from error


@_configuring()
def _register_new(root: str, topics: Sequence[str], name: str, consumer_type: ConsumerType, how: HowConsumed) -> None:
    """Register the subscription of those topics that have none, by one commit.

    So whoever comes at the same moment finds it for all partitions of a topic, or for none.
    """

    def decide(registry: DeltaTable) -> Change | None:
        found = {each.named: each for each in active(registry, _of(topics, name))}
        for topic in topics:
            _check_same(found.get((topic, name)), consumer_type, how)
        there = {topic for topic, _ in found}
        divided = {topic_of(each) for each in there}
        rows = list[dict[str, object]]()
        for topic in (new := [each for each in topics if each not in there]):
            mine = _of_topic(topic, name, how)
            if topic_of(topic) != topic and topic_of(topic) in divided:
                # A partition that came while the consumers were away: its siblings have what was sent meanwhile.
                mine = {**mine, "initial_position": InitialPosition.Earliest}
            line = with_policies(root, _new(root, topic, name, consumer_type, mine), _stated_over(Policies(), mine))
            rows += with_history(registry, (topic, name), row_of(line, active=True)) if line is not None else []
        named = ", ".join(map(quoted, new))
        return (f"subscription = {quoted(name)} AND topic IN ({named})", rows) if new else None

    replace_chosen(root, decide)


def _of(topics: Sequence[str], name: str) -> str:
    """Says in SQL of lines that they are of a subscription, of some topics and of other partitions of theirs.

    Of many topics it says it of all: a list of names is slow.
    """
    mine = f"subscription = {quoted(name)}"
    if len(topics) > _LISTED:
        return mine
    divided = {topic_of(each) for each in topics} - set(topics)
    named = f"topic IN ({', '.join(map(quoted, topics))})"
    parts = [f"starts_with(topic, {quoted(f'{each}-partition-')})" for each in sorted(divided)]
    return f"{mine} AND ({' OR '.join([named, *parts])})"


def _check_same(found: Subscription | None, consumer_type: ConsumerType, how: HowConsumed) -> None:
    if (tick_ms := how.get("tick_ms")) is not None:
        check_limit("tick_ms", tick_ms, 1)
    if found is not None:
        both = {"type": (found.type, consumer_type.value), "tick_ms": (found.tick_ms, tick_ms)}
        differs = [f"{name} {has}, not {new}" for name, (has, new) in both.items() if new not in (None, has)]
        if differs:
            raise AlreadySubscribed(*found.named, ", ".join(differs))


def _register_one(root: str, topic: str, name: str, consumer_type: ConsumerType, how: HowConsumed) -> None:
    """Let a subscription that is there follow what is stated; one that ended since is registered again."""

    @_configuring()
    def decide(found: Subscription | None) -> Subscription | None:
        if found is None:
            return with_policies(root, _new(root, topic, name, consumer_type, how), _stated_over(Policies(), how))
        _check_same(found, consumer_type, how)
        # Who consumes does not take away a text that a newer version may follow; a command does.
        return with_policies(root, replace(found, unclear=None), _stated_over(found.policies, how))

    change(root, (topic, name), decide)


@_configuring()
def _new(root: str, topic: str, name: str, consumer_type: ConsumerType, how: HowConsumed) -> Subscription:
    start, tick_ms = how.get("initial_position", InitialPosition.Latest), how.get("tick_ms")
    tick_ms = clock_of(root).usual_tick_ms if tick_ms is None else tick_ms
    return Subscription(topic, name, consumer_type.value, start.value, tick_ms)


@_configuring()
def _stated_over(found: Policies, how: HowConsumed) -> Policies:
    """The policies of a subscription, with what is stated in the place of what there was."""
    for option in ("unacked_messages_timeout_ms", "negative_ack_redelivery_delay_ms", "max_unacked_messages"):
        if (value := how.get(option)) is not None:
            check_limit(option, value)
    numbers = {"ack_timeout_ms": how.get("unacked_messages_timeout_ms"), "max_unacked": how.get("max_unacked_messages")}
    values: dict[str, int | str | None] = {name: value for name, value in numbers.items() if value is not None}
    if (retry_ms := how.get("negative_ack_redelivery_delay_ms")) is not None:
        values |= {"retry_min_ms": retry_ms, "retry_max_ms": max(found.retry_max_ms, retry_ms)}
    if (letters := how.get("dead_letter_policy")) is not None:
        where = letters.dead_letter_topic
        values |= {
            "max_redeliveries": letters.max_redeliver_count,
            "dead_letter_topic": None if where is None else plain_topic(where),
        }
    return replace(found, ack=True, **values)  # type: ignore[arg-type] # each value is of the type of its name


def _keep_dead_letters(root: str, topic: str, name: str) -> None:
    """Register the subscription that keeps the dead letters, unless it is there."""
    if not any(each.named == (topic, name) for each in subscriptions(root)):
        subscribe(root, Subscription(topic, name, start=InitialPosition.Earliest.value, policies=Policies(ack=True)))
