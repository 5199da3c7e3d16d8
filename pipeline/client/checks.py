"""Addresses, topics and limits that callers give, refused at once when they cannot be; what is opened and closed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from deltalake.exceptions import DeltaError

from pipeline.client.exceptions import AlreadyClosed, ConnectError, InvalidConfiguration, InvalidTopicName, InvalidUrl
from pipeline.config.errors import BadValue, check_text
from pipeline.config.paths import is_in_store, local_path, one_spelling


def root_of(url: str) -> str:
    """The folder of a warehouse, from its address.

    Raises:
        InvalidUrl: it is none.
    """
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
    """The topic.

    Raises:
        InvalidTopicName: it is none.
    """
    if not isinstance(topic, str) or not topic.strip():
        raise InvalidTopicName(topic)
    try:
        check_text("topic", topic)
    except BadValue as error:
        raise InvalidTopicName(topic) from error
    return topic


def checked_topics(topic: object) -> list[str]:
    """The topics of a consumer, from one or several.

    Raises:
        InvalidTopicName: one is none, or there is none.
    """
    topics = list(dict.fromkeys(topic)) if isinstance(topic, list | tuple) else [topic]
    if not topics:
        raise InvalidTopicName(topic)
    return [checked_topic(each) for each in topics]


def check_limit(option: str, value: object, low: int = 0) -> int:
    """The value of an option that is a number.

    Raises:
        InvalidConfiguration: it is none, or too small.
    """
    if not isinstance(value, int) or value < low:
        raise InvalidConfiguration(option, value, f"it must be {low} or more")
    return value


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
        self._root, self._closed = root, False

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
