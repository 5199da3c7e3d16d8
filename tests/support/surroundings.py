"""Surroundings in which somebody may start a command, and what each command does to a warehouse: a table.

`python -m tests.support.surroundings ROOT [USER]` goes through all commands in one process, as that user, and prints a
line of JSON for each: its words, its exit code, how many lines it said on standard error, and whether one of them is of
a stack trace.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

NAMES: dict[str, bytes] = {
    "all at once": " a%#?='\"`🚀e\u0301*{b}$~;:,& ".encode(),
    "blank": b"a b",
    "blanks at its ends": b" a ",
    "percent": b"50%",
    "hash": b"a#b",
    "question mark": b"a?b",
    "like a partition": b"topic=a",
    "quote": b"it's",
    "quotes": b'a"b`c',
    "emoji": "\N{ROCKET}".encode(),
    "accent in two": "e\u0301".encode(),
    "right to left": "\u202eab".encode(),
    "dash": b"-w",
    "dashes": b"--",
    "like a scheme": b"s3:",
    "colon": b"a:b",
    "wildcards": b"a*{b}",
    "shell": b"$HOME;a&b~!(c)<d>",
    "hidden": b".hidden",
    "under": b"_x",
    "long": b"l" * 255,
    "deep": b"/".join([b"d" * 200] * 8),
}
"""Names of folders that are names like all others."""
REFUSED: dict[str, bytes] = {
    "escaped blank": b"a%20b",
    "escaped slash": b"a%2Fb",
    "backslash": b"a\\b",
    "brackets": b"a[b]",
    "caret": b"a^b",
    "bar": b"a|b",
    "line end": b"a\nb",
    "escape": b"a\x1b[31mb",
    "delete": b"a\x7fb",
    "no UTF-8": b"a\xffb",
    "of Delta": b"_delta_log",
}
"""Names that delta-rs takes for others, or not at all."""
ENVIRONMENTS: dict[str, dict[str, str | None]] = {
    "all at once": {
        **dict.fromkeys(("HOME", "PATH", "LANG", "USER", "LOGNAME", "PYTHONUTF8")),
        "LC_ALL": "C",
        "PYTHONUTF8": "0",
        "PYTHONCOERCECLOCALE": "0",
        "TMPDIR": "/nonexistent",
        "TERM": "dumb",
    },
    "no home": {"HOME": None},
    "home that is not there": {"HOME": "/nonexistent/a b"},
    "no temporary folder": {"TMPDIR": "/nonexistent"},
    "locale C": {"LC_ALL": "C", "LANG": None, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    "no locale": {"LC_ALL": None, "LANG": None},
    "unknown locale": {"LC_ALL": "xx_YY.none"},
    "ASCII": {"PYTHONIOENCODING": "ascii"},
    "dumb terminal": {"TERM": "dumb", "COLUMNS": "1", "LINES": "0"},
    "no terminal": {"TERM": None, "COLUMNS": "x"},
    "nothing at all": {"HOME": None, "PATH": None, "LANG": None, "TERM": None, "USER": None, "LOGNAME": None},
}
"""What is set, or (None) not set."""
FLAGS: dict[str, list[str]] = {
    "all at once": ["-OO", "-P", "-s"],
    "-O": ["-O"],
    "-OO": ["-OO"],
    "warnings": ["-W", "error"],
    "isolated": ["-P", "-s"],
}
MASKS = (0o000, 0o077, 0o777)
TOPICS = (
    "x",
    "x-partition-0",
    "x-partition--1",
    "x-partition-00",
    "X",
    " x",
    "x ",
    ".",
    "..",
    "a/b",
    "\u00e9",
    "e\u0301",
)
"""Names of topics that look like each other, or like something else."""


def commands(root: str) -> Iterator[list[str]]:
    """All commands that need no Java and do not wait, in an order in which each has something to do."""
    name = ["-t", "t", "-s", "s"]
    for words in (
        ["init"],
        ["subscribe", *name],
        ["subscribe", "-t", "t", "-s", "acked", "--ack"],
        ["send", "-t", "t", "-k", "k", os.fsdecode("\u00fc".encode())],
        ["send", "-t", "t", "-f", __file__],
        ["topic", "-t", "parts", "--partitions", "2"],
        ["policy", "set", "-t", "t", "--fixed-delay", "5s"],
        ["policy", "show", "-t", "t"],
        ["policy", "unset", "-t", "t", "fixed_delay_ms"],
        ["pause", *name],
        ["resume", *name],
        ["pending"],
        ["receive", "--no-follow"],
        ["doctor"],
        ["subscriptions"],
        ["sinks"],
        ["sources"],
        ["consumers"],
        ["commands"],
        ["dead-letters", "list", "-t", "t", "-s", "acked"],
        ["dead-letters", "put-back", "-t", "t", "-s", "acked"],
        ["clear", *name, "--dry-run"],
        ["unsubscribe", *name],
        ["stop"],
    ):
        yield [*words, "-w", root]


def through(root: str) -> Iterator[dict[str, Any]]:
    """Each command on a warehouse, in this process: its words and what came of them."""
    from tests.support.invoked import invoke  # noqa: PLC0415 - the process becomes another user before

    for words in commands(root):
        result = invoke(words)
        said = result.stderr.splitlines()
        trace = "Traceback" in result.stderr or not isinstance(result.exception, SystemExit | None)
        yield {
            "words": words,
            "code": result.exit_code,
            "lines": len(said),
            "trace": trace,
            "said": [*said[:3], repr(result.exception)],
        }


def main(root: str, user: str = "") -> None:
    """Print what came of each command."""
    if user:
        # Afterwards all is imported: the files of Python need not be readable by that user.
        with TemporaryDirectory() as other:
            list(through(other))
        Path(root).parent.chmod(0o777)
        os.setgroups([])
        os.setgid(int(user))
        os.setuid(int(user))
    for result in through(root):
        print(json.dumps(result))  # noqa: T201 - for its parent


if __name__ == "__main__":
    main(*sys.argv[1:])
