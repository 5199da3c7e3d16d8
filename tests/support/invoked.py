"""The command, run in the process of a test."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any
from unittest.mock import patch

import typer
from typer import testing
from typer.testing import CliRunner, Result

from jobs import cli
from tests.support.words import check

_NEVER_S = 3_600.0
_MODULE: Any = testing
# Typer's runner makes the command anew for each call, which takes longer than most calls.
_MODULE._get_command = cache(_MODULE._get_command)


def invoke(words: Sequence[str], environment: Mapping[str, str] | None = None, stdin: bytes = b"") -> Result:
    """Run the command with these words. What it prints as JSON has the words of `docs/words.md`.

    On a machine that is slow today it does not say how far it is.
    """
    with patch("jobs.progress.QUIET_S", _NEVER_S):
        result = CliRunner(env=environment).invoke(cli.app, words, input=stdin)
    if "--json" in words and words[:2] != ["policy", "show"]:
        for line in result.stdout.splitlines():
            check(json.loads(line))
    return result


def commands() -> Iterator[tuple[str, Any]]:
    """Each command: its words, and what Typer knows of it."""

    def below(command: Any, name: str) -> Iterator[tuple[str, Any]]:  # noqa: ANN401 - Typer's own types are private
        for word, each in getattr(command, "commands", {}).items():
            yield from below(each, f"{name} {word}")
        if not hasattr(command, "commands"):
            yield name.strip(), command

    return below(typer.main.get_command(cli.app), "")


def invoke_line(line: str) -> Result:
    """Run a command as a line prints it; all is well."""
    program, *words = shlex.split(line)
    assert program == "delayline"
    result = invoke(words)
    assert result.exit_code == 0, result.output
    return result


def run(root: str, *words: str) -> Result:
    """Run a command on a warehouse."""
    return invoke([*words, "--warehouse", root])


def output(root: str, *words: str) -> str:
    """What a command prints when all is well."""
    result = run(root, *words)
    assert result.exit_code == 0, result.output
    return result.output
