"""What commands print: one line each, whatever texts of strangers are in it, and wherever it goes."""

import os
import sys
from collections.abc import Callable
from contextlib import suppress

import typer

from pipeline.config.errors import PipelineError
from pipeline.config.printed import printable

BEFORE_OUTPUT = list[Callable[[], None]]()
"""Called before each line: what says how far a command is leaves the terminal then."""


class OutputFailed(PipelineError):
    """What a command prints cannot be written where it was sent. Look at the disk, or send it elsewhere."""

    def __init__(self, reason: str) -> None:
        """Say why, in the words of the system."""
        super().__init__(f"standard output cannot be written: {reason}")
        self.reason = reason


def echo(text: object = "", *, err: bool = False) -> None:
    """Print a line; control characters in it are spelled out. Where nobody hears of errors they are lost.

    Raises:
        OutputFailed: standard output cannot be written.
        BrokenPipeError: nobody reads it any more.
    """
    for leave in tuple(BEFORE_OUTPUT):
        leave()
    try:
        typer.echo(printable(str(text)), err=err)
    except BrokenPipeError:
        if not err:
            raise
    except OSError as error:
        if not err:
            # Python would try once more at its end, and say so.
            _to_nowhere(1)
            raise OutputFailed(str(error.strerror)) from error
        _to_nowhere(2)


def hint(text: object) -> None:
    """Print a line on standard error for somebody who sits there; a program that reads what is printed gets none."""
    if sys.stderr is not None and sys.stderr.isatty():
        echo(text, err=True)


def echo_lines(text: str) -> None:
    """Print a text of our own that has several lines, each as `echo` does."""
    for line in text.split("\n"):
        echo(line)


def tell(text: object) -> None:
    """Print what a command has done. It is done, whether anybody can read it or not: so that is no failure."""
    try:
        echo(text)
    except BrokenPipeError:
        _to_nowhere(1)
    except OutputFailed as failed:
        echo(f"delayline: {failed}; what was asked for is done", err=True)


def open_descriptors() -> None:
    """Let what a process was started without (`>&-`) lead to nowhere.

    The next file that is opened would get its number, and what a library prints would be in a table.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            _to_nowhere(number)
    with suppress(OSError):
        sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
        sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)


def _to_nowhere(number: int) -> None:
    nowhere = os.open(os.devnull, os.O_RDWR)
    if nowhere != number:
        os.dup2(nowhere, number)
        os.close(nowhere)
