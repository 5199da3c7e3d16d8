"""`delayline send` from standard input: a real process and a pipe that stays open."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("typer", reason="the command needs requirements/all.lock")
pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

import pyarrow as pa

from jobs.commands.lines import Lines
from pipeline.delta.deltars import open_table
from pipeline.storage.files import Files
from pipeline.subscriptions.limits import Limits
from schemas import INBOX
from tests.support.client import new_warehouse
from tests.support.invoked import invoke
from tests.support.modules import ROOT

_PATIENCE_S = 60.0
Process = subprocess.Popen[bytes]


@pytest.fixture(autouse=True)
def _heard() -> Iterator[None]:
    """Signals do what they do in a terminal. Under `nohup`, or behind `&`, tests start with some of them ignored."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    for number in before:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def _unnamed(printed: bytes) -> bytes:
    """What was printed, without the ids of messages, and with no time of its own."""
    unnamed = re.sub(rb" as delayline-[0-9a-f]{16}:0( to delayline-[0-9a-f]{16}:\d+)?", b"", printed)
    return re.sub(rb"due \S+", b"due TIME", unnamed)


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A new warehouse whose job takes 100 bytes at most."""
    new_warehouse(str(tmp_path))
    Limits(100, 10_000_000).put(Files(), str(tmp_path))
    return str(tmp_path)


@contextmanager
def sending(root: str) -> Iterator[Process]:
    """The command with an open pipe before it."""
    words = [sys.executable, "-m", "jobs.cli", "send", "-w", root, "-t", "t", "--deliver-after", "5m"]
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(words, cwd=ROOT, bufsize=0, **pipes) as process:  # noqa: S603 - our own command
        try:
            yield process
        finally:
            process.kill()


def write(process: Process, data: bytes) -> None:
    """Put bytes into the pipe."""
    assert process.stdin is not None
    process.stdin.write(data)


def rows(root: str, count: int) -> list[dict[str, Any]]:
    """The rows of the inbox, as soon as there are so many."""
    end = time.monotonic() + _PATIENCE_S
    while True:
        found: list[dict[str, Any]] = pa.table(open_table(root, INBOX).to_pyarrow_table()).to_pylist()
        if len(found) >= count:
            return sorted(found, key=lambda row: (row["publish_time"], row["payload"]))
        assert time.monotonic() < end, found


def test_a_line_is_sent_while_the_pipe_is_open_and_has_the_time_at_which_it_was_read(root: str) -> None:
    """A delay counts from then; a command that follows a log is at work for days."""
    with sending(root) as process:
        write(process, b"first\nhal")
        (first,) = rows(root, 1)
        seen = datetime.now(UTC)
        write(process, b"f\r\nthird\nlast")
        rows(root, 3)
        assert process.stdin is not None
        process.stdin.close()
        assert process.stdout is not None
        assert process.wait(_PATIENCE_S) == 0
        assert _unnamed(process.stdout.read()) == b"4 sent, to come after 5m\n"
    assert first["payload"] == b"first"
    later = rows(root, 4)[1:]
    assert [row["payload"] for row in later] == [b"half", b"third", b"last"]
    assert all(row["publish_time"] >= seen and row["deliver_after_ms"] == 300_000 for row in later)


def test_ctrl_c_sends_what_was_read_and_ends_with_130(root: str) -> None:
    """It is how a command that follows ends; half a line is no message."""
    with sending(root) as process:
        write(process, b"first\n")
        rows(root, 1)
        write(process, b"second\nthird\nhal")
        # Whatever it has read by now, all of it is there at the end.
        process.send_signal(signal.SIGINT)
        printed, said = process.communicate(timeout=_PATIENCE_S)
        assert process.returncode == 130
    found = [row["payload"] for row in rows(root, 1)]
    assert (found, _unnamed(printed)) in (
        ([b"first"], b"1 sent, to come after 5m, due TIME\n"),
        ([b"first", b"second", b"third"], b"3 sent, to come after 5m\n"),
    )
    assert (b"(3 bytes)" in said) == (len(found) == 3)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_takes_nothing_of_what_was_read(number: signal.Signals) -> None:
    """It comes in the middle of a piece: the rest of the piece is given, and then a word to send it."""
    readable, writable = os.pipe()
    os.write(writable, b"1\n2\n3\nhal")
    before = signal.getsignal(number)
    with os.fdopen(readable, "rb") as stream, os.fdopen(writable, "wb"):
        lines = Lines(stream)
        found = iter(lines)
        first = next(found)
        signal.raise_signal(number)
        assert [each and each[0] for each in (first, *found)] == [b"1", b"2", b"3", None]
    assert (lines.stopped_by, lines.left, signal.getsignal(number)) == (number, 3, before)


def test_lines_that_never_pause_are_sent_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line every few ms would else wait for fifty thousand others."""
    now = 0.0
    monkeypatch.setattr("jobs.commands.lines.time", SimpleNamespace(monotonic=lambda: now))
    readable, writable = os.pipe()
    given = []
    with os.fdopen(readable, "rb") as stream, os.fdopen(writable, "wb", buffering=0) as pipe:
        pipe.write(b"x\n")
        for each in Lines(stream):
            given.append(each is None)
            if len(given) == 8:
                break
            now += 0.4
            if each is not None:
                pipe.write(b"x\n")
    assert given == [False, False, False, True, False, False, False, True]


def test_lines_before_one_that_is_refused_are_sent_and_counted(root: str) -> None:
    """So the number says from which line on to send again."""
    result = invoke(["send", "-w", root, "-t", "t"], stdin=b"1\n2\n" + b"x" * 101 + b"\n4\n")
    assert (result.exit_code, result.stdout[:10], len(result.stderr.splitlines())) == (1, "2 sent as ", 2)
    assert [row["payload"] for row in rows(root, 2)] == [b"1", b"2"]
