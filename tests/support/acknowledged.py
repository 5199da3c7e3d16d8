"""Rows of a subscription that acknowledges, as the client and settle would write them, written without Spark."""

from __future__ import annotations

import json

from deltalake import CommitProperties, write_deltalake

from pipeline.delta.deltars import open_table, rows_of
from pipeline.subscriptions.policies import Policies
from schemas import CURSOR_HEAD, CURSOR_LEASES, CURSORS, SUBSCRIPTIONS
from state import LeaseReplay, Outstanding, pack_leases
from tests.support.client import put


def acknowledges(root: str, name: str = "s", topic: str = "t", policies: Policies | None = None) -> None:
    """A line of the registry for a subscription that acknowledges."""
    row = {"topic": topic, "subscription": name, "type": "shared", "start": "earliest", "tick_ms": 1, "active": True}
    put(root, SUBSCRIPTIONS, row | {"policies": (policies or Policies(ack=True)).as_map()})


def settled(
    root: str,
    state: Outstanding,
    name: str = "s",
    batch: int = 0,
    read: dict[str, int] | None = None,
    leases: LeaseReplay | None = None,
    gone: tuple[int, ...] = (),
) -> None:
    """A commit of settle: all of a cursor of a first life, who leases what, and what was read of the tables.

    `gone` are blocks that it had before.
    """
    taken = {"events": 0, "released": 0, "refused": 0}
    noted = {
        "batch": batch,
        "now": 0,
        "registry": 0,
        "lives": 0,
        "segments": 0,
        "begin": taken,
        **taken,
        **(read or {}),
    }
    cursor = state.snapshot()
    blocks: dict[int, bytes | None] = {CURSOR_HEAD: cursor.head, **dict.fromkeys(gone), **cursor.blocks}
    if leases is not None:
        blocks[CURSOR_LEASES] = pack_leases(leases)
    columns = {"topic": "t", "subscription": name, "life": 1, "batch_id": batch}
    columns |= {"events": noted["events"], "released": noted["released"]}
    rows = [columns | {"block": number, "bytes": data} for number, data in blocks.items()]
    note = json.dumps({"stage": "settle", "owner": "o", "batch": batch, "note": noted})
    properties = CommitProperties(custom_metadata={"userMetadata": note})
    write_deltalake(open_table(root, CURSORS), rows_of(CURSORS, rows), mode="append", commit_properties=properties)
