"""Addresses, topics and limits that callers give, refused at once when they cannot be; what is opened and closed."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Self

import pyarrow as pa
from deltalake.exceptions import DeltaError

from pipeline.client.exceptions import (
    AlreadyClosed,
    ConnectError,
    InvalidConfiguration,
    InvalidMessage,
    InvalidTopicName,
    InvalidUrl,
    OperationNotSupported,
)
from pipeline.config.errors import BadValue, check_text
from pipeline.config.paths import is_in_store, local_path, one_spelling
from pipeline.config.spelling import aside_ms
from pipeline.storage.arrays import arrow_schema
from pipeline.storage.texts import MAX_NAME_BYTES
from pipeline.subscriptions.policies import LONGEST_MS
from pipeline.subscriptions.topicnames import plain_topic
from schemas import DELIVERIES
from state.buckets import MAX_TIME
from state.runs import MAX_ENTRY, MAX_LEDGER

_DELIVERED = arrow_schema(DELIVERIES.columns)
MOST = (1 << 63) - 1
"""The largest number that a column of longs holds."""
EPOCH, _US = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)
TIMES = "a time with its time zone, or ms since 1970"


def root_of(url: object) -> str:
    """The folder of a warehouse, from its address.

    Raises:
        InvalidUrl: it is none.
    """
    if not isinstance(url, str):
        raise InvalidUrl(url)
    _, colon, rest = url.partition("://")
    if not url.strip() or (colon and not rest.strip("/")):
        raise InvalidUrl(url)
    if is_in_store(url):
        return one_spelling(url)
    path = local_path(url)
    if path is None:
        raise InvalidUrl(url)
    return str(path)


def checked_topic(topic: object) -> str:
    """The topic that a name means, as tables have it.

    Raises:
        InvalidTopicName: it is none.
    """
    if not isinstance(topic, str) or not topic.strip():
        raise InvalidTopicName(topic)
    topic = plain_topic(topic)
    try:
        check_text("topic", topic)
        if (size := len(topic.encode())) > MAX_NAME_BYTES:
            raise InvalidTopicName(f"{topic[:64]}... of {size} bytes")
    except BadValue as error:
        raise InvalidTopicName(topic) from error
    return topic


def checked_topics(topic: object) -> dict[str, str]:
    """The topics of a consumer, from one or several, each with its name as it was given.

    Raises:
        InvalidTopicName: one is none, or there is none.
    """
    topics: Sequence[str] = topic if isinstance(topic, list | tuple) else [topic]  # type: ignore[list-item] # checked next
    if not topics:
        raise InvalidTopicName(topic)
    return {checked_topic(each): each for each in topics}


def check_limit(option: str, value: object, low: int = 0, high: int = MOST) -> int:
    """The value of an option that is a number.

    Raises:
        InvalidConfiguration: it is none, or outside of its range.
    """
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise InvalidConfiguration(option, value, f"it must be a whole number in {low}..{high}")
    return value


def time_us(field: str, value: object) -> int:
    """A time in microseconds since 1970, from a `datetime` with its time zone, or from ms since 1970.

    Raises:
        BadValue: it is neither, or no clock shows it.
    """
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise BadValue(field, value.isoformat(), TIMES)
        return (value - EPOCH) // _US
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_TIME:
        raise BadValue(field, value, TIMES)
    return value * 1_000


def span_ms(span: timedelta) -> int:
    """A span in ms, a part of one counted as one."""
    return -(-(span // _US) // 1_000)


def checked_delay(option: str, delay: object) -> int:
    """A delay in ms, from a number or a `timedelta`; one that has passed is 0. A part of a ms counts as one.

    Raises:
        InvalidConfiguration: it is neither, or longer than `LONGEST_MS`.
    """
    ms = span_ms(delay) if isinstance(delay, timedelta) else delay
    if not isinstance(ms, int) or isinstance(ms, bool) or ms > LONGEST_MS:
        most = f"{LONGEST_MS}{aside_ms('delay_ms', LONGEST_MS)}"
        raise InvalidConfiguration(option, delay, f"it must be a whole number of ms up to {most}, or a timedelta")
    return max(0, ms)


def checked_timeout(option: str, timeout_millis: object) -> int | None:
    """How long somebody waits, in ms; None: for ever.

    Raises:
        InvalidConfiguration: it is no whole number.
    """
    if timeout_millis is not None and (not isinstance(timeout_millis, int) or isinstance(timeout_millis, bool)):
        raise InvalidConfiguration(option, timeout_millis, "it must be a whole number of ms, or None")
    return timeout_millis


def checked_count(most: object) -> int:
    """How many messages somebody takes at most.

    Raises:
        InvalidConfiguration: it is no whole number.
    """
    if not isinstance(most, int) or isinstance(most, bool):
        raise InvalidConfiguration("max_num_messages", most, "it must be a whole number")
    return most


def checked_place(message: object, place: tuple[object, object]) -> tuple[int, int]:
    """Ledger and entry of a message.

    Raises:
        InvalidMessage: there can be none with them.
    """
    for number, most in zip(place, (MAX_LEDGER, MAX_ENTRY), strict=True):
        if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= most:
            raise InvalidMessage("message", message, f"a ledger in 0..{MAX_LEDGER} and an entry in 0..{MAX_ENTRY}")
    return place  # type: ignore[return-value] # both are numbers


class Process:
    """This process, which is asked for with each message: a call of the system would take longer than the rest of that.

    Attributes:
        pid: its id, also in a process that was made by `fork`.
    """

    def __init__(self) -> None:
        """Ask the system, now and after each fork."""
        self.look()
        os.register_at_fork(after_in_child=self.look)

    def look(self) -> None:
        """Ask the system."""
        self.pid = os.getpid()


PROCESS = Process()


def checked_columns(deliveries: pa.Table, names: Sequence[str]) -> pa.Table:
    """Columns that name deliveries, as the contract has them: engines have texts and numbers of other kinds, too.

    Raises:
        InvalidMessage: one is missing, or has NULL, or what is none of its kind.
    """
    columns = dict[str, pa.ChunkedArray]()
    if not isinstance(deliveries, pa.Table):
        raise InvalidMessage("deliveries", deliveries, f"an Arrow table with the columns {', '.join(names)}")
    for name in names:
        wanted = _DELIVERED.field(name).type
        if name not in deliveries.column_names or deliveries.column(name).null_count:
            raise InvalidMessage(name, None, f"a column without NULL; needed are {', '.join(names)}")
        try:
            columns[name] = deliveries.column(name).cast(wanted)
        except pa.ArrowException as error:
            raise InvalidMessage(name, str(deliveries.column(name).type), f"a column of {wanted}") from error
    return pa.table(columns)


def check_process(pid: int, call: str) -> None:
    """Refuse a call in another process than the one that opened a client.

    A process that was made by `fork` has the locks of its parent, but none of the threads that let them go.

    Raises:
        OperationNotSupported: it is another process.
    """
    if PROCESS.pid != pid:
        reason = (
            "a process made by fork cannot use a client of its parent: make processes by spawn, and a client in each"
        )
        raise OperationNotSupported(call, reason)


class Closing(ABC):
    """What is opened and closed, a client and what it makes: it is closed at the end of a `with` block."""

    @abstractmethod
    def close(self) -> None:
        """End; a second call does nothing."""

    def __enter__(self) -> Self:
        """The same object."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()


class Opened:
    """A part of a client: it has a warehouse, and is open until it is closed."""

    def __init__(self, root: str) -> None:
        """Open on the folder of a warehouse."""
        self._root, self._closed, self._process = root, False, PROCESS.pid

    @contextmanager
    def _answering(self) -> Iterator[None]:
        """Says of a store that does not answer that it does not.

        Raises:
            AlreadyClosed: the client is closed.
            ConnectError: the store does not answer.
        """
        self._check_open()
        with answering(self._root):
            yield

    def _check_open(self) -> None:
        check_process(self._process, "this call")
        if self._closed:
            raise AlreadyClosed("client")


@contextmanager
def answering(root: str) -> Iterator[None]:
    """Says of a store that does not answer that it does not.

    Raises:
        ConnectError: it does not.
    """
    try:
        yield
    except (DeltaError, OSError) as error:
        raise ConnectError(root, error) from error
