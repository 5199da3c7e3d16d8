"""A delivery as a record of Kafka."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from pipeline.subscriptions.records import HEADERS, KEY

COLUMNS = ("message_key", "properties", "payload")
"""What a record is made of."""
Header = tuple[str, bytes | None]


def key_of(row: Mapping[str, Any]) -> bytes | None:
    """The key; NULL stays NULL. One that came from a broker and is no UTF-8 is what it was."""
    key, properties = row["message_key"], row["properties"]
    if key is None:
        return None
    if properties and key == dict(properties).get(KEY):
        # Anybody may have written something else there.
        with suppress(ValueError):
            return b64decode(key, validate=True)
    return str(key).encode()


def headers_of(row: Mapping[str, Any]) -> list[Header]:
    """Properties as headers; a value that is NULL stays NULL. Headers that came from a broker are what they were."""
    if not row["properties"]:
        return []
    properties = dict(row["properties"])
    properties.pop(KEY, None)
    came = _headers(properties.pop(HEADERS, None))
    known = {name for name, _ in came}
    told = [(name, text) for name, text in properties.items() if name not in known]
    return [*came, *((name, None if text is None else str(text).encode()) for name, text in told)]


def _headers(text: str | None) -> list[Header]:
    """What a source noted of headers; nothing when somebody else wrote something else there."""
    if not text:
        return []
    try:
        told = json.loads(text)
        return [
            (str(each["key"]), b64decode(each["value"], validate=True) if "value" in each else None) for each in told
        ]
    except (ValueError, KeyError, TypeError):
        return []
