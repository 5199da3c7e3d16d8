"""Sinks in a process of their own: it starts when a subscription has one, and again when it has died.

Clients of brokers are C libraries. Each message that they send or confirm waits for the lock that all threads of a
Python share, and a fault of theirs ends the process. So they are not where the stages are (decision 0072).

    python -m pipeline.sinks.apart WAREHOUSE PIPE

The process ends with its standard input. What it writes into the pipe is for its parent, a line of JSON each: how late
a sink is, or what is to be logged. Clients of brokers may print what they like.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from threading import Event, Lock, Thread
from typing import TextIO

from pipeline.client.subscribing.subscriptions import subscriptions
from pipeline.config.paths import python_path
from pipeline.config.threads import panics_raised
from pipeline.config.wallclock import monotonic_ms
from pipeline.config.watching import NOBODY, Watch
from pipeline.delta.deltars import path_of
from pipeline.delta.logs.entries import newest
from pipeline.sinks.loop import Line
from pipeline.sinks.running import LOOK_REMOTE_S, LOOK_S, publishing
from pipeline.storage.files import Files
from pipeline.subscriptions.sinkplaces import SinkPlaces
from schemas import SUBSCRIPTIONS

_LOG = logging.getLogger(__name__)
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 30.0
"""Before the next start of a process that has died; twice as long each time."""
_PATIENCE_S = 20.0
"""So long a process may take to end: longer than its sinks are waited for."""
_LATE, _LOGGED = "late", "log"


@contextmanager
def publishing_apart(root: str, watch: Watch = NOBODY) -> Iterator[None]:
    """Publish for the sinks of a warehouse while the block runs. Where only Hadoop reaches, there are none."""
    if Files().readable(root) is None:
        yield
        return
    keeper = Keeper(root, watch)
    keeper.start()
    try:
        yield
    finally:
        keeper.stop()


class Keeper:
    """Keeps the process running, from when a subscription has a sink for the first time."""

    def __init__(self, root: str, watch: Watch) -> None:
        """Start nothing yet."""
        self._root, self._watch, self._files = root, watch, Files()
        self._look_s, self._seen = LOOK_S if self._files.local(root) is not None else LOOK_REMOTE_S, -1
        self._ended, self._lock = Event(), Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = Thread(target=self._run, name="delayline-sinks", daemon=True)

    @property
    def pid(self) -> int | None:
        """The process that was started last; None: none was."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Look at the registry in a thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the process, when its sinks have seen confirmed what they sent. One that waits for a broker is killed."""
        with self._lock:
            self._ended.set()
            process = self._process
        if process is not None and process.stdin is not None:
            process.stdin.close()
            try:
                process.wait(_PATIENCE_S)
            except subprocess.TimeoutExpired:
                process.kill()
        self._thread.join()

    def _run(self) -> None:
        pause_s = _FIRST_PAUSE_S
        while not self._ended.is_set():
            if not self._wanted():
                self._ended.wait(self._look_s)
                continue
            begun = monotonic_ms()
            try:
                with panics_raised():
                    end: object = self._follow()
            except Exception as error:  # noqa: BLE001 - this thread is all that starts it again
                end = error
            if self._ended.is_set():
                return
            _LOG.warning("the process of the sinks has ended with %s; it is started again", end)
            self._ended.wait(pause_s)
            long = monotonic_ms() - begun >= 2_000 * _LONGEST_PAUSE_S
            pause_s = _FIRST_PAUSE_S if long else min(2 * pause_s, _LONGEST_PAUSE_S)

    def _wanted(self) -> bool:
        """Whether a subscription has a sink, or had one whose notes are still there."""
        try:
            with panics_raised():
                version = newest(self._files, path_of(self._root, SUBSCRIPTIONS), self._seen)
                if version == self._seen:
                    return False
                if any(map(Line.of, subscriptions(self._root))) or SinkPlaces(self._files, self._root).names():
                    return True
                self._seen = version
        except Exception as error:  # noqa: BLE001 - a store that does not answer; it is asked again
            _LOG.warning("the registry could not be read for sinks; it is tried again: %s", error)
        return False

    def _follow(self) -> int | None:
        """Start a process, and pass on what it says until it has ended; its exit code."""
        heard, told = os.pipe()
        with open(heard, encoding="utf-8") as lines:  # noqa: PTH123 - a pipe has no path
            try:
                with self._lock:
                    if self._ended.is_set():
                        return None
                    self._process = process = subprocess.Popen(  # noqa: S603 - our own
                        [sys.executable, "-P", "-m", __name__, self._root, str(told)],
                        env=os.environ | {"PYTHONPATH": python_path()},
                        stdin=subprocess.PIPE,
                        pass_fds=(told,),
                    )
            finally:
                os.close(told)
            self._pass_on(lines)
        with process:
            return process.wait()

    def _pass_on(self, lines: Iterable[str]) -> None:
        known = set[tuple[str, str]]()
        for line in lines:
            try:
                kind, *told = json.loads(line)
            except ValueError:
                # It was killed in the middle of a line.
                continue
            if kind == _LATE:
                topic, subscription, seconds = told
                known.add((topic, subscription))
                self._watch.sink_late(topic, subscription, seconds)
            else:
                name, level, text = told
                logging.getLogger(name).log(level, "%s", text)
        for topic, subscription in known:
            self._watch.sink_late(topic, subscription, None)


class _Teller(Watch, logging.Handler):
    """Tells the parent what a sink's watcher and a logger are told here."""

    def __init__(self, out: TextIO) -> None:
        super().__init__()
        self._out, self._turn = out, Lock()
        self.setFormatter(logging.Formatter("%(message)s"))

    def sink_late(self, topic: str, subscription: str, seconds: float | None) -> None:
        self._tell(_LATE, topic, subscription, seconds)

    def emit(self, record: logging.LogRecord) -> None:
        self._tell(_LOGGED, record.name, record.levelno, self.format(record))

    def _tell(self, *told: object) -> None:
        # Without a parent nobody listens, and the process ends.
        with self._turn, suppress(OSError):
            self._out.write(json.dumps(told) + "\n")
            self._out.flush()


def main(root: str, pipe: str) -> None:
    """Publish for the sinks of a warehouse until the standard input ends, as it does when the parent dies."""
    # They are sent to each process of a job. The parent stops its stages first, and then this process.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    with open(int(pipe), "w", encoding="utf-8") as out:  # noqa: PTH123 - it has no path
        teller = _Teller(out)
        logging.basicConfig(level=logging.WARNING, handlers=[teller])
        with publishing(root, teller):
            sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
