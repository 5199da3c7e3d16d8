"""Which files of tests share a process."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

_TOGETHER = re.compile("tests/(stream/test_(kafka|pulsar)_|unit/house/)")
_WITH_A_SESSION = re.compile("tests/(spark|stream)/")
_YIELDS = 3
"""How nice the others are to the first process."""


def give_way(environment: Mapping[str, str] = os.environ) -> None:
    """Let the first process of several have a core when it wants one: what it does takes longest."""
    if environment.get("PYTEST_XDIST_WORKER", "gw0") != "gw0":
        os.nice(_YIELDS)


class Shared(LoadFileScheduling):  # type: ignore[misc] # it ships no types
    """Each file keeps to one process; the files with a broker of one kind to the same one, which starts it once.

    So do those about the project itself: all of its modules are parsed once for them.

    Of three processes and more the last one gets no file that needs the session of Spark that a process keeps. A
    session needs long to get warm, and its tests leave the cores idle now and then: the last process fills that. Where
    most files need none, only the first process has one: each further session gets warm anew.
    `tests/smoke/test_s3.py` makes a session of its own, so it may not come behind those files.
    """

    _apart: tuple[object, ...] = ()
    """The processes without such a session."""

    def schedule(self) -> None:
        """Say which processes have no session before the files are given out, and again when one has died."""
        if len(self.nodes) > 2:
            apart = [each for each in self._apart if each in self.nodes]
            others = [each for each in self.nodes if each not in apart]
            self._apart = (*apart, *others[self._sessions :])
        begun = self.collection is not None
        super().schedule()
        if begun:
            # Who takes the place of another one runs a test when it knows the one behind it, which is another file's.
            for node in self.nodes:
                self._reschedule(node)

    @property
    def _sessions(self) -> int:
        """How many processes have a session."""
        files = {self._split_scope(each) for each in next(iter(self.registered_collections.values()))}
        needed = sum(_WITH_A_SESSION.match(each) is not None for each in files)
        return 1 if 2 * needed < len(files) else len(self.nodes) - 1

    def _split_scope(self, nodeid: str) -> str:
        """What keeps to one process, by the name of a test."""
        found = _TOGETHER.match(nodeid)
        return nodeid.partition("::")[0] if found is None else found[0]

    def _assign_work_unit(self, node: Any) -> None:  # noqa: ANN401 - it ships no types
        """Give a process the first file of its kind. One with a session takes any other when there is none left."""
        if self._apart:
            apart = node in self._apart
            first = next((each for each in self.workqueue if (_WITH_A_SESSION.match(each) is None) is apart), None)
            if first is not None:
                self.workqueue.move_to_end(first, last=False)
            elif apart:
                node.shutdown()
                return
        super()._assign_work_unit(node)
