"""How values, times and commands stand in texts for people."""

from __future__ import annotations

import shlex
from datetime import UTC, datetime, timedelta
from itertools import takewhile

_EPOCH = datetime.fromtimestamp(0, UTC)

_SHOWN = 300
"""Characters of a value."""


def shown(value: object) -> str:
    """A value for the text of an error.

    Of one that is long it is the beginning; of a number that is too long for Python to spell, its size.
    """
    try:
        text = repr(value)
    except ValueError:
        return f"a number of {value.bit_length()} bits" if isinstance(value, int) else type(value).__name__
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def iso_text(when: datetime | int, digits: str = "milliseconds") -> str:
    """An instant as ISO text, in UTC.

    Args:
        when: with a zone; a number is ms UTC.
        digits: to what it is told, as `datetime.isoformat` names it. What is less is cut off.
    """
    time = _EPOCH + timedelta(milliseconds=when) if isinstance(when, int) else when
    return time.astimezone(UTC).isoformat(timespec=digits).replace("+00:00", "Z")


def command_line(root: str, *words: str) -> str:
    """A command on a warehouse, as a shell takes it.

    Args:
        root: the warehouse.
        *words: the name of the command, which may be of several words, and then its options.
    """
    name = list(takewhile(lambda each: not each.startswith("-"), words))
    return shlex.join(["delayline", *name, "--warehouse", root, *words[len(name) :]])


def subscription_options(topic: str, subscription: str) -> list[str]:
    """The options of a command that name a subscription."""
    return ["--topic", topic, "--subscription", subscription]
