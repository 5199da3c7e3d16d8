"""Delta's sums of the inbox, kept beside ingest.

Most producers write none. For each new version without them Delta's stream runs a job that reads the log, before ingest
may begin: a quarter of the processor time at a thousand messages a second. Here a thread follows the log and writes
them, in most cases before Delta looks. Where it comes too late, or cannot tell, Delta runs its job: nothing depends on
it.
"""

import logging
from contextlib import AbstractContextManager, nullcontext
from threading import Event
from typing import Any

from pipeline.config.threads import beside
from pipeline.delta.logs import entries
from pipeline.delta.logs.sums import ADDING, appended_sums, drop_sums, put_sums, sums
from pipeline.storage.files import Files
from pipeline.storage.waiting import Folders

_LOG = logging.getLogger(__name__)
_LOOK_S, _PATIENCE_S = 1.0, 5.0
_PAUSE_S = 1.0
"""After a failure."""
_KEPT = 2
"""So many of our own stay: Delta lists the whole log with each look, and reads the newest ones only."""


class InboxSums:
    """The sums of the newest version of a table, as far as they are known."""

    def __init__(self, files: Files, path: str) -> None:
        """Nothing is read yet; `path` is the folder of the table."""
        self._files, self._path = files, path
        self._version, self._last, self._own = -1, dict[str, Any](), list[int]()

    def keep_up(self) -> None:
        """Read the versions since the last look, and write the sums of the newest one unless it has some."""
        newest = entries.newest(self._files, self._path, self._version)
        if newest == self._version:
            return
        known, found = self._known(newest)
        for version in range(known + 1, newest + 1):
            told = entries.entry(self._files, self._path, version) or ()
            found = None if found is None else appended_sums(found, told) if told else None
        self._version, self._last = newest, found or {}
        if found is not None and known < newest:
            # Settle appends dead letters, and writes their sums itself.
            with ADDING[self._path]:
                if sums(self._files, self._path, newest) is None:
                    self._put(newest, found)

    def _put(self, version: int, told: dict[str, Any]) -> None:
        put_sums(self._files, self._path, version, told)
        self._own.append(version)
        for old in self._own[:-_KEPT]:
            drop_sums(self._files, self._path, old)
        self._own = self._own[-_KEPT:]

    def _known(self, newest: int) -> tuple[int, dict[str, Any] | None]:
        """The last version whose sums are known, and these; of a version without sums the ones before are asked for.

        A version that was no append has none that follow from those before: Delta or its writer has to begin again.
        """
        for version in range(newest, self._version, -1):
            found = sums(self._files, self._path, version)
            if found is not None:
                return version, found
            if not entries.exists(self._files, self._path, version - 1):
                return newest, None
        return self._version, self._last or None


def summing(files: Files, path: str) -> AbstractContextManager[None]:
    """Keep the sums of a table while the block runs, where its log lies on this machine."""
    folder = files.local(f"{path}/_delta_log")
    return nullcontext() if folder is None else beside(_follow, files, path, str(folder), patience_s=_PATIENCE_S)


def _follow(files: Files, path: str, folder: str, ended: Event) -> None:
    folders, kept = Folders([folder]), InboxSums(files, path)
    while not ended.is_set():
        # What changes after this look ends the next wait.
        folders.state()
        try:
            kept.keep_up()
        except Exception:  # noqa: BLE001 - whatever it is, ingest goes on without
            _LOG.warning("the sums of the inbox could not be kept; they are begun again", exc_info=True)
            kept = InboxSums(files, path)
            ended.wait(_PAUSE_S)
        folders.wait(_LOOK_S)
