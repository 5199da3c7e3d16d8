"""Values on the command line: durations, times, properties. Errors name the value and what is allowed."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime

from state.buckets import MAX_TIME

UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_LONGEST_MS = 1_000 * 366 * 86_400_000
DURATIONS = "a whole number with a unit: 250ms, 5s, 10m, 6h, 7d; up to a thousand years"
SPANS = "a whole number with a unit and a sign: +2h, -30m; up to a thousand years"
TIMES = "an ISO time: 2026-01-31, 2026-01-31T12:00:00, 2026-01-31T12:00:00.250+02:00 (UTC when no offset is given)"
_DATE_DIGITS, _LEAST_DIGITS = 8, 12
_DURATION = re.compile(rf"([0-9]{{1,15}})({'|'.join(UNITS_MS)})")


class BadText(ValueError):
    """A text is not what an option takes.

    Attributes:
        value: the text.
        allowed: the forms that are taken.
    """

    def __init__(self, value: str, allowed: str) -> None:
        """Name the text and the allowed forms."""
        super().__init__(f"{value!r} is not {allowed}")
        self.value, self.allowed = value, allowed


def duration_ms(text: str) -> int:
    """A duration in ms: `250ms`, `5s`, `10m`, `6h`, `7d`.

    Raises:
        BadText: another form.
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None or int(match[1]) * UNITS_MS[match[2]] > _LONGEST_MS:
        raise BadText(text, DURATIONS)
    return int(match[1]) * UNITS_MS[match[2]]


def span_ms(text: str) -> int:
    """A duration with a sign, in ms: `+2h`, `-30m`; without a sign it is later.

    Raises:
        BadText: another form.
    """
    match = _DURATION.fullmatch(text.strip().lstrip("+-"))
    if match is None or text.strip()[1:2] in {"+", "-"} or int(match[1]) * UNITS_MS[match[2]] > _LONGEST_MS:
        raise BadText(text, SPANS)
    return int(match[1]) * UNITS_MS[match[2]] * (-1 if text.strip().startswith("-") else 1)


def instant(text: str) -> datetime:
    """An ISO time; UTC when it names no offset.

    Raises:
        BadText: another form, or a time that does not exist.
    """
    try:
        time = datetime.fromisoformat(text.strip())
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise BadText(text, TIMES) from error


@dataclass(frozen=True)
class Place:
    """A position in the log; Typer would take a pair for two words."""

    ledger: int
    entry: int


def position(text: str) -> Place:
    """A position from its text, LEDGER:ENTRY.

    Raises:
        BadText: another form.
    """
    ledger, sign, entry = text.partition(":")
    if not (sign and ledger.isdecimal() and entry.isdecimal()):
        raise BadText(text, "a position, LEDGER:ENTRY")
    return Place(int(ledger), int(entry))


def since(text: str) -> int:
    """A time in ms since the epoch, from an ISO time or from such a number.

    A number has 12 digits or more, as times from 1973 on have. One of 8 digits is an ISO date without hyphens. Others
    are refused: seconds, as `date +%s` prints them, would be a day of 1970 as ms.

    Raises:
        BadText: another form.
    """
    if not (text.isascii() and text.isdigit()) or len(text) == _DATE_DIGITS:
        return round(instant(text).timestamp() * 1_000)
    if len(text) < _LEAST_DIGITS or int(text[:20]) > MAX_TIME:
        raise BadText(text, f"{TIMES}; or ms since 1970, which have {_LEAST_DIGITS} digits or more")
    return int(text)


def pairs(texts: list[str]) -> dict[str, str]:
    """Properties from `name=value` texts; the value may hold further equals signs.

    Raises:
        BadText: no equals sign, or no name before it.
    """
    found = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise BadText(text, "name=value")
        found[name] = value
    return found


def spell(ms: int) -> str:
    """A duration for people: the two largest units that are not zero, as in `2d 3h`; `0s` below a second."""
    left, parts = abs(ms) // 1_000 * 1_000, []
    for unit in ("d", "h", "m", "s"):
        count, left = divmod(left, UNITS_MS[unit])
        if count:
            parts.append(f"{count}{unit}")
    return " ".join(parts[:2]) or "0s"


def iso(ms: int) -> str:
    """An instant in ms as ISO text, UTC."""
    return datetime.fromtimestamp(ms / 1_000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
