"""What is wrong with a condition that somebody wrote, in words about the condition, not about our query around it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from difflib import get_close_matches

_PARSED = re.compile(r'(?:Parser|Tokenizer)Error\("(.*?)(?: at Line: (\d+), Column: (\d+))?"\)')
_UNKNOWN = re.compile(r"No field named (\S+?)\.(?: .*|$)")
_PREFIX = re.compile(
    r"^(?:(?:SQL|Schema|Arrow|Parser|Parquet|External|Compute|Execution|Cast) error: |External: |"
    r"Error during planning: |Error evaluating filter predicate: |This feature is not implemented: )+"
)
_INSIDE = re.compile(r"[\s:]*(?:\S*[{(\[]\s*(?:Some|Span|Literal|Ident)\b|\S*\{|\w*Error\(|\S+::).*$")
"""From here on a text is about the engine, and says nothing to who wrote the condition."""
_SHOWN = 30
"""So many characters of the condition are shown on either side of the mistake."""
_TIMES = "times are written like '2026-11-25T10:00:00Z'"
_KINDS = (
    ("Utf8", "a text"), ("LargeUtf8", "a text"), ("Interval", "a span of time"), ("Int", "a number"),
    ("UInt", "a number"), ("Float", "a number"), ("Decimal", "a number"), ("Timestamp", "a time"), ("Date", "a date"),
    ("Duration", "a span of time"), ("Bool", "true or false"), ("Map", "a map"), ("List", "a list"),
    ("Binary", "bytes"), ("Null", "NULL"),
)  # fmt: skip
"""What the types of the engine are, by how their names begin."""
_TYPE = r"(\w+(?:\([^()]*\))?)"
_SPOKEN = (
    ("deliver", "due_time"), ("due", "due_time"), ("publish", "publish_time"), ("sen", "publish_time"),
    ("event", "publish_time"),
)  # fmt: skip
"""The columns that people mean by words that begin so."""


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
    if (parsed := _PARSED.search(said)) is not None:
        return _parsed(parsed, query, condition)
    said = said.replace(f"{view}.", "")
    if (unknown := _UNKNOWN.search(said)) is not None:
        name = unknown[1].strip('"')
        return f"there is no column {name!r}{_meant(name, columns)}"
    for form, words in _WORDS:
        if (found := form.search(said)) is not None:
            plain, culprit = words(found)
            return f"{plain}{_here(condition, culprit)}"
    return _INSIDE.sub("", _PREFIX.sub("", said)) or "it cannot be followed"


def _parsed(found: re.Match[str], query: str, condition: str) -> str:
    """The words of the parser; what it found behind the condition is our own."""
    said = found[1].replace('\\"', '"').replace("Expected:", "expected").replace("found:", "found")
    if said.endswith(", found EOF"):
        # Our own bracket around the condition closes one of the condition.
        return f"a bracket is not closed, here: {_marked(condition, len(condition))}"
    said = said.removesuffix(", found )").replace("expected ),", "expected its end or ),")
    if found[2] is None:
        return said
    lines = query.split("\n")
    before = sum(len(each) + 1 for each in lines[: int(found[2]) - 1]) + int(found[3]) - 1
    return f"{said}, here: {_marked(condition, before - query.rindex(f'({chr(10)}{condition}{chr(10)})') - 2)}"


def _marked(condition: str, place: int) -> str:
    """The condition with a caret before a place; what is wrong behind it is missing at its end."""
    place = min(max(0, place), len(condition.rstrip()))
    before, after = condition[:place], condition[place:].rstrip()
    begin = f"...{before[-_SHOWN:]}" if len(before) > _SHOWN else before
    end = f"{after[:_SHOWN]}..." if len(after) > _SHOWN else after
    return " ".join(f"{begin}^{end}".split())


def _here(condition: str, culprit: str) -> str:
    """Where a word of the condition is; nothing when it is not in it."""
    place = condition.lower().find(culprit.lower()) if culprit else -1
    return "" if place < 0 else f", here: {_marked(condition, place)}"


def _kind(type_: str) -> str:
    """A type of the engine in words."""
    return next((words for begin, words in _KINDS if type_.startswith(begin)), "a value of another kind")


def _cast(found: re.Match[str]) -> tuple[str, str]:
    text, kind = found[1], _kind(found[2])
    more = f"; {_TIMES}" if kind == "a time" else ""
    return f"{text!r} is not {kind}{more}; texts are compared with texts, as in message_key = '1'", f"'{text}'"


def _differ(found: re.Match[str]) -> tuple[str, str]:
    kinds = _kind(found[1]), _kind(found[2])
    more = f"; {_TIMES}" if "a time" in kinds else ""
    return f"{kinds[0]} and {kinds[1]} do not go together{more}", ""


def _unknown(found: re.Match[str]) -> tuple[str, str]:
    more = "; a pattern stands behind ~, as in topic ~ '^a.*'" if found[1] == "RLike" else ""
    return f"{found[1].upper()} is not known{more}", found[1]


_ONE_BY_ONE = "it is asked of one message at a time, so there is no sum, no count and the like"
_Words = Callable[[re.Match[str]], tuple[str, str]]
"""Gives the words for what was said, and what of the condition it is about."""
_WORDS: tuple[tuple[re.Pattern[str], _Words], ...] = (
    (re.compile(r"Error parsing timestamp from '(.*?)':"), lambda it: (f"{it[1]!r} is no time; {_TIMES}", "")),
    (re.compile(r"Cannot cast string '(.*?)' to value of (\w+)"), _cast),
    (re.compile(r"DivideByZero|[Dd]ivide by zero"), lambda _: ("it divides by zero", "/")),
    (
        re.compile(rf"non-boolean predicate '.*' returning {_TYPE}"),
        lambda it: (f"it is {_kind(it[1])}, and no condition that is true or false", ""),
    ),
    (re.compile(r"Aggregate functions are not allowed|WindowFunction"), lambda _: (_ONE_BY_ONE, "")),
    (re.compile(r"Unsupported ast node in sqltorel: (\w+)"), _unknown),
    (
        re.compile(r"regex parse error:.*error: (.*)$"),
        lambda it: (f"the pattern is no regular expression: {it[1]}", ""),
    ),
    (re.compile(rf"common type to coerce {_TYPE} and {_TYPE}"), _differ),
    (re.compile(rf"comparison operation {_TYPE} \S+ {_TYPE}"), _differ),
    (re.compile(rf"coerce arithmetic expression {_TYPE} \S+ {_TYPE}"), _differ),
    (
        re.compile(r"Invalid function '(.*?)'\.(?: Did you mean '(.*?)'\?)?"),
        lambda it: (f"there is no function {it[1]!r}{'' if it[2] is None else f'; did you mean {it[2]!r}?'}", ""),
    ),
    (re.compile(r"Placeholder '(.*?)' was not provided"), lambda it: (f"{it[1]} stands for no value", it[1])),
)
"""What the engine says of a condition that it has parsed, and the words for that."""


def _meant(name: str, columns: Sequence[str]) -> str:
    spoken = next((each for begin, each in _SPOKEN if name.lower().startswith(begin) and each in columns), None)
    # `duetime` is near enough to its own column, whatever it begins with.
    near = next(iter(get_close_matches(name, columns, 1, 0.75)), None)
    ending = next((each for each in columns if each.endswith(f"_{name}")), None)
    nearest = near or ending or spoken or next(iter(get_close_matches(name, columns, 1)), None)
    return "" if nearest is None else f"; did you mean {nearest!r}?"
