"""Each page that says what to do when something is so: a test does it, or the table says why none does."""

from __future__ import annotations

import re

import pytest

from tests.support.instructions import INSTRUCTIONS
from tests.support.pages import text_of
from tests.unit.house.test_remedies import each_of, names_in

_TYPED = re.compile(r"<!-- guide: begin -->.*?<!-- guide: end -->|^```.*?^```$|^#.*?$", re.MULTILINE | re.DOTALL)
_VERBS = (
    "add|alert|append|bring|call|choose|consumers|cut|delete|divide|do|give|keep|let|list|look|make|name|put|raise|"
    "rebuild|register|restore|run|say|send|set|sort|start|state|stop|submit|subscribe|take|use|wait|write"
)
_BEGINS = re.compile(rf"(?:(?:So|Then|Or|First) )?(?:{_VERBS}) ", re.IGNORECASE)


def sentences_of(page: str) -> list[str]:
    """What stands on it beside what a test types, cells of tables by themselves."""
    parts = re.split(r"\n\s*\n|\n- |\n\d\. |\|", _TYPED.sub("\n\n", text_of(page)))
    texts = (" ".join(part.split()) for part in parts)
    return [each.strip("*( ") for text in texts for each in re.split(r"(?<=[.:!?;)])\*{0,2} ", text)]


@pytest.mark.parametrize("page", INSTRUCTIONS)
def test_each_instruction_of_a_page_is_in_the_table(page: str) -> None:
    """Who writes one says which test does it."""
    instructions = [each for each in sentences_of(page) if each[:1].isupper() and _BEGINS.match(each)]
    assert [each for each in instructions if not any(map(each.startswith, INSTRUCTIONS[page]))] == []


@pytest.mark.parametrize("page", INSTRUCTIONS)
def test_what_the_table_names_is_there(page: str) -> None:
    """The words are on the page, and the tests are there; what is no test is a reason."""
    text = " ".join(text_of(page).split())
    assert [first for first in INSTRUCTIONS[page] if first not in text] == []
    values = [value for tests in INSTRUCTIONS[page].values() for value in each_of(tests)]
    named = [value.split("::") for value in values if "::" in value]
    assert [name for path, name in named if name not in names_in(path)] == []
    assert [value for value in values if "::" not in value and not value.endswith(".")] == []
