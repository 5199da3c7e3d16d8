"""Waiting until something changes in a folder of this machine."""

import ctypes
import os
import select
import time
from collections.abc import Sequence
from pathlib import Path

_CREATED, _MOVED_TO = 0x100, 0x80
"""IN_CREATE and IN_MOVED_TO of inotify(7): a name comes into a folder."""
_LOOK_S, _QUIET_LOOK_S = 0.01, 0.1
"""Between two looks at the folders: where the system does not say that they changed, and where it does."""
_MOST_BYTES = 1 << 16
_LIBC = ctypes.CDLL(None)


class Folders:
    """Folders of this machine, which need not be there yet.

    Linux says when a name comes into a folder (inotify), so whoever waits is awake at once and costs nothing meanwhile.
    The folders are looked at all the same: on some file systems, as those of a network, others' changes are not said.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        """Watch these from now on."""
        self._paths, self._unwatched = list(paths), list(paths)
        start = getattr(_LIBC, "inotify_init1", None)
        self._events = -1 if start is None else int(start(os.O_NONBLOCK | os.O_CLOEXEC))

    def state(self) -> list[int]:
        """When a name came into each folder last, or left it, ns; 0 before it is there."""
        self._watch()
        return [_changed_ns(path) for path in self._paths]

    def wait(self, seconds: float) -> bool:
        """Wait, for so many seconds at most, until it is time for another look; whether the system said so."""
        if self._unwatched:
            time.sleep(min(seconds, _LOOK_S))
            return False
        told = bool(select.select([self._events], [], [], min(seconds, _QUIET_LOOK_S))[0])
        if told:
            os.read(self._events, _MOST_BYTES)
        return told

    def _watch(self) -> None:
        """Ask the system to tell of those folders that are there by now."""
        if self._events >= 0:
            self._unwatched = [path for path in self._unwatched if not self._told_of(path)]

    def _told_of(self, path: str) -> bool:
        return int(_LIBC.inotify_add_watch(self._events, os.fsencode(path), _CREATED | _MOVED_TO)) >= 0


def _changed_ns(path: str) -> int:
    try:
        return Path(path).stat().st_mtime_ns
    except FileNotFoundError:
        return 0
