"""What happens to a message, as a value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

_EPOCH, _MS = datetime(1970, 1, 1, tzinfo=UTC), timedelta(milliseconds=1)
Fact = str | int | None


@dataclass(frozen=True)
class Step:
    """Something that happened to a message.

    Attributes:
        what: `sent`; `refused` (by ingest); `accepted`; `cancel`, `reschedule`, `shift`, `release` or `undo` (a command
            that names it); `released` (it became due, and dispatch takes it); `left_out` (dispatch did not deliver it);
            `published` (it became visible in `deliveries`); `ack` or `nack` (a consumer says so); `closed` (settled
            while it waited to come again); `dead_letter`.
        at: when, ms UTC; None: the tables do not say. Commands and consumers say it by clocks of their own.
        subscription: whose; None: it is the same for all.
        life: of the subscription.
        redelivery_count: of the release or delivery; None: it has none.
        details: what else the tables say of it.
    """

    what: str
    at: int | None
    subscription: str | None = None
    life: int | None = None
    redelivery_count: int | None = None
    details: Mapping[str, Fact] = field(default_factory=dict)


def ms_of(time: datetime | None) -> int | None:
    """A timestamp in ms UTC."""
    return None if time is None else (time - _EPOCH) // _MS
