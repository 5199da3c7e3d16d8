"""The command, run in the process of a test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from typer import testing
from typer.testing import CliRunner, Result

from jobs import cli

_MODULE: Any = testing
# Typer's runner makes the command anew for each call, which takes longer than most calls.
_MODULE._get_command = cache(_MODULE._get_command)


def invoke(words: Sequence[str], environment: Mapping[str, str] | None = None, stdin: bytes = b"") -> Result:
    """Run the command with these words."""
    return CliRunner(env=environment).invoke(cli.app, words, input=stdin)


def run(root: str, *words: str) -> Result:
    """Run a command on a warehouse."""
    return invoke([*words, "--warehouse", root])


def told(root: str, *words: str) -> str:
    """What a command prints when all is well."""
    result = run(root, *words)
    assert result.exit_code == 0, result.output
    return result.output
