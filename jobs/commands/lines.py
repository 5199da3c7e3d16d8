"""Lines of standard input, each with the time at which it was read; who reads them is told of pauses and signals."""

import io
import os
import select
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from types import FrameType
from typing import BinaryIO

_PAUSE_MS, _LONGEST_S = 100, 1.0
"""Lines wait for others until nothing comes for so long, and never longer than a second."""
_PIECE = 65_536
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Lines:
    """What stands in a stream, line by line, until its end or until a signal asks to stop.

    Attributes:
        stopped_by: the signal that ended it; None: the stream has ended.
        left: bytes of a last line whose end had not come when the signal came. They are no message yet.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.stopped_by: signal.Signals | None = None
        self.left = 0

    def __iter__(self) -> Iterator[tuple[bytes, datetime] | None]:
        """Each line without its end and when it was read; None where what was read so far must wait no longer.

        The first of SIGINT, SIGTERM and SIGHUP ends it. A second one does what it did before.
        """
        try:
            source = self._stream.fileno()
        except io.UnsupportedOperation:
            # No file of the system: it has no pauses.
            yield from ((_bare(line), datetime.now(UTC)) for line in self._stream)
            return
        with self._signals() as woken:
            yield from self._read(source, woken)
            # What was read last is sent before the signals get back what they did.
            yield None

    def _read(self, source: int, woken: int) -> Iterator[tuple[bytes, datetime] | None]:
        poll = select.poll()
        poll.register(source, select.POLLIN)
        poll.register(woken, select.POLLIN)
        rest, waits_since = list[bytes](), None
        while True:
            ready = poll.poll(None if waits_since is None else _PAUSE_MS)
            if self.stopped_by is not None:
                self.left = sum(map(len, rest))
                return
            if waits_since is not None and (not ready or time.monotonic() - waits_since > _LONGEST_S):
                yield None
                waits_since = None
            if not ready:
                continue
            piece = os.read(source, _PIECE)
            if not piece:
                break
            first, *others = piece.split(b"\n")
            rest.append(first)
            if others:
                read_at = datetime.now(UTC)
                waits_since = time.monotonic() if waits_since is None else waits_since
                for line in (b"".join(rest), *others[:-1]):
                    yield _bare(line), read_at
                rest = others[-1:]
        if any(rest):
            yield _bare(b"".join(rest)), datetime.now(UTC)

    @contextmanager
    def _signals(self) -> Iterator[int]:
        """A file that can be read as soon as a signal has come. Signals that are ignored stay so (`nohup`, `&`)."""
        woken, wakes = os.pipe()
        ours = [number for number in _ENDING if signal.getsignal(number) != signal.SIG_IGN]

        def ask(number: int, _frame: FrameType | None) -> None:
            self.stopped_by = signal.Signals(number)
            give_back()
            os.write(wakes, b"\0")

        def give_back() -> None:
            for number, handler in before.items():
                signal.signal(number, handler)

        before = {number: signal.signal(number, ask) for number in ours}
        try:
            yield woken
        finally:
            give_back()
            os.close(woken)
            os.close(wakes)


def _bare(line: bytes) -> bytes:
    """A line without its end."""
    return line.rstrip(b"\r\n")
