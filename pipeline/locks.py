"""One process per stage: a lock that dies with its holder."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from pipeline.client.paths import local_path
from pipeline.errors import StageRunning


class StageLock:
    """A lock file beside the checkpoint, held while the stage runs.

    The operating system drops it when the process ends, however it ends. On a remote file system there is no such
    lock: there Spark's own check of the checkpoint log remains, which stops the second process at its first new batch.
    """

    def __init__(self, stage: str, folder: str) -> None:
        """Name the stage and the folder for its lock; nothing is locked yet."""
        self._stage = stage
        here = local_path(folder)
        self._path = None if here is None else here / f"{stage}.lock"
        self._file: TextIO | None = None

    def take(self) -> None:
        """Lock the stage.

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
            raise StageRunning(self._stage, f"process {holder}") from error
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
