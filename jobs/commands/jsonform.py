"""The one form of JSON that commands print. `docs/words.md` says what each word of it means.

A time is ISO text, UTC, to the millisecond. A duration is a number, and its name ends with `_ms` or `_s`. A position is
`ledger:entry`. A payload is text when it is UTF-8, else base64 under another name. What is not known is null.
"""

import base64
import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Any

from pipeline.config.spelling import iso_text

TIMES = {
    "at": "at",
    "closed_until": "closed_until",
    "deliver_at": "deliver_at",
    "due": "due_time",
    "first_due": "first_due",
    "first_due_ms": "first_due",
    "first_then": "first_then",
    "gone_at": "gone_at",
    "job_started_at": "job_started_at",
    "last_due": "last_due",
    "last_due_minute": "last_due_minute",
    "last_due_ms": "last_due",
    "last_then": "last_then",
    "minute": "minute",
    "missed_at": "missed_at",
    "next_due": "next_due",
    "occurrence": "occurrence",
    "oldest_due": "oldest_due",
    "published": "publish_time",
    "put_off_from": "put_off_from",
    "seen_ms": "seen_at",
    "settled_ms": "settled_at",
    "worst_minute": "worst_minute",
}
"""Fields that hold an instant, in ms UTC or as a datetime, and their names in JSON."""
POSITIONS = ("oldest", "position")
"""Fields that hold (ledger, entry)."""
_NAMES = {"asked": "where", "by": "issued_by", "sent": "as_sent"}
"""Fields of the client that have another name in JSON."""


def json_line(value: Any) -> str:  # noqa: ANN401 - a record, or a list or mapping of records
    """A record, or several, as JSON on one line."""
    return json.dumps(_form(value), ensure_ascii=False)


def _form(value: Any) -> Any:  # noqa: ANN401 - what JSON can hold
    match value:
        case Enum():
            return value.value
        case datetime():
            return iso_text(round(value.astimezone(UTC).timestamp() * 1_000))
        case Mapping():
            return {str(name): _form(each) for name, each in value.items()}
        case str() | int() | float() | bool() | None:
            return value
        case _ if is_dataclass(value):
            return record(**{each.name: getattr(value, each.name) for each in fields(value)})
        case _:
            return [_form(each) for each in value]


def record(**values: Any) -> dict[str, Any]:  # noqa: ANN401 - what fields hold
    """Named values of a record in the form of JSON."""
    return dict(_named(name, value) for name, value in values.items())


def _named(name: str, value: Any) -> tuple[str, Any]:  # noqa: ANN401 - what a field holds
    if isinstance(value, bytes):
        return _payload(name, value)
    if name in POSITIONS and isinstance(value, tuple):
        return name, "{}:{}".format(*value)
    if name in TIMES:
        return TIMES[name], iso_text(value) if isinstance(value, int) else _form(value)
    if name == "details" and isinstance(value, Mapping):
        return name, record(**value)
    return _NAMES.get(name, name), _form(value)


def _payload(name: str, data: bytes) -> tuple[str, str]:
    try:
        return name, data.decode()
    except UnicodeDecodeError:
        return f"{name}_base64", base64.b64encode(data).decode()
