"""How values of an application become bytes and come back. The store knows bytes only, and keeps no schemas."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import asdict, is_dataclass
from enum import Enum
from typing import Any

from pipeline.client.exceptions import InvalidMessage


class Schema(ABC):
    """Encodes and decodes the content of messages."""

    @abstractmethod
    def encode(self, content: Any) -> bytes:  # noqa: ANN401 - whatever the schema is for
        """The bytes of a content.

        Raises:
            InvalidMessage: it is not what the schema is for.
        """

    @abstractmethod
    def decode(self, data: bytes) -> Any:  # noqa: ANN401 - the same
        """The content of bytes."""


class BytesSchema(Schema):
    """Bytes as they are."""

    def encode(self, content: Any) -> bytes:  # noqa: ANN401 - refused when it is something else
        """The bytes themselves."""
        if not isinstance(content, bytes):
            raise InvalidMessage("content", content, "bytes")
        return content

    def decode(self, data: bytes) -> bytes:
        """The bytes themselves."""
        return data


class StringSchema(Schema):
    """Text, as UTF-8."""

    def encode(self, content: Any) -> bytes:  # noqa: ANN401 - refused when it is something else
        """The text as UTF-8."""
        if not isinstance(content, str):
            raise InvalidMessage("content", content, "a text")
        try:
            return content.encode()
        except UnicodeEncodeError as error:
            raise InvalidMessage("content", content, "a text that UTF-8 can hold") from error

    def decode(self, data: bytes) -> str:
        """The text."""
        return data.decode()


class JsonSchema(Schema):
    """JSON: of dataclasses when one is named, else of what `json` knows."""

    def __init__(self, record_cls: Callable[..., Any] | None = None) -> None:
        """Objects of `record_cls` are encoded by their attributes, and decoded to `record_cls(**fields)`, if given."""
        self._record = record_cls

    def encode(self, content: Any) -> bytes:  # noqa: ANN401 - refused when json does not know it
        """The content as JSON."""
        if isinstance(self._record, type) and not isinstance(content, self._record):
            raise InvalidMessage("content", content, f"a {self._record.__name__}")
        try:
            return json.dumps(content, default=_plain if self._record is not None else _fields).encode()
        except (TypeError, ValueError) as error:
            raise InvalidMessage("content", content, "what JSON can hold") from error

    def decode(self, data: bytes) -> Any:  # noqa: ANN401 - what the sender encoded
        """What the JSON says."""
        found = json.loads(data)
        return found if self._record is None else self._record(**found)


def _fields(value: object) -> dict[str, Any]:
    """The fields of a dataclass.

    Raises:
        TypeError: it is none.
    """
    if not is_dataclass(value) or isinstance(value, type):
        message = f"{type(value).__name__} is no dataclass"
        raise TypeError(message)
    return asdict(value)


def _plain(value: object) -> Any:  # noqa: ANN401 - what JSON can hold
    """What stands for a value in the JSON of a record: of an object its attributes."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, bytes):
        return value.decode()
    return _fields(value) if is_dataclass(value) else dict(vars(value))
