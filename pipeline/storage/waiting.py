"""Waiting until something changes in a folder of this machine."""

import ctypes
import os
import select
import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock

_CREATED, _MOVED_TO = 0x100, 0x80
"""IN_CREATE and IN_MOVED_TO of inotify(7): a name comes into a folder."""
_GONE = 0x200 | 0x40
"""IN_DELETE and IN_MOVED_FROM. They are asked for so that the folder's time, which they change, tells nothing new."""
_EVENT = struct.Struct("iIII")
"""`struct inotify_event`: watch, mask, cookie, length of the name that follows."""
_LOOK_S, _QUIET_LOOK_S = 0.01, 0.1
"""Between two looks at the folders: where the system does not say that they changed, and where it does."""
_MOST_BYTES = 1 << 16
_LIBC = ctypes.CDLL(None)


class Folders:
    """Folders of this machine, which need not be there yet.

    Linux says when a name comes into a folder (inotify), so whoever waits is awake at once and costs nothing meanwhile.
    What is no news is passed over: a file that is being written beside its place, or sums. The folders are looked at
    all the same: on some file systems, as those of a network, others' changes are not said.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        """Watch these from now on."""
        self._paths, self._watches = list(paths), dict[int, int]()
        self._changes, self._times = [0] * len(paths), [0] * len(paths)
        self._reported, self._news = set[int](), set[int]()
        start = getattr(_LIBC, "inotify_init1", None)
        self._events = -1 if start is None else int(start(os.O_NONBLOCK | os.O_CLOEXEC))
        self._open = Lock()
        self._woken, self._wake = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(self._wake, False)

    def state(self) -> list[int]:
        """A number for each folder, which is another one when a name has come into it since."""
        self._watch()
        times = [_changed_ns(path) for path in self._paths]
        # Afterwards: what has changed a time that we have seen is told by now, or it will be news at the next look.
        self._read()
        for place, time_ns in enumerate(times):
            unsaid = time_ns != self._times[place] and place not in self._reported
            self._changes[place] += place in self._news or unsaid
        self._times, self._reported, self._news = times, set(), set()
        return list(self._changes)

    def wait(self, seconds: float) -> bool:
        """Wait, for so many seconds at most, until it is time for another look; whether the system said so.

        `wake`, called before or meanwhile by another thread, ends the wait.
        """
        all_watched = len(self._watches) == len(self._paths)
        most = min(seconds, _QUIET_LOOK_S if all_watched else _LOOK_S)
        # Not `select`, which takes no file above the 1,023rd one of a process.
        poll = select.poll()
        for each in (self._woken, self._events) if all_watched else (self._woken,):
            poll.register(each, select.POLLIN)
        ready = {each for each, _ in poll.poll(most * 1_000)}
        if self._woken in ready:
            os.read(self._woken, _MOST_BYTES)
        return self._events in ready and self._read()

    def wake(self) -> None:
        """End a wait: the one that is, or else the next one. After `close` it does nothing."""
        with self._open, suppress(BlockingIOError):
            if self._wake >= 0:
                os.write(self._wake, b"\0")

    def close(self) -> None:
        """Watch no longer; nobody may wait from here on."""
        with self._open:
            for each in (self._events, self._woken, self._wake):
                if each >= 0:
                    os.close(each)
            self._events = self._woken = self._wake = -1

    def __del__(self) -> None:
        """Give the handles of the system free: there are few of them."""
        if hasattr(self, "_wake"):
            self.close()

    def _watch(self) -> None:
        """Ask the system to tell of those folders that are there by now."""
        watched = self._watches.values()
        for place in set(range(len(self._paths))) - set(watched) if self._events >= 0 else ():
            asked = _CREATED | _MOVED_TO | _GONE
            watch = int(_LIBC.inotify_add_watch(self._events, os.fsencode(self._paths[place]), asked))
            if watch >= 0:
                self._watches[watch] = place

    def _read(self) -> bool:
        """Read what the system has to say; whether anything of it is news."""
        try:
            data = os.read(self._events, _MOST_BYTES) if self._watches else b""
        except BlockingIOError:
            return False
        for watch, mask, name in _events_of(data):
            places = self._watches.values() if watch < 0 else [self._watches[watch]]
            self._reported.update(places)
            if watch < 0 or (mask & (_CREATED | _MOVED_TO) and _is_news(name)):
                self._news.update(places)
        return bool(self._news)


def _events_of(data: bytes) -> Iterator[tuple[int, int, str]]:
    """Watch, mask and name of each event; when some were lost there is one of the watch -1."""
    at = 0
    while at < len(data):
        watch, mask, _, length = _EVENT.unpack_from(data, at)
        at += _EVENT.size + length
        yield watch, mask, os.fsdecode(data[at - length : at].rstrip(b"\0"))


def _is_news(name: str) -> bool:
    """Whether a name is one that readers look for; writers of tables and checkpoints hide the others like this."""
    return not name.startswith((".", "_")) and not name.endswith((".crc", ".tmp", ".new"))


def _changed_ns(path: str) -> int:
    try:
        return Path(path).stat().st_mtime_ns
    except FileNotFoundError:
        return 0
