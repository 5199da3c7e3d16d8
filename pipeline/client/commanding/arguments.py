"""What may be said of a command."""

from __future__ import annotations

from typing import TypedDict

import pyarrow as pa

from pipeline.client.message import MessageId


class HowGiven(TypedDict, total=False):
    """What may be said of any command.

    Attributes:
        dry_run: write nothing, and say what would be done.
        by: who commands it; kept with the command.
        reason: why; kept with the command.
    """

    dry_run: bool
    by: str | None
    reason: str | None


class HowCommanded(HowGiven, total=False):
    """What a command names beside that; a key, a message, a condition, or positions.

    Attributes:
        key: messages with this key.
        message_id: or one message, by the id that `send` gave or with which it was received. One that the job has not
            taken yet is waited for.
        where: or a condition over the columns of the view, in DataFusion's SQL.
        positions: or those at these positions: an Arrow table with the columns `ledger_id` and `entry_id`, which any
            engine may have made. What is not pending counts for nothing.
    """

    key: str | None
    message_id: MessageId | None
    where: str | None
    positions: pa.Table | None
