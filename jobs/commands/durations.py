"""Durations on the command line, and back to text."""

import re
from decimal import Decimal

UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_LONGEST_MS = 1_000 * 366 * UNITS_MS["d"]
DURATIONS = "a duration: 250ms, 5s, 1.5h, 1d12h, 2w, 90min, 1 hour 30 minutes, PT5S; whole ms, up to a thousand years"
SPANS = "a duration with a sign: +2h, -30m, +1d12h, -90min; up to a thousand years"
_NUMBER = r"(\d{1,15}(?:\.\d{1,9})?)"
_LARGEST_FIRST = ("w", "d", "h", "m", "s", "ms")
_SPELLED = {
    "w": "wk wks week weeks",
    "d": "day days",
    "h": "hr hrs hour hours",
    "m": "min mins minute minutes",
    "s": "sec secs second seconds",
    "ms": "msec msecs milli millis millisecond milliseconds",
}
_UNITS = {word: unit for unit, words in _SPELLED.items() for word in (unit, *words.split())}
"""What people write for a unit."""
_COUNTS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
_IN_WORDS = {"a": "1", "an": "1", "half a": "0.5", "half an": "0.5"} | {
    word: str(count) for count, word in enumerate(_COUNTS, 1)
}
_PART = re.compile(
    rf"(?:{_NUMBER}\s*|((?:half )?an?|{'|'.join(_COUNTS)})\s+)([a-z]+)\s*(?:(?:,|\band\b)\s*(?=\w))?",
    re.ASCII | re.IGNORECASE,
)
"""A number and a unit; a comma or `and` may lead to the next part."""
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
    iso = _ISO.fullmatch(text)
    parts = (
        _parts(text) if iso is None else [part for part in zip(iso.groups(), _LARGEST_FIRST, strict=False) if part[0]]
    )
    total = sum((Decimal(number) * UNITS_MS[unit] for number, unit in parts), Decimal(0))
    return int(total) if parts and total == int(total) and total <= _LONGEST_MS else None


def _parts(text: str) -> list[tuple[str, str]]:
    """Numbers and their units, the largest first; nothing: the text is of another form."""
    found, place = list[tuple[str, str]](), 0
    while match := _PART.match(text, place):
        # A large M may be a month or a minute: a single letter is small, and a word is as it likes.
        unit = _UNITS.get(match[3] if len(match[3]) == 1 else match[3].lower())
        if unit is None or (found and _LARGEST_FIRST.index(unit) <= _LARGEST_FIRST.index(found[-1][1])):
            return []
        found.append((match[1] or _IN_WORDS[match[2].lower()], unit))
        place = match.end()
    return found if place == len(text) else []
