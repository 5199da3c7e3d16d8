"""Guards are evaluated in a process of their own, which has a bound of time and of memory and may die.

    python -m pipeline.dispatch.evaluator MEMORY_BYTES

A condition is a stranger's program: it may never end, take all memory, or make the engine abort. Then the process is
ended, the guard has failed, and another process starts (decision 0114). Dispatch does not wait for its start, so that
those who have no guard do not either (decision 0113). A request is a line of JSON and a stream of Arrow on the standard
input; an answer is a stream of Arrow with one column on the standard output. The process ends with its standard input,
or when its parent is gone.
"""

from __future__ import annotations

import atexit
import json
import os
import resource
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from threading import Lock, Thread
from typing import IO, Any

import pyarrow as pa
from deltalake import DeltaTable

from pipeline.config.paths import python_path
from pipeline.config.wallclock import monotonic_ms
from pipeline.storage.arrays import IntArray, longs
from pipeline.subscriptions.guards import NUMBER, SEEN, Guard, GuardFailed, Starting, opened

START_MS, LONGEST_START_MS = 2_000, 60_000
"""A process takes so long to start, mostly and at most."""
_MET, _FAILED = b"=", b"!"
_HEARTBEAT_S = 1.0
_CHUNK = 1 << 16


class _NoProcess(EOFError):
    """The machine has no room for the process, or for a thread that asks it. No guard is to blame."""


class Evaluator:
    """The process: started when a guard is evaluated for the first time, and again when it has died."""

    def __init__(self, limit_ms: int, memory: int, *, patient: bool = True) -> None:
        """Start nothing yet.

        Args:
            limit_ms: an evaluation that takes longer fails.
            memory: bytes that the process may have beside those of its start.
            patient: whoever asks waits while the process starts. By a virtual clock that takes no time.
        """
        self._limit_ms, self._memory, self._lock, self._patient = limit_ms, memory, Lock(), patient
        self._process: subprocess.Popen[bytes] | None = None
        self._begun, self._is_up = 0, False

    def ready(self) -> bool:
        """Whether a question is answered at once, or fails at once. If not, the process starts meanwhile."""
        with self._lock, suppress(EOFError):
            try:
                return self._patient or bool(self._running())
            except Starting:
                return False
        return True

    def met_by(self, guard: Guard, rows: pa.Table, versions: Mapping[str, int]) -> IntArray:
        """The numbers of the rows that meet a guard; where it is false or NULL they do not.

        Args:
            guard: the condition and its tables.
            rows: the columns of `SEEN` that it needs.
            versions: of its tables, by path.

        Raises:
            GuardFailed: it cannot be evaluated within the bounds.
            Starting: the process starts.
        """
        tables = {name: (path, versions[path]) for name, path in guard.tables.items()}
        answer = self._asked({"condition": guard.condition, "tables": tables}, _stream(rows))
        return longs(pa.ipc.open_stream(answer).read_all(), NUMBER)

    def version(self, path: str) -> int:
        """The newest version of a table of others.

        Raises:
            GuardFailed: it is not there, or cannot be reached within the bounds.
            Starting: the process starts.
        """
        return int(self._asked({"version": path}, pa.py_buffer(b"")))

    def close(self) -> None:
        """End the process."""
        with self._lock:
            self._end()

    def _asked(self, head: Mapping[str, object], body: pa.Buffer) -> bytes:
        """Ask the process; its answer."""
        front = json.dumps(head).encode() + b"\n" + len(body).to_bytes(8, "little")
        begun = monotonic_ms()
        try:
            with self._lock:
                try:
                    process = self._running()
                    begun = monotonic_ms()
                    answer = self._exchanged(process, front, body)
                except (TimeoutError, EOFError):
                    self._end()
                    with suppress(_NoProcess):
                        self._start()
                    raise
        except _NoProcess as error:
            raise GuardFailed(str(error), monotonic_ms() - begun) from error
        except TimeoutError:
            reason = f"it takes longer than {self._limit_ms} ms (settings.guard_timeout_ms)"
        except EOFError:
            reason = f"its process has died; it may take {self._memory} bytes (settings.guard_bytes)"
        else:
            if answer[:1] == _MET:
                return answer[1:]
            reason = answer[1:].decode()
            raise GuardFailed(reason, monotonic_ms() - begun)
        # What ends the process has taken the start of the next one, too: other guards wait for that.
        raise GuardFailed(reason, monotonic_ms() - begun + START_MS, ended=True)

    def _exchanged(self, process: subprocess.Popen[bytes], front: bytes, body: pa.Buffer) -> bytes:
        until = monotonic_ms() + self._limit_ms
        assert process.stdin is not None  # noqa: S101 - it has pipes
        assert process.stdout is not None  # noqa: S101
        # A thread, since a process that hangs does not read what is written to it.
        writing = Thread(target=_write, args=(process.stdin, front, body), daemon=True)
        try:
            writing.start()
        except RuntimeError as error:
            raise _NoProcess("no thread can be started that asks its process") from error
        try:
            size = int.from_bytes(_read(process.stdout, 8, until), "little")
            return _read(process.stdout, size, until)
        except (TimeoutError, EOFError):
            # Else the thread goes on writing.
            self._end()
            raise
        finally:
            writing.join()

    def _running(self) -> subprocess.Popen[bytes]:
        """The process, which is ready.

        Raises:
            Starting: it is not yet.
            EOFError: it has died before it was, or cannot be started.
        """
        if self._is_up and self._process is not None and self._process.poll() is not None:
            # Nobody asked it anything.
            self._end()
        process = self._process or self._start()
        if not self._is_up:
            self._wait(process)
        return process

    def _start(self) -> subprocess.Popen[bytes]:
        self._begun, self._is_up = monotonic_ms(), False
        try:
            self._process = subprocess.Popen(  # noqa: S603 - our own
                [sys.executable, "-P", "-m", __name__, str(self._memory)],
                env=os.environ | {"PYTHONPATH": python_path()},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                # What the engine prints when it panics or aborts may have values of rows.
                stderr=subprocess.DEVNULL,
                bufsize=0,
            )
        except OSError as error:
            raise _NoProcess(f"its process cannot be started: {error.strerror}") from error
        return self._process

    def _wait(self, process: subprocess.Popen[bytes]) -> None:
        """Wait until the process is up, or look whether it is."""
        assert process.stdout is not None  # noqa: S101 - it has pipes
        latest = self._begun + LONGEST_START_MS
        try:
            _read(process.stdout, 1, latest if self._patient else 0)
        except TimeoutError as error:
            if monotonic_ms() >= latest:
                raise EOFError from error
            raise Starting from error
        self._is_up = True

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            with process:
                process.wait()


