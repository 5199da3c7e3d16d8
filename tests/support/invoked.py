"""The command, run in the process of a test."""

from __future__ import annotations

from typer.testing import CliRunner, Result

from jobs import cli


def run(root: str, *words: str) -> Result:
    """Run a command on a warehouse."""
    return CliRunner().invoke(cli.app, [*words, "--warehouse", root])


def told(root: str, *words: str) -> str:
    """What a command prints when all is well."""
    result = run(root, *words)
    assert result.exit_code == 0, result.output
    return result.output
