"""Table contracts: what each table of a warehouse holds, and the row of the streaming state."""

from schemas.state import STATE_ROW, STATE_VERSION
from schemas.tables import (
    DELIVERIES,
    INBOX,
    LEFT,
    LISTENER,
    MESSAGES,
    PUBLICATIONS,
    REDELIVERY,
    REJECTED_DISPATCH,
    REJECTED_INGEST,
    REJECTED_SCHEDULE,
    SEGMENTS,
    SUBSCRIPTIONS,
    TABLES,
    Table,
)

__all__ = [
    "DELIVERIES",
    "INBOX",
    "LEFT",
    "LISTENER",
    "MESSAGES",
    "PUBLICATIONS",
    "REDELIVERY",
    "REJECTED_DISPATCH",
    "REJECTED_INGEST",
    "REJECTED_SCHEDULE",
    "SEGMENTS",
    "STATE_ROW",
    "STATE_VERSION",
    "SUBSCRIPTIONS",
    "TABLES",
    "Table",
]
