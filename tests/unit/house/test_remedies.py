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
from tests.support.remedies import PROSE, ROWS, TRIED, UNTRIED, Tests
from tests.support.remedylines import LINES
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


def rows_of_the_page() -> list[str]:
    """The first cells of all tables but those of the log and of the doctor."""
    page = PAGE.read_text(encoding="utf-8")
    part = page[: page.index("Lines of the log that are not errors:")]
    rows = [line.split(" | ")[0].removeprefix("| ") for line in part.splitlines() if line.startswith("| ")]
    return [row for row in rows if row not in ("Alert", "Error", "Two at once")]


_VERBS = "ask|begin|check|copy|delete|do|give|install|keep|let|look|make|move|name|note|put|rebuild|remove|restart"
_VERBS += "|restore|run|send|set|start|stop|take|tell|use|wait|write"
_SAYS_WHAT_TO_DO = re.compile(
    rf"(?:^|[,;:] (?:and )?|- )(?:(?:Then|So|First|Otherwise) )?(?:{_VERBS})\b"
    r"|\byou (?:may|can)\b|\bagain\b|\bgoes on\b|\bstop `|\buse the tool|\bstands still|\bbegin anew",
    re.IGNORECASE,
)


def sentences_of_the_page() -> list[str]:
    """What the page says to do beside its tables and commands."""
    page = re.sub(r"^```.*?^```$", "", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    text = "\n".join(line for line in page.splitlines() if not line.startswith(("|", "#")))
    parts = [" ".join(part.split()) for part in re.split(r"\n\n|\n(?=- )", text)]
    sentences = [each for part in parts for each in re.split(r"(?<=[.:;!?])\s+(?=[A-Z`])", part)]
    return [each for each in sentences if _SAYS_WHAT_TO_DO.search(each)]


def each_of(tests: Tests) -> tuple[str, ...]:
    """One name, or several."""
    return (tests,) if isinstance(tests, str) else tests


def test_every_fault_is_in_the_table_of_remedies_once() -> None:
    """Who adds a word of the doctor or an error says which test does what its page says."""
    everything = words_of_the_doctor() | words_of_the_page() | errors_of_the_commands()
    assert TRIED.keys() | UNTRIED.keys() == everything, (TRIED.keys() | UNTRIED.keys()) ^ everything
    assert TRIED.keys() & UNTRIED.keys() == set()


def test_every_row_of_the_page_is_in_the_table_of_remedies() -> None:
    """By the class of its error; one that has none by what stands in its first cell."""
    rows = rows_of_the_page()
    assert len(rows) > 40
    others = {row for row in rows if not set(re.findall(r"`(\w+)`", row)) & (TRIED.keys() | UNTRIED.keys())}
    assert others == ROWS.keys(), others ^ ROWS.keys()


def test_every_sentence_of_the_page_is_in_the_table_of_remedies() -> None:
    """Who writes one that says what to do says which test does it, or why none does."""
    sentences = sentences_of_the_page()
    assert len(sentences) > 40
    assert [each for each in sentences if sum(map(each.startswith, PROSE)) != 1] == []
    assert [first for first in PROSE if sum(each.startswith(first) for each in sentences) != 1] == []


def test_the_names_in_remedies_are_there() -> None:
    """One that was renamed is named anew, and not forgotten; what is no name is a reason."""
    tables = (TRIED, LINES, ROWS, PROSE, UNTRIED)
    values = [value for table in tables for tests in table.values() for value in each_of(tests)]
    named = {tuple(value.split("::")) for value in values if "::" in value}
    assert {each for each in named if each[1] not in names_in(each[0])} == set()
    assert {value for value in values if "::" not in value and not value.endswith(".")} == set()
    assert {name for name, tests in TRIED.items() if not all("::" in each for each in each_of(tests))} == set()


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
