"""A delivery as a record of Kafka."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

COLUMNS = ("message_key", "properties", "payload")
"""What a record is made of."""
Header = tuple[str, bytes | None]


def key_of(row: Mapping[str, Any]) -> bytes | None:
    """The key; NULL stays NULL."""
    key = row["message_key"]
    return None if key is None else str(key).encode()


def headers_of(row: Mapping[str, Any]) -> list[Header]:
    """Properties as headers; a value that is NULL stays NULL."""
    properties = dict(row["properties"] or ())
    return [(name, None if value is None else str(value).encode()) for name, value in properties.items()]
