"""Durations on the command line, and back to text."""

import re
from decimal import Decimal

UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_LONGEST_MS = 1_000 * 366 * UNITS_MS["d"]
DURATIONS = "a duration: 250ms, 5s, 1.5h, 1d12h, 2w, PT5S; whole ms, up to a thousand years"
SPANS = "a duration with a sign: +2h, -30m, +1d12h; up to a thousand years"
_NUMBER = r"(\d{1,15}(?:\.\d{1,9})?)"
_LARGEST_FIRST = ("w", "d", "h", "m", "s", "ms")
_PARTS = re.compile(r"\s*".join(rf"(?:{_NUMBER}\s*{unit})?" for unit in _LARGEST_FIRST), re.ASCII)
_DAYS, _TIME = (rf"(?:{_NUMBER}W)?(?:{_NUMBER}D)?", rf"(?:{_NUMBER}H)?(?:{_NUMBER}M)?(?:{_NUMBER}S)?")
_ISO = re.compile(rf"P{_DAYS}(?:T(?=\d){_TIME})?", re.ASCII)


class BadText(ValueError):
    """A text is not what an option takes.

    Attributes:
        value: the text.
        allowed: the forms that are taken.
    """

    def __init__(self, value: str, allowed: str) -> None:
        super().__init__(f"{value!r} is not {allowed}")
        self.value, self.allowed = value, allowed


def duration_ms(text: str) -> int:
    """A duration in ms: numbers with units, the largest first (`250ms`, `1.5h`, `1d12h`, `2w`), or ISO 8601 (`PT5S`).

    Raises:
        BadText: another form.
    """
    found = _ms(text.strip())
    if found is None:
        raise BadText(text, DURATIONS)
    return found


def span_ms(text: str) -> int:
    """A duration with a sign, in ms: `+2h`, `-30m`; without a sign it is later.

    Raises:
        BadText: another form.
    """
    stripped = text.strip()
    sign, rest = (stripped[0], stripped[1:]) if stripped[:1] in ("+", "-") else ("+", stripped)
    found = _ms(rest)
    if found is None:
        raise BadText(text, SPANS)
    return -found if sign == "-" else found


def _ms(text: str) -> int | None:
    """The ms of a text; None: it is of another form, no whole number of ms, or too long."""
    match = _PARTS.fullmatch(text) or _ISO.fullmatch(text)
    numbers = [] if match is None else match.groups()
    if not any(numbers):
        return None
    units = zip(numbers, _LARGEST_FIRST, strict=False)
    total = sum((Decimal(number) * UNITS_MS[unit] for number, unit in units if number), Decimal(0))
    return int(total) if total == int(total) and total <= _LONGEST_MS else None
