"""What words mean, by what they show: facts of one warehouse, as each command, table and call tells them.

A fact is a thing (a message, a delivery, a subscription), a word, and the value that the word shows of it. A word that
shows two values of one thing has two meanings. Two words that always show the same value are two words for one.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pipeline.config.spelling import iso_text
from tests.support.modules import ROOT
from tests.support.words import OPEN

NAMES = ("topic", "subscription", "position", "redelivery_count", "command_id", "minute", "consumer")
"""Words that say what a record is about."""
_ALIKE = re.compile(r"^\| `([^`]+)` \| ((?:`[^`]+`(?:, )?)+) \|", re.MULTILINE)
Thing = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Fact:
    """What somebody shows.

    Attributes:
        thing: what it is about: values by `NAMES`.
        word: the word.
        value: what it shows.
        where: the command, the table or the call that shows it.
    """

    thing: Thing
    word: str
    value: Any
    where: str


def facts(where: str, value: Any, about: Mapping[str, str] | None = None) -> Iterator[Fact]:  # noqa: ANN401 - of JSON
    """The facts of what JSON has, or of a row of a table.

    Args:
        where: who shows it.
        value: a record, or a list of some.
        about: what the records around it are about.
    """
    if isinstance(value, list):
        for each in value:
            yield from facts(where, each, about)
    if not isinstance(value, Mapping):
        return
    known = {**(about or {}), **_names(value)}
    if isinstance(value.get("key"), str) and "position" not in known:
        known |= {"key": value["key"]}
    # A step of a history is about the delivery that it made; what else happened is another thing.
    if value.get("what") not in (None, "published"):
        known |= {"what": str(value["what"])}
    thing = tuple(sorted(known.items()))
    for word, each in value.items():
        if isinstance(each, list | Mapping) and word not in OPEN:
            yield from facts(where, each, known)
        elif each is not None and not isinstance(each, list | Mapping):
            yield Fact(thing, word, each, where)


def rows(where: str, found: Iterable[Mapping[str, Any]]) -> Iterator[Fact]:
    """The facts of rows of a table; times are told as JSON tells them, and positions by one word, too."""
    for row in found:
        shown = {name: _in_json(each) for name, each in row.items()}
        if {"ledger_id", "entry_id"} <= shown.keys():
            shown["position"] = f"{shown['ledger_id']}:{shown['entry_id']}"
        yield from facts(where, shown)


def two_meanings(found: Iterable[Fact]) -> dict[str, list[tuple[str, str]]]:
    """Words that show different values of one thing, with what shows them: one word, two meanings."""
    shown = defaultdict[tuple[Thing, str], dict[str, set[str]]](lambda: defaultdict(set))
    for each in found:
        shown[each.thing, each.word][each.where].add(repr(each.value))
    wrong = defaultdict[str, list[tuple[str, str]]](list)
    for (_, word), by_place in shown.items():
        places = sorted(by_place)
        pairs = [(a, b) for a in places for b in places if a < b and not by_place[a] & by_place[b]]
        wrong[word] += [pair for pair in pairs if pair not in wrong[word]]
    return {word: pairs for word, pairs in wrong.items() if pairs}


def two_words(found: Iterable[Fact], least: int = 2) -> set[tuple[str, str]]:
    """Words that show the same of all things that both are said of: one meaning, two words.

    Args:
        found: what is shown.
        least: of so many different values, so that it is no chance.
    """
    values = defaultdict[str, dict[Thing, set[str]]](lambda: defaultdict(set))
    for each in found:
        if each.word not in NAMES and not isinstance(each.value, bool):
            values[each.word][each.thing].add(repr(each.value))
    return {
        (one, other)
        for one in values
        for other in values
        if one < other and _always_alike(values[one], values[other], least)
    }


def alike() -> set[tuple[str, str]]:
    """The pairs that `docs/words.md` names, with their reasons."""
    page = (ROOT / "docs" / "words.md").read_text(encoding="utf-8")
    table = page.partition("## The same by another name\n")[2].partition("\n## ")[0]
    pairs = ((here, other) for here, others in _ALIKE.findall(table) for other in re.findall("`([^`]+)`", others))
    return {(min(pair), max(pair)) for pair in pairs}


def _always_alike(one: Mapping[Thing, set[str]], other: Mapping[Thing, set[str]], least: int) -> bool:
    common = one.keys() & other.keys()
    same = all(one[thing] == other[thing] for thing in common)
    return same and len(set().union(*(one[thing] for thing in common))) >= least


def _in_json(value: object) -> object:
    match value:
        case datetime():
            return iso_text(value)
        case bytes():
            return value.decode()
        case _:
            return value


def _names(value: Mapping[str, Any]) -> dict[str, str]:
    """What a record is about, by itself or by a record in it."""
    inner = (each for word, each in value.items() if isinstance(each, Mapping) and word not in OPEN)
    found = {name: text for each in inner for name, text in _names(each).items()}
    return found | {name: str(value[name]) for name in NAMES if value.get(name) is not None}
