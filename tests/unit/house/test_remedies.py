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
from tests.support.remedies import LINES, NOTHING_TO_DO, OUTSIDE, TRIED
from tests.unit.house.test_operations import errors_of_the_commands, words_of_the_doctor


def words_of_the_page() -> set[str]:
    """What stands in the first column of the table of the doctor's words."""
    _, _, table = PAGE.read_text(encoding="utf-8").partition("## What the doctor says")
    firsts = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    return {word for first in firsts for word in re.findall(r"`(\w+)`", first)}


def lines_of_the_page() -> list[list[str]]:
    """What the tables of lines of the log have as code, row by row."""
    page = PAGE.read_text(encoding="utf-8")
    part = page[page.index("Lines of the log that are not errors:") : page.index("## What the doctor says")]
    return [re.findall(r"`([^`]+)`", line) for line in part.splitlines() if line.startswith("| `")]


def texts_of(tree: ast.Module, node: ast.expr) -> list[str]:
    """What a text may be that is given to a logger, `%s` in the places of values."""
    if isinstance(node, ast.JoinedStr):
        return ["".join(str(each.value) if isinstance(each, ast.Constant) else "%s" for each in node.values)]
    if isinstance(node, ast.Constant):
        return [str(node.value)]
    name = getattr(node, "id", None)
    made = [each for each in ast.walk(tree) if isinstance(each, ast.Assign)]
    return [text for each in made if getattr(each.targets[0], "id", "") == name for text in texts_of(tree, each.value)]


def warnings_of_the_code() -> set[str]:
    """What the code may write into the log as a warning or an error."""
    found: list[str] = []
    for path in (path for folder in ("pipeline", "jobs") for path in (ROOT / folder).rglob("*.py")):
        if "testing" in path.parts:
            continue  # Nobody operates a warehouse under test.
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
            match call.func:
                case ast.Attribute(ast.Name("_LOG"), "warning" | "error" | "exception"):
                    texts = texts_of(tree, call.args[0])
                case ast.Name("errors_logged"):
                    texts = texts_of(tree, call.args[1])
                case _:
                    continue
            assert texts, ast.unparse(call)
            found += texts
    return set(found)


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
    named = {tuple(each.split("::")) for each in (*TRIED.values(), *LINES.values()) if "::" in each}
    assert {each for each in named if each[1] not in names_in(each[0])} == set()


def test_every_line_of_the_log_is_in_the_table_of_remedies() -> None:
    """Who adds a line to the page says which test does what it says, or why there is nothing to do."""
    firsts = [first for first, *_ in lines_of_the_page()]
    assert set(firsts) == set(LINES), set(firsts) ^ set(LINES)
    assert len(firsts) == len(LINES)


def test_every_warning_of_the_code_is_on_the_page() -> None:
    """Who reads one at night looks it up there."""
    warned, lines = warnings_of_the_code(), [line for row in lines_of_the_page() for line in row]
    assert len(warned) > 40
    forms = {text: ".+".join(map(re.escape, re.split(r"%(?:\(\w+\))?[sdr]", text))) for text in warned}
    assert {text for text, form in forms.items() if not any(re.fullmatch(form, line) for line in lines)} == set()
