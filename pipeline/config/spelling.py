"""How values, times and commands stand in texts for people."""

from __future__ import annotations

import shlex
from datetime import UTC, datetime, timedelta
from itertools import takewhile

_EPOCH = datetime.fromtimestamp(0, UTC)

_SHOWN = 300
"""Characters of a value."""
_UNITS_MS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000}
_LONGEST_MS = 100_000_000 * _UNITS_MS["d"]
_PRECISE_MS = 10_000


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


def spell(ms: int) -> str:
    """A duration for people: the two largest units that are not zero, as in `2d 3h`; `0s` below a second."""
    left, parts = abs(ms) // 1_000 * 1_000, []
    for unit, length in _UNITS_MS.items():
        count, left = divmod(left, length)
        if count:
            parts.append(f"{count}{unit}")
    return " ".join(parts[:2]) or "0s"


def late_text(ms: int) -> str:
    """How late something was, for people: to the millisecond below ten seconds."""
    return f"{ms:,} ms" if ms < _PRECISE_MS else spell(ms)


def aside_ms(field: str, *numbers: object) -> str:
    """What people read beside the numbers of a field: of ms, how long that is; nothing beside others, or below 1 s."""
    known = [each for each in numbers if isinstance(each, int) and abs(each) >= _UNITS_MS["s"]]
    is_span = field.endswith("_ms") and all(abs(each) <= _LONGEST_MS for each in known)
    return f" ({' to '.join(map(spell, known))})" if known and is_span else ""


def range_text(field: str, low: int, high: int) -> str:
    """A range of whole numbers, both ends included; of ms with how long that is."""
    return f"{low}..{high}{aside_ms(field, low, high)}"


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
