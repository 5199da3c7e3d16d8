"""A request to stop, as a file. Whoever asks needs no Spark."""

import logging
import time

from pipeline.config.errors import BadSetting
from pipeline.storage.files import Files

_LOG = logging.getLogger(__name__)
_LOOK_S, _LOOK_REMOTE_S = 0.2, 2.0
"""Pause between two looks for a reason to stop; a look at a store is a request, and costs."""


class StopFile:
    """A file in the warehouse that asks the running processes to stop; for those who cannot send them a signal.

    It stays where it is: several processes may look at it, each at its time. A request from before an object of this
    class was made is none of its business.
    """

    def __init__(self, root: str) -> None:
        self._root = root
        self._path = f"{root}/_control/stop" if Files().reaches(root) else None
        self.pause_s = _LOOK_S if Files().local(root) is not None else _LOOK_REMOTE_S
        self._known = self._asked_at()
        self.answered = True
        """Whether the store answered the last look."""

    def ask(self) -> None:
        """Ask whoever runs on the warehouse to stop.

        Raises:
            BadSetting: the warehouse lies on another file system, where nobody looks for such a file.
        """
        if self._path is None:
            raise BadSetting("warehouse", self._root, "a folder of this machine, or s3; send SIGTERM to the process")
        Files().write(self._path, f"{time.time_ns()}\n", lasting=False)

    @property
    def asked(self) -> bool:
        """Whether there is a request that was not there at the beginning; a store that does not answer says nothing."""
        try:
            asked, self.answered = self._asked_at() != self._known, True
        except OSError as error:
            if self.answered:
                _LOG.warning("nobody can tell whether a stop was asked for at %s: %s", self._path, error)
            asked = self.answered = False
        return asked

    def _asked_at(self) -> str:
        """The time of the last request; empty before the first one."""
        return "" if self._path is None else Files().text_if_there(self._path) or ""
