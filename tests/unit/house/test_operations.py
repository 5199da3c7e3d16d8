"""docs/operations.md: its commands are commands, and it knows every error and every word of the doctor."""

from __future__ import annotations

import ast
from typing import Any

import pytest

pytest.importorskip("typer", reason="the command needs requirements/all.lock")
pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

import typer

from jobs import cli
from pipeline.delta.logs.change import REASON
from tests.support.modules import ROOT
from tests.support.operations import PAGE, commands

KINDS = ("error", "warning", "note")


def words_of_the_doctor() -> set[str]:
    """The first argument of each finding that the doctor makes."""
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in (ROOT / "pipeline" / "doctor").glob("*.py")]
    calls = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call)]
    made = [call for call in calls if isinstance(call.func, ast.Name) and call.func.id in KINDS]
    named = [call.args[0] for call in made if call.args]
    return {str(each.value) for each in named if isinstance(each, ast.Constant)} | {REASON}


def test_every_command_of_the_page_is_a_command() -> None:
    """An option that was renamed would be found at night."""
    group: Any = typer.main.get_command(cli.app)
    ours = [command for command in commands({"W": "w", "B": "b"}) if command.words[0] == "delayline"]
    assert len(ours) > 10
    for command in ours:
        with group.make_context("delayline", list(command.words[1:])) as context:
            name, found, rest = group.resolve_command(context, list(command.words[1:]))
            assert name is not None
            assert found is not None
            found.make_context(name, rest)


def test_every_word_of_the_doctor_is_explained() -> None:
    """Who reads one looks it up there."""
    words, page = words_of_the_doctor(), PAGE.read_text(encoding="utf-8")
    assert len(words) > 25
    assert {word for word in words if f"`{word}`" not in page} == set()


def errors_of_the_commands() -> set[str]:
    """The classes that say what a stage or a command refuses."""
    files = [path for folder in ("pipeline", "jobs") for path in (ROOT / folder).rglob("*.py")]
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in files]
    classes = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    roots = ("PipelineError", "NotAllowed")
    # Of a client's errors the guide tells; what only names a field is raised as one of its children.
    found = {each.name for each in classes if each.bases and getattr(each.bases[-1], "id", "") in roots}
    return found - {roots[1]}


def test_every_error_of_a_command_is_explained() -> None:
    """Who is told of one looks it up there."""
    errors, page = errors_of_the_commands(), PAGE.read_text(encoding="utf-8")
    assert len(errors) > 20
    assert {name for name in errors if f"`{name}`" not in page} == set()
