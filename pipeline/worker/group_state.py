"""The one place that knows Spark's `GroupState`: how an index is kept in it, and when Spark wakes it.

A timeout at T fires when the watermark is strictly greater than T, while a bucket is due when its key is at most the
instant. So the alarm is set one millisecond before the bucket: it fires in the batch whose watermark is the bucket.
An update without an alarm would delete the alarm: there is one door that does both.
"""

from typing import Any, Protocol

from schemas.state import STATE_VERSION
from state import CorruptBytes, IndexGroup


class State(Protocol):
    """What is asked of Spark's `GroupState`, under its names."""

    @property
    def exists(self) -> bool:
        """Whether there is a value."""
        ...

    @property
    def get(self) -> tuple[Any, ...]:
        """The value."""
        ...

    @property
    def hasTimedOut(self) -> bool:  # noqa: N802 - Spark's name
        """Whether the alarm has fired."""
        ...

    def getCurrentWatermarkMs(self) -> int:  # noqa: N802 - Spark's name
        """The instant of the batch, ms."""
        ...

    def update(self, newValue: tuple[Any, ...]) -> None:  # noqa: N803 - Spark's name
        """Keep a value."""
        ...

    def remove(self) -> None:
        """Forget it."""
        ...

    def setTimeoutTimestamp(self, timestampMs: int) -> None:  # noqa: N802, N803 - Spark's names
        """Set the alarm."""
        ...


def watermark_ms(state: State) -> int:
    """The instant of the batch, ms; 0 before the first tick."""
    return max(0, int(state.getCurrentWatermarkMs()))


def load(state: State) -> IndexGroup:
    """What a state holds; nothing when there is none.

    Raises:
        CorruptBytes: the row or the directory in it cannot be read.
    """
    if not state.exists:
        return IndexGroup()
    version, _, _, data = state.get
    if version != STATE_VERSION:
        raise CorruptBytes("state row", f"version {version}, known: {STATE_VERSION}")
    return IndexGroup.from_bytes(bytes(data))


def save(state: State, pending: IndexGroup) -> None:
    """Keep what is pending and set the alarm for its first bucket; forget the key when nothing is."""
    due = pending.next_due
    if due is None:
        if state.exists:
            state.remove()
        return
    state.update((STATE_VERSION, int(due), len(pending), pending.to_bytes()))
    _wake_at(state, int(due) - 1)


def keep(state: State, again_ms: int) -> None:
    """Keep a state that cannot be read as it is, and look again at an instant: a timer that fired must be set anew."""
    if state.exists:
        state.update(tuple(state.get))
        _wake_at(state, again_ms)


def _wake_at(state: State, instant: int) -> None:
    """Set the alarm. Spark refuses one below the watermark, or of any type but `int`."""
    state.setTimeoutTimestamp(max(instant, watermark_ms(state), 1))
