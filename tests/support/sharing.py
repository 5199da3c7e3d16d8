"""Which files of tests share a process."""

from __future__ import annotations

import re
from typing import Any

from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

_WITH_A_BROKER = re.compile("tests/stream/test_(kafka|pulsar)_")
_WITH_A_SESSION = re.compile("tests/(spark|stream)/")


class Shared(LoadFileScheduling):  # type: ignore[misc] # it ships no types
    """Each file keeps to one process; the files with a broker of one kind to the same one, which starts it once.

    Of three processes and more the last one gets no file that needs the session of Spark that a process keeps. A
    session needs long to get warm, and its tests leave the cores idle now and then: the last process fills that.
    `tests/smoke/test_s3.py` makes a session of its own, so it may not come behind those files.
    """

    _apart: object = None
    """The process without such a session."""

    def schedule(self) -> None:
        """Say which process has no session before the files are given out, and again when it has died."""
        if len(self.nodes) > 2 and self._apart not in self.nodes:
            self._apart = self.nodes[-1]
        super().schedule()

    def _split_scope(self, nodeid: str) -> str:
        """What keeps to one process, by the name of a test."""
        found = _WITH_A_BROKER.match(nodeid)
        return nodeid.partition("::")[0] if found is None else found[0]

    def _assign_work_unit(self, node: Any) -> None:  # noqa: ANN401 - it ships no types
        """Give a process the first file of its kind. One with a session takes any other when there is none left."""
        if self._apart is not None:
            apart = node is self._apart
            first = next((each for each in self.workqueue if (_WITH_A_SESSION.match(each) is None) is apart), None)
            if first is not None:
                self.workqueue.move_to_end(first, last=False)
            elif apart:
                node.shutdown()
                return
        super()._assign_work_unit(node)
