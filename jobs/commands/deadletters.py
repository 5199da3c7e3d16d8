"""`delayline dead-letters`: what failed too often, as text or JSON, and the way back."""

from jobs.commands.jsonform import json_line, record
from pipeline.client.exceptions import SubscriptionNotFound
from pipeline.client.subscribing.deadletters import DeadLetter
from pipeline.client.subscribing.subscriptions import meant
from pipeline.config.printed import printable
from pipeline.subscriptions.incarnations import Name
from pipeline.subscriptions.policies import Policies

_SHOWN = 60
"""Characters of a payload."""


def ways(root: str, topic: str, subscription: str, dead_letter_topic: str | None) -> list[tuple[Name, str]]:
    """The subscriptions that a topic and a name mean, each with the topic of its dead letters.

    That is the one that is given, that of its policies, or the usual one. One that has ended is named as it was.

    Raises:
        NoWarehouse: the folder has no registry.
    """
    try:
        found = {each.named: each.policies for each in meant(root, topic, subscription)}
    except SubscriptionNotFound:
        found = {(topic, subscription): Policies()}
    return [(name, dead_letter_topic or policies.dead_letters(*name)) for name, policies in found.items()]


def topic_of(root: str, topic: str, subscription: str) -> str:
    """The topic of the dead letters of a subscription of this very topic.

    Raises:
        NoWarehouse: the folder has no registry.
    """
    known = (dead for name, dead in ways(root, topic, subscription, None) if name == (topic, subscription))
    return next(known, Policies().dead_letters(topic, subscription))


def line(letter: DeadLetter) -> str:
    """A dead letter for people."""
    key = f" [{printable(letter.key)}]" if letter.key else ""
    text = printable((letter.payload or b"").decode(errors="backslashreplace"))
    text = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
    place, origin = f"{letter.position[0]}:{letter.position[1]}", printable(f"{letter.origin}/{letter.subscription}")
    why = f"{letter.cause} after {letter.redelivery_count} redeliveries" if letter.origin else "nobody says from where"
    return f"{place}  {origin} {letter.origin_position}{key}  {text}  ({why})"


def as_json(letter: DeadLetter) -> str:
    """The same for scripts."""
    return json_line(
        record(
            dead_letter_topic=letter.topic,
            position=letter.position,
            topic=letter.origin,
            subscription=letter.subscription,
            topic_position=letter.origin_position,
            redelivery_count=letter.redelivery_count,
            cause=letter.cause,
            key=letter.key,
            properties=letter.properties,
            payload=letter.payload,
        )
    )
