"""What the tests of producers look at."""

from __future__ import annotations

from typing import Any

from pipeline.delta.deltars import open_table, query
from schemas import INBOX


def inbox(root: str) -> list[dict[str, Any]]:
    """The rows of the inbox."""
    return query("SELECT * FROM inbox ORDER BY publish_time, payload", inbox=open_table(root, INBOX))


def payloads(root: str) -> list[bytes]:
    """The contents that the inbox holds, sorted."""
    return sorted(row["payload"] for row in inbox(root))
