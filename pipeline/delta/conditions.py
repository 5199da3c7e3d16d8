"""What is wrong with a condition that somebody wrote, in words about the condition, not about our query around it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches

_PARSED = re.compile(r'(?:Parser|Tokenizer)Error\("(.*?)(?: at Line: (\d+), Column: (\d+))?"\)')
_UNKNOWN = re.compile(r"No field named (\S+?)\.(?: .*|$)")
_PREFIX = re.compile(r"^(?:(?:SQL|Schema|Arrow|Parser) error: |Error during planning: )+")
_SHOWN = 30
"""So many characters of the condition are shown on either side of the mistake."""


def why(error: BaseException, query: str, condition: str, columns: Sequence[str], view: str) -> str:
    """Why a condition cannot be followed, on one line.

    Args:
        error: what the engine raised.
        query: what it was given, with the condition in it.
        condition: as it was written.
        columns: what it may name.
        view: the name that they have in the query, as in `view.column`.
    """
    # The cause stands last.
    said = " ".join(str(error).rpartition("caused by\n")[2].split()) or type(error).__name__
    parsed = _PARSED.search(said)
    if parsed is not None:
        where = "" if parsed[2] is None else f", here: {_marked(query, condition, int(parsed[2]), int(parsed[3]))}"
        return f"{_plain(parsed[1])}{where}"
    unknown = _UNKNOWN.search(said)
    if unknown is not None:
        name = unknown[1].strip('"').removeprefix(f"{view}.")
        return f"there is no column {name!r}{_meant(name, columns)}"
    said = _PREFIX.sub("", said).replace(f"{view}.", "")
    return f"{said}; times are written like '2026-11-25T10:00:00Z'" if "parsing timestamp" in said else said


def _marked(query: str, condition: str, line: int, column: int) -> str:
    """The condition with a caret before a place of the query; what is wrong behind it is missing at its end."""
    lines = query.split("\n")
    place = sum(len(each) + 1 for each in lines[: line - 1]) + column - 1 - query.rindex(f"(\n{condition}\n)") - 2
    place = min(max(0, place), len(condition.rstrip()))
    before, after = condition[:place], condition[place:].rstrip()
    begin = f"...{before[-_SHOWN:]}" if len(before) > _SHOWN else before
    end = f"{after[:_SHOWN]}..." if len(after) > _SHOWN else after
    return " ".join(f"{begin}^{end}".split())


def _plain(said: str) -> str:
    """The words of the parser; what it found behind the condition is our own."""
    return (
        said.replace('\\"', '"').replace("Expected:", "expected").replace(", found: )", "").replace("found:", "found")
    )


def _meant(name: str, columns: Sequence[str]) -> str:
    nearest = next((each for each in columns if each.endswith(f"_{name}")), None)
    nearest = nearest or next(iter(get_close_matches(name, columns, 1)), None)
    return "" if nearest is None else f"; did you mean {nearest!r}?"
