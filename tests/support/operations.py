"""The commands of `docs/operations.md`, in order."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from tests.support.modules import ROOT

PAGE = ROOT / "docs" / "operations.md"
_BLOCK = re.compile(r"^```shell\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def lines() -> list[str]:
    """The lines of all shell blocks."""
    return [line for block in _BLOCK.findall(PAGE.read_text(encoding="utf-8")) for line in block.splitlines() if line]


@dataclass(frozen=True)
class Command:
    """A line, its variables filled in; `background`: it goes on while the next lines run."""

    line: str
    words: tuple[str, ...]
    background: bool


class Runner(Protocol):
    """Runs the commands that are ours."""

    def delayline(self, words: tuple[str, ...], *, background: bool) -> int:
        """The command `delayline`; its exit code, 0 for what goes on."""
        ...

    def module(self, words: tuple[str, ...]) -> int:
        """A `python -m`; its exit code."""
        ...


def commands(variables: Mapping[str, str]) -> Iterator[Command]:
    """The page, with its variables filled in."""
    for line in lines():
        filled = line
        for name, value in variables.items():
            filled = filled.replace(f"${name}", value)
        words = shlex.split(filled)
        background = words[-1] == "&"
        yield Command(filled, tuple(words[:-1] if background else words), background)


def run(command: Command, runner: Runner) -> int:
    """Run a command; its exit code. What is not ours is the shell's."""
    match command.words:
        case ("delayline", *words):
            return runner.delayline(tuple(words), background=command.background)
        case ("python", "-P", "-m", name, *words):
            return runner.module((name.removeprefix("delayline."), *words))
        case _:
            return shell(command)


def shell(command: Command) -> int:
    """Let the shell run a line; its exit code."""
    return subprocess.run(["bash", "-ec", command.line], check=False, env=dict(os.environ)).returncode  # noqa: S603, S607
