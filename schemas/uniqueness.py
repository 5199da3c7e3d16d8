"""What ingest says of messages with a key of which another one waits, on topics that let no two of them wait."""

from schemas.columns import LONG, TEXT, TIME, Columns
from schemas.contract import Table

# Messages that a newer one with their key has replaced while they waited (decision 0145): their position and due time,
# and the position of the newer one. They are left out by dispatch for every subscription to which it has not given them
# before. Rows outlive those of the newer message: that may be due long before the older one.
REPLACED = Table(
    "replaced",
    Columns.of(
        ("topic", TEXT),
        ("ledger_id", LONG),
        ("entry_id", LONG),
        ("due_time", TIME),
        ("by_ledger_id", LONG),
        ("by_entry_id", LONG),
        ("replaced_at", TIME),
        ("batch_id", LONG),
    ),
    writer="ingest",
)
WAS_REPLACED = "replaced"
"""The reason in `rejected_dispatch` of what a newer message has replaced."""
DUPLICATE_PENDING = "duplicate_pending"
"""The reason in `rejected_ingest` of a message with the key of an older one that waits."""
OLDER = ("older_ledger_id", "older_entry_id")
"""Columns of `rejected_ingest` that only rows with this reason have: the position of the message that waits."""
