"""Names in the JSON of commands, held beside `docs/words.md`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from tests.support.modules import ROOT

_ROW = re.compile(r"\| `([^`]+)` \| (\w+) \| (.*) \|")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
_POSITION = re.compile(r"\d+:\d+")
OPEN = ("count_by_subscription", "place", "policies", "properties", "versions")
"""Records whose names are somebody else's."""


@cache
def table(title: str) -> Mapping[str, str]:
    """The kinds of the words below a title of the page, by word."""
    return {word: kind for word, kind, _ in _rows(title)}


def meanings(title: str) -> Mapping[str, str]:
    """What the words below a title of the page mean, by word."""
    return {word: text for word, _, text in _rows(title)}


def _rows(title: str) -> list[tuple[str, str, str]]:
    page = (ROOT / "docs" / "words.md").read_text(encoding="utf-8")
    return _ROW.findall(page.partition(f"## {title}\n")[2].partition("\n## ")[0])


def check(value: Any) -> None:  # noqa: ANN401 - what JSON can hold
    """Fail where a name is not on the page, or has another kind of value."""
    if isinstance(value, list):
        for each in value:
            check(each)
    elif isinstance(value, Mapping):
        for name, each in value.items():
            _check_named(name, each)


def _check_named(name: str, value: Any) -> None:  # noqa: ANN401 - the same
    kinds = table("Names in JSON")
    kind = kinds.get(name.removesuffix("_base64"))
    assert kind is not None, f"docs/words.md lacks {name}"
    if value is not None:
        assert _is_of(kind, name, value), f"{name} is a {kind} by docs/words.md: {value!r}"
    if name not in OPEN:
        check(value)


def _is_of(kind: str, name: str, value: Any) -> bool:  # noqa: ANN401 - the same
    match kind:
        case "list" | "record":
            return isinstance(value, list if kind == "list" else Mapping)
        case "time":
            return isinstance(value, str) and _TIME.fullmatch(value) is not None
        case "position":
            return isinstance(value, str) and _POSITION.fullmatch(value) is not None
        case "flag":
            return isinstance(value, bool)
        case "number" | "duration":
            ends = kind == "number" or name.endswith(("_ms", "_s"))
            return ends and isinstance(value, int | float) and not isinstance(value, bool)
        case _:
            return isinstance(value, str)
