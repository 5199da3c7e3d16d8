"""The history of messages, and how each stands: sent, accepted, commanded, released, published, acknowledged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Unpack

from pipeline.client.clock import clock_of
from pipeline.client.commanding.retries import waiting
from pipeline.client.insight.arguments import HowTraced
from pipeline.client.insight.facts import PUT_OFF_FROM, Facts, Position, Sent, Step, at, facts, ms_of, with_values
from pipeline.client.insight.waiting import is_held
from pipeline.client.message import MessageId
from pipeline.client.options import refuse, spelled_out
from pipeline.client.subscribing.deadletters import letters_of
from pipeline.client.subscribing.lives import lives
from pipeline.client.subscribing.subscriptions import subscriptions
from pipeline.client.subscribing.topics import topics_of
from pipeline.client.tables.logs import CursorLog
from pipeline.client.tables.partitions import topic_partitions
from pipeline.client.tables.topiclog import check_senders
from pipeline.config.errors import BadValue, check_count, check_kind, check_text
from pipeline.delta.deltars import open_table, query, quoted
from pipeline.storage.files import Files
from pipeline.subscriptions.cursors import NEWEST, block_of, cell_of
from pipeline.subscriptions.incarnations import alive
from pipeline.subscriptions.settled import read_mark
from pipeline.subscriptions.topicnames import plain_topic
from schemas import CURSORS, IDENTITY, MESSAGES, NEVER_COMES, RESCHEDULED, WAS_REPLACED
from state import Condition
from state.cells import Cell
from state.withdrawals import Round

_BLOCKS = """
    (SELECT * FROM t WHERE topic = {topic} AND subscription = {subscription} AND life = {life} AND block IN ({blocks}))
