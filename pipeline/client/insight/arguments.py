"""What may be said of a look at messages."""

from __future__ import annotations

from typing import TypedDict

from pipeline.client.message import MessageId


class HowTraced(TypedDict, total=False):
    """Whose history is told; either a key, an id or a position.

    Attributes:
        key: of messages.
        message_id: or of one, by the id that `send` gave or with which it was received.
        position: or (ledger, entry) of one; `MessageId.position` has it.
        limit: so many messages at most, 20 when nothing is said.
    """

    key: str | None
    message_id: MessageId | None
    position: tuple[int, int] | None
    limit: int


class HowListed(TypedDict, total=False):
    """Which of the rows, and what they hold; at most one of a key and a condition.

    Attributes:
        key: of messages with this key.
        where: or of those that meet a condition over the columns of the table, in DataFusion's SQL.
        limit: so many at most, those that are due first.
        payload: whether there is a column with the payloads.
    """

    key: str | None
    where: str | None
    limit: int | None
    payload: bool
