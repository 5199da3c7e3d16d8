"""News in folders of a store, among threads of this process: no system tells of changes there."""

from collections import Counter
from collections.abc import Sequence
from threading import Condition

_NEWS = Condition()
_COUNTS = Counter[str]()


def notify(folder: str) -> None:
    """Say that a name has come into a folder."""
    with _NEWS:
        _COUNTS[folder] += 1
        _NEWS.notify_all()


class InProcessWatch:
    """As `pipeline.storage.waiting.Folders`, for folders of a store: it hears of what this process puts there.

    What other processes put there is seen when somebody looks.
    """

    def __init__(self, folders: Sequence[str]) -> None:
        """Listen to these from now on."""
        self._folders, self._seen, self._woken = list(folders), [0] * len(folders), False

    def state(self) -> list[int]:
        """A number for each folder, which is another one when a name has come into it since."""
        with _NEWS:
            self._seen = self._now()
            return list(self._seen)

    def wait(self, seconds: float) -> bool:
        """Wait, for so many seconds at most, until something has come since `state`; whether it has.

        `wake`, called before or meanwhile by another thread, ends the wait.
        """
        with _NEWS:
            _NEWS.wait_for(lambda: self._woken or self._now() != self._seen, seconds)
            self._woken = False
            return self._now() != self._seen

    def wake(self) -> None:
        """End a wait: the one that is, or else the next one."""
        with _NEWS:
            self._woken = True
            _NEWS.notify_all()

    def close(self) -> None:
        """There is nothing to give free."""

    def _now(self) -> list[int]:
        return [_COUNTS[folder] for folder in self._folders]