@cache
def shared(limit_ms: int, memory: int, *, patient: bool) -> Evaluator:
    """One evaluator for all stages of this process that have these bounds; it ends with the process."""
    made = Evaluator(limit_ms, memory, patient=patient)
    atexit.register(made.close)
    return made


def _stream(rows: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as out:
        out.write_table(rows)
    return sink.getvalue()


def _write(pipe: IO[bytes], head: bytes, body: pa.Buffer) -> None:
    with suppress(OSError, ValueError):
        for data in (head, memoryview(body)):
            view = memoryview(data)
            while view:
                view = view[pipe.write(view) :]


def _read(pipe: IO[bytes], size: int, until: float) -> bytes:
    """So many bytes, before a time (`monotonic_ms`).

    Raises:
        TimeoutError: they did not come in time.
        EOFError: the other side has closed the pipe.
    """
    found, poll = bytearray(), select.poll()
    poll.register(pipe, select.POLLIN)
    while len(found) < size:
        if not poll.poll(max(0.0, until - monotonic_ms())):
            raise TimeoutError
        piece = os.read(pipe.fileno(), min(size - len(found), _CHUNK))
        if not piece:
            raise EOFError
        found += piece
    return bytes(found)


class _Answers:
    """What the process answers. It keeps one version of each table."""

    def __init__(self) -> None:
        self._tables: dict[str, DeltaTable] = {}

    def to(self, head: bytes, body: bytes) -> bytes:
        """The answer to a request: `_MET` and what was asked for, or `_FAILED` and why that cannot be had."""
        asked = json.loads(head)
        try:
            found = self._version(asked["version"]) if "version" in asked else self._met(asked, body)
        except GuardFailed as failed:
            return _FAILED + str(failed).encode(errors="replace")
        return _MET + found

    def _version(self, path: str) -> bytes:
        table = opened(path)
        self._tables[path] = table
        return b"%d" % table.version()

    def _met(self, asked: Mapping[str, Any], body: bytes) -> bytes:
        tables = {name: self._at(*place) for name, place in asked["tables"].items()}
        guard = Guard(asked["condition"], {name: path for name, (path, _) in asked["tables"].items()})
        met = guard.met_by(pa.ipc.open_stream(body).read_all(), tables)
        return bytes(_stream(pa.Table.from_arrays([pa.array(met, pa.int64())], names=[NUMBER])))

    def _at(self, path: str, version: int) -> DeltaTable:
        known = self._tables.get(path)
        if known is None or known.version() != version:
            known = self._tables[path] = opened(path, version)
        return known


def _bounded(memory: int) -> None:
    """Let this process have so many bytes more, and end it when its parent is gone."""
    used = int(_status("VmData:") or 0) * 1_024
    if used:
        resource.setrlimit(resource.RLIMIT_DATA, (used + memory, used + memory))
    # Nobody wants a core file of a guard that took too much.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    parent = os.getppid()

    def look() -> None:
        while os.getppid() == parent:
            time.sleep(_HEARTBEAT_S)
        os._exit(0)

    Thread(target=look, daemon=True).start()


def _status(name: str) -> str | None:
    """A number of /proc/self/status; None where there is none."""
    with suppress(OSError), open("/proc/self/status", encoding="ascii", errors="replace") as lines:  # noqa: PTH123
        return next((line.split()[1] for line in lines if line.startswith(name)), None)
    return None


def main(memory: str) -> None:
    """Answer until the standard input ends."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    # Whatever the engine prints must not be taken for an answer.
    out = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    answers = _Answers()
    # The engine takes as long for its first answer as for a hundred others, and memory that no guard is to blame for.
    Guard("true").met_by(pa.schema([SEEN.field(NUMBER)]).empty_table(), {})
    _bounded(int(memory))
    out.write(b".")
    while head := sys.stdin.buffer.readline():
        size = int.from_bytes(sys.stdin.buffer.read(8), "little")
        answer = answers.to(head, sys.stdin.buffer.read(size))
        out.write(len(answer).to_bytes(8, "little") + answer)


if __name__ == "__main__":
    main(*sys.argv[1:])
