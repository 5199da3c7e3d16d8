"""Each remedy that a page names is followed by a test, after the fault that needs it."""

from __future__ import annotations

import ast
import re

import pytest

pytest.importorskip("typer", reason="the command needs requirements/all.lock")
pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

from tests.support.modules import ROOT
from tests.support.operations import PAGE
from tests.support.remedies import NOTHING_TO_DO, OUTSIDE, TRIED
from tests.unit.house.test_operations import errors_of_the_commands, words_of_the_doctor


def words_of_the_page() -> set[str]:
    """What stands in the first column of the table of the doctor's words."""
    _, _, table = PAGE.read_text(encoding="utf-8").partition("## What the doctor says")
    firsts = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    return {word for first in firsts for word in re.findall(r"`(\w+)`", first)}


def names_in(path: str) -> set[str]:
    """The names of the tests of a module."""
    tree = ast.parse((ROOT / "tests" / path).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_every_fault_is_in_the_table_of_remedies_once() -> None:
    """Who adds a word of the doctor or an error says which test does what its page says."""
    lists = (set(TRIED), set(NOTHING_TO_DO), set(OUTSIDE))
    everything = words_of_the_doctor() | words_of_the_page() | errors_of_the_commands()
    assert set.union(*lists) == everything, set.union(*lists) ^ everything
    assert sum(map(len, lists)) == len(everything)


def test_the_names_in_remedies_are_there() -> None:
    """One that was renamed is named anew, and not forgotten."""
    named = {tuple(each.split("::")) for each in TRIED.values()}
    assert {each for each in named if each[1] not in names_in(each[0])} == set()
