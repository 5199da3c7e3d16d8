"""One process per stage: a lock that dies with its holder."""

import errno
import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TextIO

from pipeline.config.errors import StageRunning
from pipeline.config.paths import local_path

_LOG = logging.getLogger(__name__)
_HELD = {errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES}
"""Somebody has the lock. Any other error says that the file system has no locks, or that its server does not answer."""


def warn_unlocked(root: str) -> None:
    """Warn at the start on a warehouse that lies where there are no locks."""
    if local_path(root) is None:
        _LOG.warning("No lock keeps a second process out of %s: at its first commit one of the two is refused", root)


class StageLock:
    """A lock file beside the checkpoint, held while the stage runs.

    The operating system drops it when the process ends, however it ends. An object store has no such lock, nor has
    many a network disk: there a stage that finds another owner in its tables stops before its next commit, and Spark's
    check of the checkpoint log stops the second process at its first new batch.
    """

    def __init__(self, stage: str, folder: str) -> None:
        """Name the stage and the folder for its lock; nothing is locked yet."""
        self._stage = stage
        self._root = folder.removesuffix("/_checkpoints")
        here = local_path(folder)
        self._path = None if here is None else here / f"{stage}.lock"
        self._file: TextIO | None = None

    def take(self) -> None:
        """Lock the stage. A folder whose file system has no locks is named in a warning, and nothing is locked.

        Raises:
            StageRunning: somebody holds it, in this process or another.
        """
        if self._path is None:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        file = self._path.open("a+", encoding="ascii")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.seek(0)
            holder = file.read().strip()
            file.close()
            if error.errno in _HELD:
                raise StageRunning(self._stage, f"process {holder}", self._root) from error
            _say_once(self._path.parent, error.strerror)
            return
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        self._file = file

    @contextmanager
    def held(self) -> Iterator[None]:
        """Lock the stage for a block.

        Raises:
            StageRunning: somebody holds it, in this process or another.
        """
        self.take()
        try:
            yield
        finally:
            self.release()

    def release(self) -> None:
        """Unlock; nothing happens when it is not held."""
        if self._file is not None:
            self._file.close()
            self._file = None


def holder(stage: str, folder: str) -> int | None:
    """The process on this machine that holds the lock of a stage; None: none does, or nobody can tell.

    It looks at what the kernel lists: whoever took the lock to find out would be in the way of a start.
    """
    here = local_path(folder)
    if here is None:
        return None
    try:
        file = here / f"{stage}.lock"
        wanted, process = str(file.stat().st_ino), file.read_text(encoding="ascii").strip()
        lines = [line.split() for line in Path("/proc/locks").read_text(encoding="ascii").splitlines()]
    except OSError:
        return None
    # `1: FLOCK  ADVISORY  WRITE 30080 fe:00:9987272 0 EOF`
    held = any(each[1] == "FLOCK" and process in each and each[-3].endswith(f":{wanted}") for each in lines)
    return int(process) if held else None


def is_alive(process: int) -> bool:
    """Whether a process of this machine has not ended; one whose end only its parent has yet to notice has."""
    try:
        # `30080 (python) S 1 ...`; the name may hold brackets.
        state = (
            Path(f"/proc/{process}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()[0]
        )
    except OSError:
        return False
    return state != "Z"


def is_locked(stage: str, folder: Path) -> bool | None:
    """Whether somebody holds the lock of a stage, also where the kernel does not list who; None: there are no locks.

    It shares the lock for a moment, and a start in that moment is refused: ask when `holder` has named nobody.
    """
    try:
        with (folder / f"{stage}.lock").open(encoding="ascii") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError as error:
        if error.filename is not None:
            # The file could not be opened.
            raise
        return True if error.errno in _HELD else None
    return False


@cache
def _say_once(folder: Path, reason: str) -> None:
    _LOG.warning("%s is on a file system without locks (%s): start each stage in one process only", folder, reason)
