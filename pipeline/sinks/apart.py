"""Sinks in a process of their own: it starts when a subscription has one, and again when it has died.

Clients of brokers are C libraries. Each message that they send or confirm waits for the lock that all threads of a
Python share, and a fault of theirs ends the process. So they are not where the stages are (decision 0072). When it has
died twice in a row, the sinks begin one by one. One that it dies of then gets a process for itself (decision 0102).
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from threading import Event, Lock, Thread

from pipeline.client.subscribing.subscriptions import subscriptions
from pipeline.config.options import NOBODY, StageListener
from pipeline.config.paths import python_environment
from pipeline.config.threads import panics_raised
from pipeline.config.wallclock import monotonic_ms
from pipeline.delta.deltars import path_of
from pipeline.delta.logs.entries import newest
from pipeline.sinks import program
from pipeline.sinks.line import SinkConfig
from pipeline.sinks.running import LOOK_REMOTE_S, LOOK_S, Share
from pipeline.storage.files import Files
from pipeline.subscriptions.sinkplaces import SinkPlaces
from schemas import SUBSCRIPTIONS

_LOG = logging.getLogger(__name__)
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 30.0
"""Before the next start of a process that has died; twice as long each time."""
_DEATHS = 2
"""After so many in a row the sinks begin one by one."""
_PATIENCE_S = 20.0
"""So long all processes together may take to end: longer than the sinks of one are waited for."""


@contextmanager
def publishing_apart(root: str, watch: StageListener = NOBODY) -> Iterator[None]:
    """Publish for the sinks of a warehouse while the block runs. Where only Hadoop reaches, there are none."""
    if Files().readable(root) is None:
        yield
        return
    keeper = SinkSupervisor(root, watch)
    keeper.start()
    try:
        yield
    finally:
        keeper.stop()


class SinkProcess:
    """A process for some sinks.

    Attributes:
        process: the running one; None: it was not started yet, or is not to be any more.
        beginning: the sink that begins; None: none does, or all begin at once.
    """

    def __init__(self, root: str, share: Share, watch: StageListener) -> None:
        self._root, self._share, self._watch = root, share, watch
        self._lock, self._ended = Lock(), False
        self.process: subprocess.Popen[bytes] | None = None
        self.beginning: str | None = None

    def run(self) -> int | None:
        """Start it, and pass on what it says until it has ended; its exit code."""
        readable, writable = os.pipe()
        with open(readable, encoding="utf-8") as lines:  # noqa: PTH123 - a pipe has no path
            try:
                with self._lock:
                    if self._ended:
                        return None
                    share = json.dumps(asdict(self._share))
                    self.process = process = subprocess.Popen(  # noqa: S603 - our own
                        [sys.executable, "-m", program.__name__, self._root, str(writable), share],
                        env=os.environ | python_environment(),
                        stdin=subprocess.PIPE,
                        pass_fds=(writable,),
                    )
            finally:
                os.close(writable)
            self._pass_on(lines)
        with process:
            return process.wait()

    def ask(self) -> None:
        """Ask it to end; one that has not begun does not begin any more."""
        with self._lock:
            self._ended = True
        if self.process is not None and self.process.stdin is not None:
            self.process.stdin.close()

    def end(self, patience_s: float) -> None:
        """Wait for its end, or kill it."""
        if self.process is not None:
            try:
                self.process.wait(patience_s)
            except subprocess.TimeoutExpired:
                self.process.kill()

    def _pass_on(self, lines: Iterable[str]) -> None:
        known = set[tuple[str, str]]()
        for line in lines:
            try:
                kind, *values = json.loads(line)
            except ValueError:
                # It was killed in the middle of a line.
                continue
            if kind == program.LATE:
                topic, subscription, seconds = values
                known.add((topic, subscription))
                self._watch.sink_late(topic, subscription, seconds)
            elif kind == program.BEGINS:
                (self.beginning,) = values
            else:
                name, level, text = values
                logging.getLogger(name).log(level, "%s", text)
        for topic, subscription in known:
            self._watch.sink_late(topic, subscription, None)


class SinkSupervisor:
    """Keeps processes running, from when a subscription has a sink for the first time."""

    def __init__(self, root: str, watch: StageListener) -> None:
        self._root, self._watch, self._files = root, watch, Files()
        self._look_s, self._seen = LOOK_S if self._files.local(root) is not None else LOOK_REMOTE_S, -1
        self._places = SinkPlaces(self._files, root)
        self._ended, self._lock = Event(), Lock()
        self._children, self._threads = dict[str | None, SinkProcess](), dict[str | None, Thread]()

    @property
    def pid(self) -> int | None:
        """The process for all sinks that was started last; None: none was."""
        return self.pid_of(None)

    def pid_of(self, name: str | None) -> int | None:
        """The process that was started last for a sink that has one for itself, by its name; None: for all others."""
        child = self._children.get(name)
        return None if child is None or child.process is None else child.process.pid

    def start(self) -> None:
        """Look at the registry in a thread."""
        self._begin(None)

    def stop(self) -> None:
        """End them, when their sinks have seen confirmed what they sent. One that waits for a broker is killed."""
        with self._lock:
            self._ended.set()
            children, threads = list(self._children.values()), list(self._threads.values())
        for child in children:
            child.ask()
        ends_ms = monotonic_ms() + 1_000 * _PATIENCE_S
        for child in children:
            child.end(max(0.0, (ends_ms - monotonic_ms()) / 1_000))
        for thread in threads:
            thread.join()

    def _begin(self, name: str | None) -> None:
        with self._lock:
            if self._ended.is_set() or name in self._threads:
                return
            thread = Thread(target=self._run, args=(name,), name="delayline-sinks", daemon=True)
            self._threads[name] = thread
            thread.start()

    def _run(self, only: str | None) -> None:
        """Keep a process running: for one sink, or for all that have none for themselves."""
        pause_s, deaths = _FIRST_PAUSE_S, 0
        while not self._ended.is_set():
            if not self._wanted():
                self._ended.wait(self._look_s)
                continue
            begun, culprit = monotonic_ms(), only
            try:
                with panics_raised():
                    end, culprit = self._follow(only, one_by_one=deaths >= _DEATHS)
            except Exception as error:  # noqa: BLE001 - this thread is all that starts it again
                end = repr(error)
            if self._ended.is_set():
                return
            _LOG.warning("the process of the sinks has ended with %s; it is started again", end)
            long = monotonic_ms() - begun >= 2_000 * _LONGEST_PAUSE_S
            pause_s, deaths = (_FIRST_PAUSE_S, 1) if long else (pause_s, deaths + 1)
            if culprit is not None:
                self._accuse(culprit, end)
            if culprit != only:
                # The others do not wait for it.
                pause_s = _FIRST_PAUSE_S
            self._ended.wait(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _accuse(self, name: str, end: str) -> None:
        """Note that a process has died of a sink, which no process has now, and give it one for itself."""
        text = f"ProcessDied: it ended with {end} while it published for this sink; the sink is tried again, alone"
        try:
            with panics_raised():
                noted = self._places.get(name)
                if noted is not None:
                    self._places.put(name, replace(noted, error=text))
                    if name not in self._threads:
                        _LOG.warning("sink of %s/%s stands still: %s", noted.topic, noted.subscription, text)
        except Exception as error:  # noqa: BLE001 - a store that does not answer
            _LOG.warning("it could not be noted that a process has died of the sink %s: %s", name, error)
        self._begin(name)

    def _wanted(self) -> bool:
        """Whether a subscription has a sink, or had one whose notes are still there."""
        try:
            with panics_raised():
                version = newest(self._files, path_of(self._root, SUBSCRIPTIONS), self._seen)
                if version == self._seen:
                    return False
                if any(map(SinkConfig.of, subscriptions(self._root))) or self._places.names():
                    return True
                self._seen = version
        except Exception as error:  # noqa: BLE001 - a store that does not answer; it is asked again
            _LOG.warning("the registry could not be read for sinks; it is tried again: %s", error)
        return False

    def _follow(self, only: str | None, *, one_by_one: bool) -> tuple[str, str | None]:
        """Run a process; what it has ended with, and the sink that it has died of, if that can be told."""
        with self._lock:
            if self._ended.is_set():
                return "", None
            without = sorted(name for name in self._threads if name is not None) if only is None else []
            child = SinkProcess(self._root, Share(only, without, one_by_one=one_by_one), self._watch)
            self._children[only] = child
        return _said(child.run()), only or child.beginning


def _said(code: int | None) -> str:
    """An exit code, or the signal that a process has died of."""
    try:
        return str(code) if code is None or code >= 0 else f"{code} ({signal.Signals(-code).name})"
    except ValueError:
        return str(code)
