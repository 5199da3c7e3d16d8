"""What the tests of the trackers' contract share."""

from __future__ import annotations

from collections.abc import Callable

from state import DelayedDeliveryTracker

MakeTracker = Callable[[int, bool], DelayedDeliveryTracker]

STRICT, TOLERANT = True, False
LAST_MS = 253_402_300_799_999
"""9999-12-31T23:59:59.999Z."""
LAST_LEDGER, LAST_ENTRY = 2**62, 2**31 - 1


def five_at_ten_to_fifty(make_tracker: MakeTracker) -> DelayedDeliveryTracker:
    """A strict tracker of tick 1 that holds (i, i), due at 10 * i, for i = 1..5."""
    tracker = make_tracker(1, STRICT)
    for i in (1, 2, 3, 4, 5):
        assert tracker.add_message(i, i, 10 * i, 0)
    return tracker
