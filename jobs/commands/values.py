"""Values on the command line: positions, times in ms, properties. Errors name the value and what is allowed."""

from dataclasses import dataclass

from jobs.commands.durations import BadText
from jobs.commands.times import TIMES, instant
from state.buckets import MAX_TIME

_DATE_DIGITS, _LEAST_DIGITS = 8, 12


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


@dataclass(frozen=True)
class Handle:
    """The name of a producer, and the number of a message among its messages."""

    producer: str
    number: int


def handle(text: str) -> Handle:
    """The id of a message from its text, NAME:NUMBER.

    Raises:
        BadText: another form.
    """
    name, _, number = text.rpartition(":")
    # Bytes of the command line that are no UTF-8 are in the text as surrogates.
    if not (name and number.isdecimal() and name.isprintable()):
        raise BadText(text, "an id, NAME:NUMBER")
    return Handle(name, int(number))


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
