"""Which sessions of consumers have ended with their processes: each holds a lock that the kernel drops then.

So the others need not wait for the lease of a consumer that was killed. A lock says something to processes of the same
running kernel only, so a file names that. Everybody else, and everybody with a warehouse in a store, goes by leases.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Set as AbstractSet
from contextlib import suppress
from functools import cache
from pathlib import Path

from pipeline.config.paths import local_path

FOLDER = "_consumers"
"""In the warehouse: a file for each session, with its number as its name."""
_NEW = os.O_CREAT | os.O_EXCL | os.O_WRONLY
_LOOK_MS = 250
"""Between two looks at the sessions of others."""
_MOST = 32
"""So many sessions are looked at, at most, at a time: a look opens a file."""
_OLD_S = 60.0
"""A file that nobody locks is deleted when it is so old; until then the others look at it."""


@cache
def _kernel() -> str:
    """What names the kernel since it was started; empty: nothing does."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return ""


class SessionLocks:
    """The locks of the sessions of this process, and a look at those of others."""

    def __init__(self, root: str) -> None:
        """Find the folder, and delete what sessions left there long ago.

        Args:
            root: the warehouse.
        """
        here = local_path(root)
        self._folder = None if here is None or not _kernel() else here / FOLDER
        self._held = dict[int, int]()
        self._asked, self._ended = set[int](), frozenset[int]()
        self._next_look = self._turn = 0
        self._delete_old()

    def hold(self, session: int) -> None:
        """Lock a session before others hear of it. Where nothing can be written, or locked, they go by its lease."""
        if self._folder is None:
            return
        with suppress(OSError):
            self._folder.mkdir(exist_ok=True)
            self._held[session] = file = os.open(
                self._folder / str(session), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644
            )
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Without this the file says nothing.
            os.write(file, _kernel().encode())

    def release(self, session: int) -> None:
        """A session of this process is over, or the log says so in a moment: its file says nothing more."""
        file = self._held.pop(session, None)
        if file is not None and self._folder is not None:
            with suppress(OSError):
                (self._folder / str(session)).unlink(missing_ok=True)
            os.close(file)

    def ended(self, sessions: AbstractSet[int]) -> frozenset[int]:
        """Those of other sessions whose processes had ended at the last look. The next look is at all of them."""
        self._asked |= sessions
        return self._ended & sessions

    def look(self, now: int) -> None:
        """Look at the sessions that somebody asks about, when it is time, and at some in turn where they are many.

        Args:
            now: a clock that only grows, ms.
        """
        if self._folder is None or now < self._next_look:
            return
        self._next_look = now + _LOOK_MS
        asked = sorted(self._asked - self._held.keys() - self._ended)
        self._turn = self._turn % len(asked) if asked else 0
        some = [*asked[self._turn :], *asked[: self._turn]][:_MOST]
        self._turn += _MOST
        found = frozenset(each for each in some if _is_over(self._folder / str(each)))
        self._ended, self._asked = (self._ended & self._asked) | found, set()

    def _delete_old(self) -> None:
        if self._folder is None or not self._folder.is_dir():
            return
        for path in self._folder.iterdir():
            with suppress(OSError):
                if time.time() - path.stat().st_mtime > _OLD_S and _is_over(path):
                    path.unlink(missing_ok=True)


def _is_over(path: Path) -> bool:
    """Whether nobody holds the lock of a session that began under this kernel."""
    try:
        with path.open(encoding="ascii") as file:
            if file.read() != _kernel():
                return False
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
