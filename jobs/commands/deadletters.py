"""`delayline dead-letters`: what failed too often, as text or JSON, and the way back."""

from jobs.commands.jsonform import json_line, record
from pipeline.client.subscribing.deadletters import DeadLetter
from pipeline.client.subscribing.subscriptions import subscriptions
from pipeline.config.printed import printable
from pipeline.subscriptions.policies import Policies

_SHOWN = 60
"""Characters of a payload."""


def topic_of(root: str, topic: str, subscription: str) -> str:
    """The topic of the dead letters of a subscription: that of its policies, or the usual one.

    Raises:
        NoWarehouse: the folder has no registry.
    """
    known = (each.policies for each in subscriptions(root) if each.named == (topic, subscription))
    return next(known, Policies()).dead_letters(topic, subscription)


def line(letter: DeadLetter) -> str:
    """A dead letter for people."""
    key = f" [{printable(letter.key)}]" if letter.key else ""
    text = printable(letter.payload.decode(errors="backslashreplace"))
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
