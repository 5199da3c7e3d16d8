"""Messages that come whatever their key: what recurs, and what was put back."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.subscriptions.letters import PUT_BACK
from pipeline.subscriptions.schedules import SCHEDULE

KEYLESS = (SCHEDULE, PUT_BACK)
"""What has one of these properties has no key: it recurs, and is planned ahead; or it failed, and is older than it was
sent. It comes, and takes nobody's place."""


def unique_keys(keys: pa.ChunkedArray, property_of: Callable[[str], pa.ChunkedArray]) -> pa.ChunkedArray:
    """Keys of messages, but of none that comes whatever its key.

    Args:
        keys: by what messages are told apart; NULL: by nothing.
        property_of: gives what the property of a name says of each; NULL: nothing.
    """
    for name in KEYLESS:
        keys = pc.if_else(pc.is_null(property_of(name)), keys, pa.scalar(None, keys.type))
    return keys
