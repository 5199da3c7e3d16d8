"""What a key of the schedule sees of its state in a batch, without Spark."""

from __future__ import annotations

from typing import Any


class KeyState:
    """As Spark's `GroupState` with a timeout by event time, as far as `pipeline.worker.group_state` asks of it.

    Attributes:
        hasTimedOut: whether the key is called because its alarm fired.
        alarm: when it is to be woken, ms; None: never. Whatever was set before, a batch begins without one.
    """

    def __init__(self, value: tuple[Any, ...] | None, watermark: int, *, timed_out: bool) -> None:
        self._value, self._watermark = value, watermark
        self.hasTimedOut = timed_out
        self.alarm: int | None = None

    @property
    def exists(self) -> bool:
        """Whether there is a value."""
        return self._value is not None

    @property
    def get(self) -> tuple[Any, ...]:
        """The value.

        Raises:
            ValueError: there is none.
        """
        if self._value is None:
            raise ValueError("the key has no state")
        return self._value

    def getCurrentWatermarkMs(self) -> int:  # noqa: N802 - Spark's name
        """The instant of the batch, ms."""
        return self._watermark

    def update(self, newValue: tuple[Any, ...]) -> None:  # noqa: N803 - Spark's name
        """Keep a value."""
        self._value = newValue

    def remove(self) -> None:
        """Forget it."""
        self._value = None

    def setTimeoutTimestamp(self, timestampMs: int) -> None:  # noqa: N802, N803 - Spark's names
        """Set the alarm.

        Raises:
            ValueError: it lies before the instant of the batch, or before 1970.
        """
        if timestampMs <= 0 or timestampMs < self._watermark:
            message = f"alarm = {timestampMs}, allowed: from {max(1, self._watermark)} on"
            raise ValueError(message)
        self.alarm = timestampMs
