"""What a program writes takes nothing out of the log of its table: stages may have to read what is old."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")

import pyarrow as pa

from pipeline.client.producing.inbox import OutgoingMessage, rows_of_messages
from pipeline.client.producing.writer import Inbox
from pipeline.client.subscribing.subscriptions import Subscription, subscribe, subscribe_all
from pipeline.delta.deltars import append, open_table
from schemas import INBOX, SUBSCRIPTIONS, Table

_COMMITS = 3


def _rows() -> pa.Table:
    return rows_of_messages([OutgoingMessage("t", b"")])


_WAYS: dict[str, tuple[Table, Callable[[str, int], object]]] = {
    "register": (SUBSCRIPTIONS, lambda root, n: subscribe(root, Subscription("t", f"s{n}"))),
    "register several": (
        SUBSCRIPTIONS,
        lambda root, n: subscribe_all(root, lambda _: [Subscription("t", f"s{n}"), Subscription("u", f"s{n}")]),
    ),
    "append": (INBOX, lambda root, _: append(root, INBOX, _rows())),
    "send": (INBOX, lambda root, n: Inbox(root).append(_rows(), f"{n}", {})),
}


@pytest.mark.parametrize("way", _WAYS)
def test_an_entry_of_a_log_stays_however_old_it_is(root: str, way: str) -> None:
    """delta-rs looked at all of the log with each commit, to delete by age what a stage may need."""
    table, write = _WAYS[way]
    for number in range(_COMMITS):
        write(root, number)
    open_table(root, table).create_checkpoint()
    log = Path(root, table.name, "_delta_log")
    entries = sorted(log.glob("*.json"))
    for entry in log.iterdir():
        os.utime(entry, (1, 1))
    write(root, _COMMITS)
    assert [each for each in entries if not each.exists()] == []
