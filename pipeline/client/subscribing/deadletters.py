"""Dead letters: messages that failed too often, in a topic of their own, and the way back to where they came from."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from typing import Any
from urllib.parse import quote

from deltalake import DeltaTable

from pipeline.client.clock import clock_of
from pipeline.client.producing.inbox import OutgoingMessage, rows_of_messages
from pipeline.config.errors import BadValue, PipelineError
from pipeline.delta.deltars import NumberTaken, append, open_table, query, quoted
from pipeline.subscriptions.incarnations import Name
from pipeline.subscriptions.letters import PUT_BACK
from pipeline.subscriptions.records import whole_number
from schemas import INBOX, MESSAGES, SEGMENTS, SUBSCRIPTIONS

_SENDERS = """
    SELECT DISTINCT topic, subscription FROM t
    WHERE subscription <> '' AND {topic} IN (policies['dead_letter_topic'], topic || '-' || subscription || '-DLQ')
"""
_COLUMNS = "topic, ledger_id, entry_id, message_key, properties, payload, publish_time"
_AT_ONCE = 1_000
"""So many messages are read, and sent in one commit."""
_ENTRY_BITS = 31
_ORIGIN = ("topic", "subscription", "position", "redelivery_count", "cause")
"""What settle says of a dead letter: properties with these names behind `delayline.`."""


class NotedAhead(PipelineError):
    """Somebody else noted a number under a name of ours (`txn`). Note the right one by an append of your own.

    `docs/operations.md` says which one that is, and how it is noted.
    """

    def __init__(self, table: str, name: str, number: int) -> None:
        super().__init__(
            f"{table}: the number {number} under {name!r} is ahead of all that is there; "
            "note the right one (docs/operations.md)"
        )
        self.table, self.name, self.number = table, name, number


@dataclass(frozen=True)
class DeadLetter:
    """A message of a topic of dead letters.

    Attributes:
        topic: of the dead letters.
        position: in it.
        origin: the topic that it comes from; empty: nobody says, or no subscription of that topic sends its dead
            letters here: it was sent there by somebody else.
        subscription: whose consumers could not work on it.
        origin_position: where it was, as `ledger:entry`.
        redelivery_count: how often it came again.
        cause: of its last failure.
        key: of the message.
        properties: those that its sender set.
        payload: the bytes; None: there is no value.
    """

    topic: str
    position: tuple[int, int]
    origin: str
    subscription: str
    origin_position: str
    redelivery_count: int
    cause: str
    key: str | None
    properties: Mapping[str, str | None]
    payload: bytes | None

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> "DeadLetter":
        """From a row of `messages`."""
        properties = dict(row["properties"] or ())
        origin, subscription, place, count, cause = (properties.pop(f"delayline.{name}", "") or "" for name in _ORIGIN)
        redelivered = whole_number(count) or 0
        at, key, payload = (row["ledger_id"], row["entry_id"]), row["message_key"], row["payload"]
        return cls(row["topic"], at, origin, subscription, place, redelivered, cause, key, properties, payload)

    def of_senders(self, senders: Collection[Name]) -> "DeadLetter":
        """The same, from nobody when what it says of its origin is not so: anybody may write such properties."""
        known = (self.origin, self.subscription) in senders
        return self if known else replace(self, origin="", subscription="", redelivery_count=0, cause="")

    def is_of(self, origin: Name | None) -> bool:
        """Whether it comes from a topic and subscription; None: from any."""
        return origin is None or (self.origin, self.subscription) == origin

    @property
    def again(self) -> OutgoingMessage:
        """The message to send to where it came from, without a delay."""
        ledger, entry = self.position
        properties = {**self.properties, PUT_BACK: f"{self.topic} {ledger}:{entry}"}
        return OutgoingMessage(self.origin, self.payload, key=self.key, properties=properties)


def check_letters(new: tuple[str, str | None], ways: Iterable[tuple[str, str | None]]) -> None:
    """Refuse dead letters that come back to the topic of the subscription: one bad message would go round for ever.

    Args:
        new: a topic, and the topic of the dead letters of a subscription of it.
        ways: the same of all that is there; None: there are none.

    Raises:
        BadValue: they would.
    """
    (topic, where), known = new, list(ways)
    seen, ahead = set[str | None](), [where]
    while ahead:
        seen.add(each := ahead.pop())
        ahead += {there for here, there in known if here == each and there is not None} - seen
    if topic in seen:
        raise BadValue("dead_letter_topic", where, f"one from which nothing comes back to {topic!r}")


def dead_letters(root: str, topic: str, *, origin: Name | None = None, every: bool = False) -> Iterator[DeadLetter]:
    """The messages of a topic of dead letters, in order; those that were put back are left out but for `every`.

    They stay for `run.retain_dead_letters_ms`.

    Args:
        root: the warehouse.
        topic: of the dead letters.
        origin: only those of this topic and subscription, and those of which nobody says where they come from; None:
            all of them.
        every: also those that were put back.

    Raises:
        NoWarehouse: the folder lacks a table.
        NotedAhead: somebody else noted how far letters were put back.
    """
    last = (-1, -1) if every else _put_back_upto(root, topic, origin)
    messages, senders = open_table(root, MESSAGES), _senders(root, topic)
    while True:
        found = _messages(messages, topic, f"{_behind(last)} ORDER BY ledger_id, entry_id LIMIT {_AT_ONCE}")
        letters = (each.of_senders(senders) for each in map(DeadLetter.of_row, found))
        yield from (each for each in letters if not each.origin or each.is_of(origin))
        if len(found) < _AT_ONCE:
            return
        last = found[-1]["ledger_id"], found[-1]["entry_id"]


def _senders(root: str, topic: str) -> set[Name]:
    """The subscriptions, present ones and earlier ones, whose dead letters go, or went, to a topic."""
    rows = query(_SENDERS.format(topic=quoted(topic)), t=open_table(root, SUBSCRIPTIONS))
    return {(row["topic"], row["subscription"]) for row in rows}


def letters_of(root: str, topic: str, origin: Name, positions: Sequence[str]) -> Iterator[tuple[DeadLetter, datetime]]:
    """The dead letters that were made of some messages, and when; those that ingest has not taken yet are left out.

    Args:
        root: the warehouse.
        topic: of the dead letters.
        origin: the topic and the subscription that they come from.
        positions: of the messages, as `ledger:entry`.

    Raises:
        NoWarehouse: the folder lacks a table.
    """
    named = f"properties['delayline.position'] IN ({', '.join(map(quoted, positions))})"
    for row in _messages(open_table(root, MESSAGES), topic, named):
        letter = DeadLetter.of_row(row)
        if (letter.origin, letter.subscription) == origin:
            yield letter, row["publish_time"]


def count_letters(root: str, topic: str, origin: Name) -> int:
    """How many messages of a topic of dead letters say that they come from a subscription, and were not put back.

    Raises:
        NoWarehouse: the folder lacks a table.
        NotedAhead: somebody else noted how far letters were put back.
    """
    said = (f"properties['delayline.{name}'] = {quoted(of)}" for name, of in zip(_ORIGIN[:2], origin, strict=True))
    which = " AND ".join([f"topic = {quoted(topic)}", _behind(_put_back_upto(root, topic, origin)), *said])
    (found,) = query(f"SELECT COUNT(*) AS count FROM t WHERE {which}", t=open_table(root, MESSAGES))  # noqa: S608 - quoted
    return int(found["count"])


def _behind(last: tuple[int, int]) -> str:
    return f"(ledger_id > {last[0]} OR ledger_id = {last[0]} AND entry_id > {last[1]})"


def _messages(messages: DeltaTable, topic: str, which: str) -> list[dict[str, Any]]:
    return query(f"SELECT {_COLUMNS} FROM t WHERE topic = {quoted(topic)} AND {which}", t=messages)  # noqa: S608 - quoted


def put_back(root: str, topic: str, origin: Name, most: int | None = None) -> Iterator[int]:
    """Send dead letters to the topic that they come from, in order, the first ones; give how many, commit by commit.

    Several subscriptions may share a topic of dead letters: those of one are put back without the others. Each goes to
    all subscriptions of its topic, at once, and with a property that says what it was. Delta keeps the last position
    beside the rows, so none is put back twice, wherever this is ended and however many processes do it. One of which
    nobody says where it comes from is passed over.

    Args:
        root: the warehouse.
        topic: of the dead letters.
        origin: the topic and the subscription that they come from.
        most: so many; None: all.

    Raises:
        NoWarehouse: the folder lacks a table.
        NotedAhead: somebody else noted how far letters were put back.
        StillConflicting: other writers were faster every time; earlier commits stand.
    """
    sent = 0
    while most is None or sent < most:
        behind = open_table(root, INBOX).transaction_version(_application(topic, origin))
        at_once = _AT_ONCE if most is None else min(_AT_ONCE, most - sent)
        letters = list(islice(dead_letters(root, topic, origin=origin), at_once))
        if not letters:
            return
        try:
            count = _send(root, topic, origin, letters, -1 if behind is None else behind)
        except NumberTaken:
            # Another process has put some of them back meanwhile: what is left is looked for again.
            continue
        sent += len(letters)
        yield count


def _send(root: str, topic: str, origin: Name, letters: list[DeadLetter], behind: int) -> int:
    messages = [each.again for each in letters if each.origin]
    ledger, entry = letters[-1].position
    noted = _application(topic, origin), ledger << _ENTRY_BITS | entry
    append(root, INBOX, rows_of_messages(messages, clock_of(root).wall_time()), once=noted, behind=behind)
    return len(messages)


def _put_back_upto(root: str, topic: str, origin: Name | None) -> tuple[int, int]:
    """The last position up to which all letters of one origin, or of any, were put back.

    Raises:
        NotedAhead: no message has got that far.
    """
    inbox, last = open_table(root, INBOX), -1
    for name in {_application(topic, None), _application(topic, origin)}:
        noted = inbox.transaction_version(name)
        if noted is not None and noted >> _ENTRY_BITS > _last_ledger(root):
            # Whoever appends to `inbox` may note any number under any name.
            raise NotedAhead(INBOX.name, name, noted)
        last = max(last, -1 if noted is None else noted)
    return (-1, -1) if last < 0 else (last >> _ENTRY_BITS, last & (1 << _ENTRY_BITS) - 1)


def _last_ledger(root: str) -> int:
    """The last ledger that ingest may have used. What it has accepted may have been deleted since."""
    (noted,) = query("SELECT MAX(next_ledger) AS ledger FROM t", t=open_table(root, SEGMENTS))
    (there,) = query("SELECT MAX(ledger_id) AS ledger FROM t", t=open_table(root, MESSAGES))
    return max(noted["ledger"] or 0, there["ledger"] or 0)


def _application(topic: str, origin: Name | None) -> str:
    """The name under which it is noted how far letters were put back; of one origin those of any count, too."""
    if origin is None:
        return f"delayline-put-back {topic}"
    return " ".join(["delayline-put-back-of", *(quote(each, safe="") for each in (topic, *origin))])
