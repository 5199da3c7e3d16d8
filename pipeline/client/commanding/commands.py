"""Commands over messages that wait, and taking them back: rows of `commands`, one commit each (0057, 0058)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Unpack
from uuid import uuid4

import numpy as np
import pyarrow as pa

from pipeline.client.checks import time_us
from pipeline.client.clock import clock_of
from pipeline.client.commanding.arguments import HowCommanded, HowGiven
from pipeline.client.commanding.conditions import condition_of
from pipeline.client.commanding.inforce import Chosen, Named, at_work
from pipeline.client.commanding.openings import Openings
from pipeline.client.commanding.outcomes import remaining
from pipeline.client.commanding.selecting import Selection, choose, selection
from pipeline.client.options import refuse, spelled_out
from pipeline.client.subscribing.topics import topics_of
from pipeline.client.tables.topiclog import TopicLog, located
from pipeline.config.errors import BadValue, check_kind, check_text
from pipeline.delta.deltars import append, open_table
from pipeline.storage.arrays import IntArray, arrow_schema, completed, longs
from pipeline.subscriptions.commands import CANCEL, MAX_RUN, RELEASE, RESCHEDULE, SHIFT, UNDO
from pipeline.subscriptions.topicnames import plain_topic
from schemas import COMMANDS
from state.buckets import MAX_TIME
from state.positionset import PositionSet


def write(root: str, named: Sequence[Named], columns: Mapping[str, object]) -> str:
    """Write a command; give its id. What is to be due at another time gets a round of its own.

    Raises:
        StillConflicting: others wrote at the same time, every time; nothing was written.
    """
    whole = {**columns, "command_id": str(uuid4()), "at": clock_of(root).wall_time()}
    append(root, COMMANDS, pa.concat_tables([rows_of(chosen, due, whole) for chosen, due in named]))
    return str(whole["command_id"])


def rows_of(chosen: Chosen, due: IntArray | None, columns: Mapping[str, object]) -> pa.Table:
    """Rows that name some positions, a row for each run; one that is to be due at another time has one, and had one.

    Args:
        chosen: the positions, at least one.
        due: when each is to be due, as in `Named`.
        columns: other columns, the same in all rows.
    """
    times = () if due is None else (due, chosen.due, chosen.rounds)
    heads = _heads(chosen.ledgers, chosen.entries - np.arange(len(chosen.entries)), *times)
    ends = np.append(heads[1:], len(chosen.entries)) - 1
    until = chosen.until if due is None else np.maximum(due, chosen.until)
    values: dict[str, pa.Array] = {
        "ledger_id": pa.array(chosen.ledgers[heads]),
        "first_entry": pa.array(chosen.entries[heads]),
        "last_entry": pa.array(chosen.entries[ends]),
        "due_time": _until(chosen.ledgers, until, heads),
    }
    if due is not None:
        values["round"] = pa.array(chosen.rounds[heads] + 1)
        values["deliver_at"], values["due_before"] = _times(due[heads]), _times(chosen.due[heads])
    return completed(arrow_schema(COMMANDS.columns), values, {**chosen.of._asdict(), **columns}, len(heads))


def _heads(*columns: IntArray) -> IntArray:
    """Where runs begin: where a column has another value, and where a run would get longer than `MAX_RUN`."""
    anew = np.append([True], np.logical_or.reduce([np.diff(each) != 0 for each in columns]))
    places = np.arange(len(anew))
    begun = np.maximum.accumulate(np.where(anew, places, 0))
    return np.flatnonzero((places - begun) % MAX_RUN == 0)


def _until(ledgers: IntArray, until: IntArray, rows: IntArray) -> pa.Array:
    """Until when rows count, said by ledger: as long as any position that is named there."""
    heads = np.flatnonzero(np.diff(ledgers, prepend=-1))
    latest = np.maximum.reduceat(until, heads)
    return _times(latest[np.searchsorted(ledgers[heads], ledgers[rows])])


def _times(ms: IntArray) -> pa.Array:
    return pa.array(ms * 1_000).cast(arrow_schema(COMMANDS.columns).field("due_time").type)


@dataclass(frozen=True)
class Command:
    """A command that was given, or would be.

    Attributes:
        command_id: its id; None: nothing was written, because it was a dry run, or because it names nothing.
        kind: `cancel`, `reschedule`, `shift`, `release` or `undo`.
        selection: the messages that it names, with the times at which they were due.
        first_then: when the first of them is due after the command, ms UTC; None: it gives no other time, or names
            nothing.
        last_then: when the last of them is due then.
    """

    command_id: str | None
    kind: str
    selection: Selection
    first_then: int | None = None
    last_then: int | None = None


@spelled_out(HowGiven, HowCommanded)
def cancel(root: str, topic: str, subscription: str | None = None, **how: Unpack[HowCommanded]) -> Command:
    """Cancel messages that wait for their first delivery, or that failed and wait to come again, by one commit.

    What dispatch has taken already is delivered all the same: a few seconds before a message is due it is too late.
    `pipeline.client.commanding.outcomes` tells what became of a command.

    Args:
        root: the warehouse.
        topic: the topic.
        subscription: for this one only; None: for all subscriptions that the topic has now.
        **how: see `HowGiven` and `HowCommanded`. A condition is one over the columns `topic`, `subscription`,
            `message_key`, `properties`, `due_time`, `publish_time`, `payload_bytes`, `ledger_id`, `entry_id` and
            `redelivery_count`.

    Raises:
        NoWarehouse: the folder lacks a table; one that an earlier version made gets it at a start.
        SubscriptionNotFound: there is no such subscription, or none at all.
        BadValue: not one of key, message, condition and positions; what is given cannot be followed; a text is not
            Unicode; ingest does not know the subscription yet.
        InvalidMessage, Timeout: ingest has refused the message that is named, or does not take it.
        StillConflicting: others wrote at the same time, every time; nothing was written.
    """
    named: list[Named] = [(each, None) for each in _chosen(root, topic, subscription, how)]
    return _written(root, CANCEL, named, {"asked": _asked(how)}, how)


@spelled_out(HowGiven, HowCommanded)
def reschedule(
    root: str, topic: str, subscription: str | None = None, *, to: datetime | int, **how: Unpack[HowCommanded]
) -> Command:
    """Give messages that wait another due time, by one commit; a time that has passed is now.

    A time at which the window of the topic is not open moves to the next opening, for this and all other commands that
    give a due time.

    What dispatch has taken already is delivered when it was to be. A running job follows within seconds.

    Args:
        root: the warehouse.
        topic: the topic.
        subscription: for this one only; None: for all subscriptions that the topic has now.
        to: when they are due; with its time zone, or ms since 1970.
        **how: as for `cancel`.

    Raises:
        NoWarehouse, SubscriptionNotFound, BadValue, StillConflicting: as for `cancel`; or the time has no zone, or lies
            before 1970 or after 9999.
    """
    # Rounded up: never early.
    at = -(-time_us("to", to) // 1_000)
    if not 0 <= at <= MAX_TIME:
        raise BadValue("to", to, "a time from 1970 to 9999")
    return _move(root, topic, subscription, RESCHEDULE, lambda due: np.full(len(due), at), how)


@spelled_out(HowGiven, HowCommanded)
def shift(
    root: str, topic: str, subscription: str | None = None, *, span: timedelta, **how: Unpack[HowCommanded]
) -> Command:
    """Let messages that wait come later by a span of time, or earlier by a negative one, by one commit.

    What would be due in the past is due now. What dispatch has taken already is delivered when it was to be.

    Args:
        root: the warehouse.
        topic: the topic.
        subscription: for this one only; None: for all subscriptions that the topic has now.
        span: how much later, in whole milliseconds.
        **how: as for `cancel`.

    Raises:
        NoWarehouse, SubscriptionNotFound, BadValue, StillConflicting: as for `cancel`; or the span is none, or leads
            beyond the year 9999.
    """
    check_kind("span", span, timedelta, "a timedelta")
    ms = span // timedelta(milliseconds=1)
    if not ms or abs(ms) > MAX_TIME:
        raise BadValue("span", span, "a span of time of at least a millisecond")

    def then(due: IntArray) -> IntArray:
        if int(due.max()) + ms > MAX_TIME:
            raise BadValue("span", span, "a span that does not lead beyond the year 9999")
        return np.maximum(due + ms, 0)

    return _move(root, topic, subscription, SHIFT, then, how)


@spelled_out(HowGiven, HowCommanded)
def release_now(root: str, topic: str, subscription: str | None = None, **how: Unpack[HowCommanded]) -> Command:
    """Let messages that wait come now, by one commit.

    Args:
        root: the warehouse.
        topic: the topic.
        subscription: for this one only; None: for all subscriptions that the topic has now.
        **how: as for `cancel`.

    Raises:
        NoWarehouse, SubscriptionNotFound, BadValue, StillConflicting: as for `cancel`.
    """
    now = clock_of(root).wall()
    return _move(root, topic, subscription, RELEASE, lambda due: np.minimum(due, now), how)


@spelled_out(HowGiven)
def undo(root: str, command_id: str, **how: Unpack[HowGiven]) -> Command:
    """Take a command back, for those of its messages that it can be taken back for.

    Of a cancel these are the ones that dispatch has neither left out nor delivered; each comes at its time, at once
    when that has passed. What got another due time, and is not delivered, is due again when it was before the command,
    unless another one gave it yet another time since. What is undone twice is undone once.

    Args:
        root: the warehouse.
        command_id: of the command.
        **how: see `HowGiven`.

    Raises:
        NoWarehouse: the folder lacks a table.
        CommandNotFound: there is no such command, or it is an undo.
        BadValue: a text is not Unicode.
        StillConflicting: others wrote at the same time, every time; nothing was written.
    """
    refuse({}, how, HowGiven.__optional_keys__)
    for name, text in (("command_id", command_id), ("by", how.get("by")), ("reason", how.get("reason"))):
        check_text(name, text)
    openings = Openings(root)
    named: list[Named] = [
        (each, None if due is None else openings.of(each, due)) for each, due in remaining(root, command_id)
    ]
    return _written(root, UNDO, named, {"undoes": command_id}, how)


def _chosen(root: str, topic: str, subscription: str | None, how: HowCommanded) -> list[Chosen]:
    """What a command names.

    Raises:
        BadValue: there is not one of key, message, condition and positions; or one of them cannot be followed.
        InvalidMessage, Timeout: ingest has refused the message that is named, or does not take it.
    """
    refuse({}, how, HowCommanded.__optional_keys__)
    _check_one(how)
    texts = (("topic", topic), ("subscription", subscription), ("by", how.get("by")), ("reason", how.get("reason")))
    for name, text in texts:
        check_text(name, text)
    topic = plain_topic(topic)
    open_table(root, COMMANDS)
    given, message_id = how.get("positions"), how.get("message_id")
    if message_id is not None:
        logs = [TopicLog(root, each) for each in topics_of(root, topic, message_id)]
        log, place = located(logs, message_id)
        topic, only = log.topic, PositionSet.at(*np.array([place], np.int64).T)
    elif given is not None:
        only = _positions(given)
    else:
        return choose(root, topic, subscription, _asked(how), at_work(root))
    found = choose(root, topic, subscription, _within(only), at_work(root)) if only else []
    return [each for each in (each.only(only) for each in found) if len(each.ledgers)]


def _check_one(how: HowCommanded) -> None:
    key, where, message_id = how.get("key"), how.get("where"), how.get("message_id")
    if sum(each is not None for each in (key, message_id, where, how.get("positions"))) != 1:
        allowed = "a condition, or a key, a message or positions instead; `true` names all that is pending"
        raise BadValue("where", where, allowed)
    condition_of(key, where)
    check_kind("positions", how.get("positions"), (pa.Table, type(None)), "an Arrow table with ledger_id and entry_id")


def _asked(how: HowCommanded) -> str:
    """What is asked for, as it is kept with the command."""
    key, message_id, positions = how.get("key"), how.get("message_id"), how.get("positions")
    if positions is not None:
        return f"{positions.num_rows} positions"
    if message_id is not None:
        return f"message {message_id}"
    return condition_of(key, how.get("where"))


def _positions(given: pa.Table) -> PositionSet:
    """The positions of a table.

    Raises:
        BadValue: it lacks a column, or has something else in one.
    """
    try:
        return PositionSet.at(longs(given, "ledger_id"), longs(given, "entry_id"))
    except (KeyError, ValueError, TypeError, pa.ArrowInvalid) as error:
        raise BadValue("positions", given.schema.names, "ledger_id and entry_id, whole numbers from 0 on") from error


def _within(positions: PositionSet) -> str:
    """A condition that is met by all of some positions."""
    ledgers = [ledger for ledger, _ in positions.by_ledger()]
    return f"ledger_id BETWEEN {ledgers[0]} AND {ledgers[-1]}"


def _move(
    root: str,
    topic: str,
    subscription: str | None,
    kind: str,
    then: Callable[[IntArray], IntArray],
    how: HowCommanded,
) -> Command:
    """Give what is chosen other due times, at which the windows of their topics are open."""
    named, openings = list[Named](), Openings(root)
    for each in _chosen(root, topic, subscription, how):
        due = openings.of(each, then(each.due))
        other = due != each.due
        if other.any():
            named.append((each.where(other), due[other]))
    return _written(root, kind, named, {"asked": _asked(how)}, how)


def _written(root: str, kind: str, named: Sequence[Named], columns: Mapping[str, object], how: HowGiven) -> Command:
    """Write it, unless nothing is named, or it is a dry run."""
    columns = {"kind": kind, **columns, "issued_by": how.get("by"), "reason": how.get("reason")}
    command_id = None if how.get("dry_run") or not named else write(root, named, columns)
    then = [due for _, due in named if due is not None]
    first = min((int(due.min()) for due in then), default=None)
    last = max((int(due.max()) for due in then), default=None)
    return Command(command_id, kind, selection(root, [each for each, _ in named]), first, last)
