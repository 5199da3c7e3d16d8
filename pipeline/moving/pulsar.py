"""Taking what waits in a topic of Pulsar for its time, as far as a subscription has not acknowledged it.

Messages come by a reader, their due times by the broker's REST interface, which alone tells them. They are appended to
`inbox` in commits, each with the position of its last message in the topic: what is at or before that position was
taken, or was left. So an import that died goes on, and one that is started again takes what was sent since.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from pipeline.brokers.pulsar import Admin, Cursor, Position, connected, package, time_of
from pipeline.client.exceptions import InvalidMessage, MessageTooBig
from pipeline.client.producing.inbox import OutgoingMessage, checker, rows_of_messages
from pipeline.config.errors import BadValue, BrokerRefused
from pipeline.config.wallclock import wall_ms
from pipeline.delta.warehouse import Warehouse
from pipeline.moving.places import ImportPlace, Wanted, position_of, sequence
from pipeline.storage.locks import StageLock
from pipeline.subscriptions.partitions import PartitionCounts
from pipeline.subscriptions.records import EVENT_TIME, ORDERING_KEY
from pipeline.subscriptions.topicnames import partition_of, plain_topic, routed

_CHUNK = 5_000
"""Messages of a commit."""
_THREADS = 8
"""That ask for due times: an answer takes about a millisecond."""
_WAIT_MS = 30_000
_NAMED = 10
"""So many messages that stay because nothing here can be like them are named."""
_DELAYING = {"Shared": "Shared", "Key_Shared": "KeyShared"}
"""The types of subscriptions that wait for due times, and what the client calls them."""


@dataclass(frozen=True)
class Taken:
    """How far an import is.

    Attributes:
        partition: the topic, or the partition of it.
        unacknowledged: messages that the subscription had not acknowledged when it began, as the broker counts them.
        examined: how many were looked at.
        taken: how many are in `inbox` now, or would be.
        before: how many an earlier run has taken or left.
        left: how many stay with Pulsar: they have no due time, or will be due before long.
        unfit: how many stay there because no message here can be like them: they are due after the year 9999, or larger
            than the job takes, for example.
        problems: where the first of these are, each with the reason.
        acknowledged: how many were acknowledged in Pulsar.
        first_due_ms: the earliest due time of those taken.
        last_due_ms: the latest one.
    """

    partition: str
    unacknowledged: int
    examined: int = 0
    taken: int = 0
    before: int = 0
    left: int = 0
    unfit: int = 0
    problems: tuple[str, ...] = ()
    acknowledged: int = 0
    first_due_ms: int | None = None
    last_due_ms: int | None = None


def take(root: str, wanted: Wanted, *, dry: bool = False, chunk: int = _CHUNK) -> Iterator[Taken]:
    """Take what waits; gives how far it is, after each commit, one partition after the other.

    Args:
        root: the warehouse.
        wanted: what to take from where.
        dry: take nothing, acknowledge nothing, only look.
        chunk: messages of a commit.

    Raises:
        NoBrokerClient: the client is not installed.
        BrokerRefused: the broker does not know the subscription, does not answer, or refuses.
        StageRunning: another import of the same topic runs, or has committed meanwhile.
    """
    pulsar, admin, client = package(), Admin(wanted.admin), connected(wanted.service)
    try:
        for name in client.get_topic_partitions(f"persistent://{wanted.topic}"):
            partition = name.partition("://")[2]
            place = ImportPlace(root, wanted, partition)
            with StageLock(place.name, place.folder).held():
                yield from _Partition(root, wanted, place, client, admin).run(dry=dry, chunk=chunk)
    except pulsar.PulsarException as error:
        raise BrokerRefused(f"{wanted.service} does not answer, or refuses: {error}") from error
    finally:
        client.close()
        admin.close()


class _Partition:
    """A topic without partitions, or one partition."""

    def __init__(self, root: str, wanted: Wanted, place: ImportPlace, client: Any, admin: Admin) -> None:  # noqa: ANN401 - of the client
        self._wanted, self._place, self._client, self._admin = wanted, place, client, admin
        self._partitions, self._check_bounds, self._unfit = PartitionCounts(Warehouse(root)), checker(root), list[int]()
        self._cursor: Cursor = admin.cursor(place.partition, wanted.subscription)
        if self._cursor.kind not in _DELAYING:
            problem = f"{wanted.subscription} is {self._cursor.kind}, and those get messages at once, due or not"
            raise BrokerRefused(f"nothing waits for its time there: {problem}")
        self._done, self._acknowledged = Taken(place.partition, self._cursor.backlog), array("q")

    def run(self, *, dry: bool, chunk: int) -> Iterator[Taken]:
        """Chunk by chunk."""
        with ThreadPoolExecutor(_THREADS) as pool, self._acknowledging(dry=dry) as consumer:
            messages = self._messages()
            while found := list(islice(messages, chunk)):
                due = list(pool.map(self._due_ms, found))
                taken = self._take(found, due, dry=dry)
                for message in taken if consumer is not None else ():
                    consumer.acknowledge(message.message_id())
                    self._acknowledged.append(sequence(place_of(message)))
                self._done = replace(self._done, acknowledged=len(self._acknowledged))
                yield self._done
        self._check()

    def _messages(self) -> Iterator[Any]:
        """What the subscription has not acknowledged, up to what is there now."""
        before, found = self._cursor.before, package().MessageId
        if before >= self._cursor.last:
            return
        # The client compares partitions, too: with another one the last message of a partition would seem to be new.
        begin = found(partition_of(self._place.partition), *before, -1) if before[1] >= 0 else found.earliest
        reader = self._client.create_reader(f"persistent://{self._place.partition}", begin)
        try:
            while reader.has_message_available():
                message = reader.read_next(_WAIT_MS)
                at = place_of(message)
                if at > self._cursor.last:
                    return
                if not self._cursor.has(at):
                    yield message
        finally:
            reader.close()

    def _due_ms(self, message: Any) -> int | None:  # noqa: ANN401 - of the client
        """None: it has no due time, or nobody needs it. Clients put no message with a due time into a batch."""
        known = sequence(place_of(message)) <= self._place.last and not self._wanted.acknowledge
        if known or message.message_id().batch_index() >= 0:
            return None
        return self._admin.due_ms(self._place.partition, place_of(message))

    def _take(self, found: Sequence[Any], due: Sequence[int | None], *, dry: bool) -> list[Any]:
        """Append what will be due later than soon; give what is in `inbox` now, by this run or an earlier one."""
        place, soon = self._place, wall_ms() + self._wanted.margin_ms
        every = [(message, sequence(place_of(message)), ms) for message, ms in zip(found, due, strict=True)]
        older = [message for message, number, ms in every if ms is not None and place.took(number, ms)]
        later = [(message, ms) for message, number, ms in every if number > place.last and ms is not None and ms > soon]
        before, fresh = sum(number <= place.last for _, number, _ in every), self._made(later)
        if fresh and not dry:
            place.commit(rows_of_messages([made for _, _, made in fresh]), every[-1][1], soon, self._unfit)
            self._unfit = []
        self._count(len(found), [ms for _, ms, _ in fresh], before, len(later) - len(fresh))
        return older + [message for message, _, _ in fresh]

    def _made(self, later: Sequence[tuple[Any, int]]) -> list[tuple[Any, int, OutgoingMessage]]:
        """What is sent for messages with their due times, each for the topic or for a partition of it.

        What no message can be is left where it is: it would stand in the way of all behind it.
        """
        topic, fresh = plain_topic(self._wanted.to), list[tuple[Any, int, OutgoingMessage]]()
        count = self._partitions.now().get(topic, 0)
        for message, ms in later:
            number, done = sequence(place_of(message)), self._done
            try:
                # Without a key they take turns.
                made = message_of(message, routed(topic, message.partition_key() or None, number, count), ms)
                self._check_bounds(made)
            except (BadValue, InvalidMessage, MessageTooBig) as error:
                self._unfit.append(number)
                problem = f"{':'.join(map(str, place_of(message)))}: {error}"
                self._done = replace(done, unfit=done.unfit + 1, problems=(*done.problems, problem)[:_NAMED])
            else:
                fresh.append((message, ms, made))
        return fresh

    def _count(self, examined: int, due: Sequence[int], before: int, unfit: int) -> None:
        done = self._done
        ends = [ms for ms in (done.first_due_ms, done.last_due_ms, *due) if ms is not None]
        self._done = replace(
            done,
            examined=done.examined + examined,
            taken=done.taken + len(due),
            before=done.before + before,
            left=done.left + examined - before - len(due) - unfit,
            first_due_ms=min(ends, default=None),
            last_due_ms=max(ends, default=None),
        )

    @contextmanager
    def _acknowledging(self, *, dry: bool) -> Iterator[Any]:
        """A consumer that acknowledges and asks for nothing, if that is wanted."""
        if dry or not self._wanted.acknowledge:
            yield None
            return
        kind = getattr(package().ConsumerType, _DELAYING[self._cursor.kind])
        name = f"persistent://{self._place.partition}"
        options = {"consumer_type": kind, "receiver_queue_size": 0, "consumer_name": "delayline-import"}
        consumer = self._client.subscribe(name, self._wanted.subscription, **options)
        try:
            yield consumer
        finally:
            # It sends what it has grouped.
            consumer.close()

    def _check(self) -> None:
        """Whether all that is in `inbox` is acknowledged: the broker does not confirm it one by one.

        Raises:
            BrokerRefused: it is not. Begin again: what was taken is acknowledged then, and not taken a second time.
        """
        if not self._acknowledged:
            return
        now = self._admin.cursor(self._place.partition, self._wanted.subscription)
        missing = sum(not now.has(position_of(number)) for number in self._acknowledged)
        if missing:
            raise BrokerRefused(f"{missing} of {len(self._acknowledged)} messages are taken and not acknowledged yet")


def place_of(message: Any) -> Position:  # noqa: ANN401 - of the client
    """Where a message is."""
    found = message.message_id()
    return found.ledger_id(), found.entry_id()


def message_of(message: Any, topic: str, due_ms: int) -> OutgoingMessage:  # noqa: ANN401 - of the client
    """Key, properties, payload and times; what `inbox` has no column for is among the properties.

    Args:
        message: as the client received it.
        topic: where to.
        due_ms: its due time, ms UTC.

    Raises:
        BadValue, MessageTooBig: no message can be so.
    """
    properties = dict(message.properties())
    if message.ordering_key():
        properties[ORDERING_KEY] = message.ordering_key()
    if message.event_timestamp():
        properties[EVENT_TIME] = str(message.event_timestamp())
    return OutgoingMessage(
        topic,
        message.data(),
        publish_time=time_of(message.publish_timestamp()),
        key=message.partition_key() or None,
        properties=properties,
        deliver_at=due_ms,
    )
