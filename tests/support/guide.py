"""Follows a guide word for word, as a reader would: `python -P guide.py PAGE`, in the folder where its words are typed.

Runs the fenced blocks between two markers of the page: those of `shell` in bash, those of `python` in one interpreter.
A block of bash that ends with `&` goes on beside the others, and has to end well by itself when the guide is through.
Standard library only: it runs in the environment that the guide talks of.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
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
_BLOCK = re.compile(r"^```(shell|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: str) -> Iterator[tuple[str, str]]:
    """The blocks of the guide in a page, in order: `shell` or `python`, and what is typed.

    Raises:
        ValueError: the page has not one guide.
    """
    if page.count(BEGIN) != 1 or page.count(END) != 1:
        raise ValueError(page[:80])
    for found in _BLOCK.finditer(page.partition(BEGIN)[2].partition(END)[0]):
        yield found[1], found[2]


def follow(page: str) -> int:
    """Type everything; give the number of blocks.

    Raises:
        subprocess.CalledProcessError: a command failed, at once or in the background.
    """
    with ExitStack() as beside:
        typed: dict[str, Any] = {"__name__": "__main__"}
        going, count = list[subprocess.Popen[bytes]](), 0
        for count, (kind, text) in enumerate(blocks(page), 1):
            sys.stdout.write(f">>> {text}\n")
            sys.stdout.flush()
            if kind == "python":
                exec(compile(text, f"block {count}", "exec"), typed)  # noqa: S102 - the page is ours
            elif text.rstrip().endswith("&"):
                going.append(beside.enter_context(_background(text)))
            else:
                subprocess.run(["bash", "-ec", text], check=True, timeout=PATIENCE_S)  # noqa: S603, S607
        for each in going:
            if (code := each.wait(timeout=PATIENCE_S)) != 0:
                raise subprocess.CalledProcessError(code, each.args)
    return count


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
