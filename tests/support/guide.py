"""Follows a guide word for word, as a reader would: `python -P guide.py PAGE`, in the folder where its words are typed.

Runs the fenced blocks between two markers of the page: those of `shell` in bash, those of `python` in one interpreter.
A block of bash that ends with `&` goes on beside the others, and has to end well by itself when the guide is through.
A block without a language is what the one before it prints; times, ids and positions may be others.
Standard library only: it runs in the environment that the guide talks of.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout
from io import StringIO
from pathlib import Path
from threading import Event, Thread
from typing import Any

BEGIN, END = "<!-- guide: begin -->", "<!-- guide: end -->"
PATIENCE_S = 300
# What goes on in the background ends when the guide does, whatever ended that: the pipe is closed then.
_BESIDE = """exec 3<&0
{text}going=$!
(read -r _; kill -9 -- -$$) <&3 >/dev/null 2>&1 &
wait $going"""
_LOOK_S = 1.0
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_TYPED = ("shell", "python")
_OTHERS = (
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\.\d{3,6}Z?"), "TIME"),
    (re.compile(r"\((?:\d+\.\d{3} s late|due then)\)"), "(LATE)"),
    (re.compile(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b|\b[0-9a-f]{8}-\.\.\."), "ID"),
    (re.compile(r"\bdelayline-[0-9a-f]{16}:\d+"), "MESSAGE"),
    (re.compile(r"\b\d+:\d+\b"), "POSITION"),
    (re.compile(r"(?<=Warehouse ready in )\S+(?=/\w+$)", re.MULTILINE), "FOLDER"),
    (re.compile(r"\b\d+(?:,\d{3})* ms\b"), "SPAN"),
    (re.compile(r"\b\d+[dhms](?: \d+[dhms])*\b"), "SPAN"),
)
"""What is another one each time that a guide is followed."""


def blocks(page: str) -> Iterator[tuple[str, str]]:
    """The blocks of the guide in a page that are typed, in order: `shell` or `python`, and what is typed.

    Raises:
        ValueError: the page has not one guide.
    """
    if page.count(BEGIN) != 1 or page.count(END) != 1:
        raise ValueError(page[:80])
    for kind, text, _ in steps(page):
        yield kind, text


def steps(page: str) -> Iterator[tuple[str, str, str | None]]:
    """The same, with what each one prints; None: it is not said."""
    found = [(each[1], each[2]) for each in _BLOCK.finditer(page.partition(BEGIN)[2].partition(END)[0])]
    for (kind, text), (after, printed) in zip(found, [*found[1:], ("shell", "")], strict=True):
        if kind in _TYPED:
            yield kind, text, None if after else printed


class Differs(Exception):
    """A block printed something else than the page says."""

    def __init__(self, printed: str, expected: str) -> None:
        """Show both."""
        super().__init__(f"printed was:\n{printed}\nthe page says:\n{expected}")
        self.printed, self.expected = printed, expected


def check(printed: str, expected: str) -> None:
    """Compare what was printed with what a page says.

    Raises:
        Differs: they are not alike.
    """
    if _like(printed) != _like(expected):
        raise Differs(printed, expected)


def _like(text: str) -> list[str]:
    for pattern, name in _OTHERS:
        text = pattern.sub(name, text)
    return [line.rstrip() for line in text.strip().splitlines()]


def follow(page: str) -> int:
    """Type everything; give the number of blocks.

    Raises:
        subprocess.CalledProcessError: a command failed, at once or in the background.
        Differs: a block printed something else than the page says.
    """
    with ExitStack() as beside:
        typed: dict[str, Any] = {"__name__": "__main__"}
        going, count = list[subprocess.Popen[bytes]](), 0
        for count, (kind, text, expected) in enumerate(steps(page), 1):
            sys.stdout.write(f">>> {text}\n")
            sys.stdout.flush()
            if kind == "shell" and text.rstrip().endswith("&"):
                going.append(beside.enter_context(_background(text)))
                continue
            printed = _python(text, typed, count) if kind == "python" else _shell(text)
            if expected is not None:
                check(printed, expected)
        for each in going:
            if (code := each.wait(timeout=PATIENCE_S)) != 0:
                raise subprocess.CalledProcessError(code, each.args)
    return count


def _python(text: str, typed: dict[str, Any], count: int) -> str:
    """Run a block of Python, and give what it printed, which is printed, too."""
    printed = StringIO()
    try:
        with redirect_stdout(printed):
            exec(compile(text, f"block {count}", "exec"), typed)  # noqa: S102 - the page is ours
    finally:
        sys.stdout.write(printed.getvalue())
        sys.stdout.flush()
    return printed.getvalue()


def _shell(text: str) -> str:
    """Run a block of bash, and give what it printed, which is printed, too."""
    done = subprocess.run(["bash", "-ec", text], check=False, stdout=subprocess.PIPE, text=True, timeout=PATIENCE_S)  # noqa: S603, S607
    sys.stdout.write(done.stdout)
    sys.stdout.flush()
    done.check_returncode()
    return done.stdout


@contextmanager
def _background(text: str) -> Iterator[subprocess.Popen[bytes]]:
    """A block that goes on, killed with all that it started when it is still there at the end."""
    command = ["bash", "-c", _BESIDE.format(text=text)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)  # noqa: S603
    try:
        yield process
    finally:
        if process.stdin is not None:
            process.stdin.close()
        process.wait()


def _end_with(parent: int) -> None:
    """End at once when the process that started this one is gone."""
    while os.getppid() == parent:
        Event().wait(_LOOK_S)
    os._exit(1)


if __name__ == "__main__":
    Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    follow(Path(sys.argv[1]).read_text(encoding="utf-8"))
