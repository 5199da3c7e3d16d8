"""The history of messages: sent, accepted, commanded, released, left out or published, acknowledged, come again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypedDict, Unpack

from pipeline.client.subscribing.deadletters import letters_of
from pipeline.client.subscribing.subscriptions import subscriptions
from pipeline.client.tracing.facts import facts
from pipeline.client.tracing.places import Position, Sent, at, with_key
from pipeline.client.tracing.states import MessageState, States
from pipeline.client.tracing.step import Step, ms_of
from pipeline.config.errors import BadValue, check_text

_ORDER = ("cancel", "undo", "released", "left_out", "published", "nack", "closed", "ack", "dead_letter")
"""Of what happened in one millisecond."""


@dataclass(frozen=True)
class Trace:
    """A message and its history.

    Attributes:
        topic: its topic.
        sent: the message as it was sent.
        steps: what happened, in order. What consumers said is kept for an hour.
        states: how it stands with each subscription that there is now, by name; nothing for a message that ingest
            has not taken, or has refused.
    """

    topic: str
    sent: Sent
    steps: tuple[Step, ...]
    states: tuple[MessageState, ...]


class HowTraced(TypedDict, total=False):
    """Whose history is told; either a key or a position.

    Attributes:
        key: of messages.
        position: or (ledger, entry) of one; `MessageId.position` has it.
        limit: so many messages at most, 20 when nothing is said.
    """

    key: str | None
    position: Position | None
    limit: int


def trace(root: str, topic: str, subscription: str | None = None, **how: Unpack[HowTraced]) -> list[Trace]:
    """The history of the newest messages with a key, or of the message at a position; the oldest of them first.

    It is told by the tables alone, as far as they keep it. A key is looked for in the columns of keys of `messages` and
    `deliveries`, a position by the statistics of files.

    Args:
        root: the warehouse.
        topic: the topic.
        subscription: only what happened to this one; None: to all.
        **how: see `HowTraced`.

    Raises:
        NoWarehouse: the folder lacks a table.
        BadValue: neither key nor position, or both; a text is not Unicode; the limit is not positive.
    """
    key, position, limit = how.get("key"), how.get("position"), how.get("limit", 20)
    for name, text in (("topic", topic), ("key", key), ("subscription", subscription)):
        check_text(name, text)
    if (key is None) == (position is None):
        raise BadValue("key", key, "a key, or a position instead")
    if limit < 1:
        raise BadValue("limit", limit, "1 or more")
    sent = with_key(root, topic, key, limit) if key is not None else at(root, topic, [position] if position else [])
    places = [each.position for each in sent if each.position is not None]
    if not places:
        return [Trace(topic, each, tuple(_begin(each)), ()) for each in sent]
    known = facts(root, topic, subscription, places)
    states = States(root, topic, subscription, known, places)
    letters = _letters(root, topic, subscription, sent)
    found = []
    for each in sent:
        place, steps = each.position, list(_begin(each))
        if place is not None:
            steps += [*known.steps(place), *letters.get(place, ())]
        standing = () if place is None else tuple(states.of(each, place, steps))
        found.append(Trace(topic, each, _sorted(steps), standing))
    return found


def _begin(sent: Sent) -> Iterator[Step]:
    """What happened to a message before it was anybody's."""
    yield Step("sent", sent.published)
    if sent.refused is not None:
        yield sent.refused
    elif sent.position is not None:
        ledger, entry = sent.position
        yield Step("accepted", None, details={"position": f"{ledger}:{entry}", "due": sent.due})


def _letters(root: str, topic: str, subscription: str | None, sent: Sequence[Sent]) -> dict[Position, list[Step]]:
    """The dead letters that were made of messages, for subscriptions that make some."""
    found: dict[Position, list[Step]] = {}
    wanted = {"{}:{}".format(*each.position): each.position for each in sent if each.position is not None}
    for line in subscriptions(root):
        if line.topic != topic or subscription not in (None, line.name) or line.policies.max_redeliveries is None:
            continue
        named = line.policies.dead_letters(topic, line.name)
        for letter, published in letters_of(root, named, (topic, line.name), list(wanted)):
            ledger, entry = letter.position
            details = {"topic": letter.topic, "position": f"{ledger}:{entry}", "cause": letter.cause}
            step = Step("dead_letter", ms_of(published), line.name, None, letter.redelivery_count, details)
            found.setdefault(wanted[letter.origin_position], []).append(step)
    return found


def _sorted(steps: Sequence[Step]) -> tuple[Step, ...]:
    """By time, behind what is the same for all subscriptions; what has no time comes last."""
    ranks = {what: rank for rank, what in enumerate(_ORDER)}
    rest = [each for each in steps if each.subscription is not None]
    rest.sort(key=lambda each: (each.at is None, each.at or 0, ranks.get(each.what, -1), each.subscription))
    return (*(each for each in steps if each.subscription is None), *rest)
