"""What `clear` and `seek` say."""

from collections.abc import Iterator

from pipeline.client.insight.prospect import Prospect
from pipeline.config.printed import printable
from pipeline.config.spelling import iso_text


def report(name: str, found: Prospect, *, dry: bool) -> Iterator[str]:
    """Lines for people: what is dropped, what comes, what cannot come."""
    would, drops = "would begin" if dry else "begins", found.drops
    ledger, entry = found.position
    yield f"{printable(name)} {would} anew at {ledger}:{entry}"
    dropped = f"{drops.pending:,} pending, {drops.outstanding:,} outstanding, {drops.waiting:,} waiting"
    yield f"dropped: {dropped}"
    yield f"comes: {found.brings:,} messages of the log, each at its time"
    if found.deleted_until is not None:
        last = iso_text(found.deleted_until)
        yield f"cannot come: what retention has deleted of the messages that were due up to {last}"