"""
_DECIDED = ("released", "left_out", "published")
"""Steps that have a redelivery count of their own."""


@dataclass(frozen=True)
class MessageState:
    """How a message stands with a subscription in its present life.

    Attributes:
        subscription: its name.
        life: its number.
        state: `waits` for its due time; `taken` by dispatch, which prepares it or is about to decide; `held` by
            dispatch, as the subscription is paused or closed or has a rate or a guard; `cancelled`; `replaced` by
            a newer message; `expired`, as it was not handed over in time; `suppressed`, as it did not meet the guard;
            `left_out` for another reason; `published`, and that is all as nobody acknowledges, or settle has not read
            it yet; `outstanding`: not acknowledged; `waits_again` after it failed; `settled`: acknowledged, cancelled,
            replaced, expired, suppressed, undeliverable, or a dead letter; `before`: it was there before the
            subscription; `gone`: it is settled, and retention has deleted what was known.
        due: when it is due, or comes again, ms UTC; None: it does not wait, or nobody says.
        redelivery_count: of its last release, or with which it comes again.
        closed_until: of what is held, when the hours of the subscription open, ms UTC; None: it is open now.
    """

    subscription: str
    life: int
    state: str
    due: int | None = None
    redelivery_count: int = 0
    closed_until: int | None = None


@dataclass(frozen=True)
class _Seen:
    """A message as a subscription sees it, and what happened to it there."""

    name: str
    life: int
    place: Position
    due: int | None
    own: Sequence[Step]

    def state(self, word: str, due: int | None = None, count: int = 0) -> MessageState:
        return MessageState(self.name, self.life, word, due, count)

    @property
    def last(self) -> int:
        """The largest redelivery count of a release."""
        return max((each.redelivery_count or 0 for each in self.own if each.what in _DECIDED), default=0)


class States:
    """How some positions of a topic stand with its subscriptions."""

    def __init__(
        self, root: str, topic: str, subscription: str | None, facts: Facts, places: Sequence[Position]
    ) -> None:
        """Look at the registry, at cursors, and at last at the mark of retention.

        Raises:
            NoWarehouse: the folder lacks a table.
            CorruptBytes: a row of `cursors` cannot be read.
        """
        self._root, self._topic, self._facts = root, topic, facts
        lines = [each for each in subscriptions(root) if each.topic == topic and subscription in (None, each.name)]
        known = alive(lives(root)) if lines else {}
        # A line that ingest has not noticed yet gets nothing so far.
        self._lives = {line.name: known[topic, line.name] for line in lines if (topic, line.name) in known}
        self._hours = {line.name: line.policies.hours for line in lines}
        acks = [line.name for line in lines if line.policies.ack and line.name in self._lives]
        # Settle has read that far in releases: what is neither open nor unknown to it is settled.
        self._read = bool(acks) and CursorLog(root, Files()).released >= facts.releases
        self._acks = {name: dict(self._open(name, places)) for name in acks}
        self._mark = read_mark(Files(), root)

    def of(self, sent: Sent, place: Position, steps: Sequence[Step]) -> Iterator[MessageState]:
        """How a message stands, by what happened to it."""
        for name, life in self._lives.items():
            own = [each for each in steps if (each.subscription, each.life) == (name, life.number)]
            seen = _Seen(name, life.number, place, sent.due, own)
            if place < (life.since or 0, life.entry):
                yield seen.state("before")
            else:
                yield self._acknowledged(seen) or self._released(seen)

    def _open(self, name: str, places: Sequence[Position]) -> Iterator[tuple[Position, Cell]]:
        blocks = ", ".join(map(str, sorted({block_of(ledger) for ledger, _ in places})))
        texts = {"topic": quoted(self._topic), "subscription": quoted(name), "life": self._lives[name].number}
        rows = query(NEWEST.format(rows=_BLOCKS.format(blocks=blocks, **texts)), t=open_table(self._root, CURSORS))
        for place in places:
            if (cell := cell_of(rows, place)) is not None:
                yield place, cell

    def _acknowledged(self, seen: _Seen) -> MessageState | None:
        """By what settle says; None: it says nothing of it."""
        if seen.name not in self._acks:
            return None
        cell = self._acks[seen.name].get(seen.place)
        if cell is None:
            is_over = self._read and any(each.what in _DECIDED for each in seen.own)
            return seen.state("settled", None, seen.last) if is_over else None
        match cell.condition:
            case Condition.OUTSTANDING:
                # From its release on settle calls it so, also while dispatch holds or prepares it.
                count = cell.redelivery_count
                came = any((each.what, each.redelivery_count) == ("published", count) for each in seen.own)
                return seen.state("outstanding", None, count) if came else None
            case Condition.WAITING:
                count = cell.redelivery_count
                word = self._withdrawn(seen, count) or ("waits_again" if count else "waits")
                return seen.state(word, self._moved(seen, count) or self._again(seen, count), count)
            case _:
                return seen.state("settled", None, seen.last)

    def _released(self, seen: _Seen) -> MessageState:
        """By what became of its last release."""
        own = [each for each in seen.own if each.redelivery_count == seen.last]
        # What got another due time is released once more for each of its rounds but the last.
        later = sum(each.details.get("reason") == RESCHEDULED for each in own if each.what == "left_out")
        last = {each.what: each for each in own if each.details.get("reason") != RESCHEDULED}
        if "published" in last:
            return seen.state("published", None, seen.last)
        if "left_out" in last:
            why = last["left_out"].details["reason"]
            return seen.state(str(why) if why in NEVER_COMES else "left_out", None, seen.last)
        if sum(each.what == "released" for each in own) > later:
            return self._held(seen) if self._is_held(seen, seen.last) else seen.state("taken", None, seen.last)
        due = self._moved(seen, seen.last)
        if due is None and (seen.due or 0) <= self._mark.due_ms and seen.place[0] < self._mark.ledger:
            return seen.state("gone")
        return seen.state(self._withdrawn(seen, 0) or "waits", due or seen.due)

    def _held(self, seen: _Seen) -> MessageState:
        hours = self._hours[seen.name]
        closed_until = None if hours is None else hours.closed_until(clock_of(self._root).wall())
        return MessageState(seen.name, seen.life, "held", None, seen.last, closed_until)

    def _moved(self, seen: _Seen, count: int) -> int | None:
        """When it is due by commands; None: they gave it no other time."""
        moved = self._facts.moved.get(Round(self._topic, seen.name, seen.life, count))
        return None if moved is None else moved.due_at(seen.place)

    def _withdrawn(self, seen: _Seen, count: int) -> str | None:
        """Why it will not come; None: it will."""
        if not count and self._facts.is_replaced(seen.place):
            return WAS_REPLACED
        positions = self._facts.in_force.get(Round(self._topic, seen.name, seen.life, count))
        return "cancelled" if positions is not None and seen.place[1] in positions.entries(seen.place[0]) else None

    def _is_held(self, seen: _Seen, count: int) -> bool:
        return is_held(self._root, Round(self._topic, seen.name, seen.life, count), seen.place)

    def _again(self, seen: _Seen, count: int) -> int | None:
        """When it comes again."""
        found = waiting(self._root, (self._topic, seen.name), self._lives[seen.name])
        times = (each.due_at(seen.place) for each in found if each.of.redelivery_count == count)
        return next((due for due in times if due is not None), None)


_ORDER = ("replaced", "cancel", "undo", "released", "left_out", "published", "nack", "closed", "ack", "dead_letter")
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


@spelled_out(HowTraced)
def trace(root: str, topic: str, subscription: str | None = None, **how: Unpack[HowTraced]) -> list[Trace]:
    """The history of the newest messages with a key, or of one message by its id or position; the oldest of them first.

    It is told by the tables alone, as far as they keep it. A key is looked for in the columns of keys of `messages` and
    `deliveries`, a position by the statistics of files, the id of a sent message by its producer's name and number.

    Args:
        root: the warehouse.
        topic: the topic, with its partitions.
        subscription: only what happened to this one; None: to all.
        **how: see `HowTraced`.

    Raises:
        NoWarehouse: the folder lacks a table.
        BadValue: not one of key, id and position; a text is not Unicode; the limit is not positive.
    """
    refuse({}, how, HowTraced.__optional_keys__)
    key, message_id, limit = how.get("key"), how.get("message_id"), how.get("limit", 20)
    position = how.get("position")
    for name, text in (("topic", topic), ("key", key), ("subscription", subscription)):
        check_text(name, text)
    if sum(each is not None for each in (key, message_id, position)) != 1:
        raise BadValue("key", key, "a key, or an id or a position instead")
    check_count("limit", limit)
    if position is not None:
        check_kind("position", position, tuple, "(ledger, entry)")
        if [type(each) for each in position] != [int, int]:
            raise BadValue("position", position, "(ledger, entry), whole numbers")
    topic = plain_topic(topic)
    # Before a topic was divided its messages were its own.
    topics = [topic, *topic_partitions(root, topic)] if message_id is None else topics_of(root, topic, message_id)
    found = {each: _meant(root, each, key, message_id, position, limit) for each in dict.fromkeys(topics)}
    newest = sorted(((each, sent) for each in found for sent in found[each]), key=lambda each: _order(each[1]))[-limit:]
    named = {each: [sent for of, sent in newest if of == each] for each in found}
    traces = {each: _traces(root, each, subscription, sent) for each, sent in named.items() if sent}
    return [next(traces[each]) for each, _ in newest]


def _order(sent: Sent) -> tuple[int, Position]:
    """By position; then what was refused, and what ingest has not taken."""
    if sent.position is not None:
        return 0, sent.position
    return 1 if sent.refused is not None else 2, (0, sent.published or 0)


def _traces(root: str, topic: str, subscription: str | None, sent: Sequence[Sent]) -> Iterator[Trace]:
    """The histories of messages of one topic."""
    places = [each.position for each in sent if each.position is not None]
    if not places:
        yield from (Trace(topic, each, tuple(_begin(each)), ()) for each in sent)
        return
    known = facts(root, topic, subscription, places)
    states = States(root, topic, subscription, known, places)
    letters = _letters(root, topic, subscription, sent)
    for each in sent:
        place, steps = each.position, list(_begin(each))
        if place is not None:
            steps = [*_with_replaced(steps, known.replaces(place)), *known.steps(place), *letters.get(place, ())]
        standing = () if place is None else tuple(states.of(each, place, steps))
        yield Trace(topic, each, _sorted(steps), standing)


def _meant(
    root: str, topic: str, key: str | None, message_id: MessageId | None, position: Position | None, limit: int
) -> list[Sent]:
    """The messages that somebody asks about."""
    if key is not None:
        return with_values(root, topic, {"message_key": key}, limit)
    if message_id is not None and message_id.is_sent and message_id.identity is not None:
        check_senders(open_table(root, MESSAGES))
        named = with_values(root, topic, dict(zip(IDENTITY, message_id.identity, strict=False)), limit)
        published = message_id.identity.published
        # A producer counts anew in each partition, and when its topic is divided.
        found = [each for each in named if published < 0 or each.published in (None, published // 1_000)]
        # What ingest takes at this moment is in the inbox and in the log, and would be told twice.
        return [each for each in found if each.position is not None or each.refused is not None] or found
    place = position if message_id is None else message_id.position
    return at(root, topic, [place] if place else [])


def _begin(sent: Sent) -> Iterator[Step]:
    """What happened to a message before it was anybody's."""
    yield Step("sent", sent.published)
    if sent.refused is not None:
        yield sent.refused
    elif sent.position is not None:
        ledger, entry = sent.position
        put_off = {} if sent.put_off_from is None else {PUT_OFF_FROM: sent.put_off_from}
        yield Step("accepted", None, details={"position": f"{ledger}:{entry}", "due": sent.due, **put_off})


def _with_replaced(steps: Sequence[Step], replaced: str | None) -> Iterator[Step]:
    """The same steps; that of acceptance says what the message replaced."""
    for each in steps:
        is_told = each.what == "accepted" and replaced is not None
        yield replace(each, details={**each.details, "replaces": replaced}) if is_told else each


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
