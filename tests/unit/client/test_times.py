"""Times that a program gives: with a zone, or in ms as the reference has them; both mean one time wherever they go."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

from pipeline.client.checks import time_us
from pipeline.client.client import Client
from pipeline.client.commanding.commands import reschedule
from pipeline.client.exceptions import InvalidMessage
from pipeline.client.producing.inbox import OutgoingMessage, send
from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from pipeline.config.errors import BadValue
from pipeline.delta.deltars import open_table
from schemas import INBOX, MESSAGES
from state.buckets import MAX_TIME
from tests.support.client import message_row, new_warehouse, noticed, put

AT = datetime(2026, 5, 1, 14, 30, 0, 250_000, timezone(timedelta(hours=2)))
MS = round(AT.timestamp() * 1_000)
WRONG = (AT.replace(tzinfo=None), "2026-05-01", -1, True, 1.5, MAX_TIME + 1)


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A warehouse with a message that waits."""
    root = new_warehouse(str(tmp_path))
    subscribe(root, Subscription("t", "s"))
    noticed(root, "s", 0)
    put(root, MESSAGES, message_row(1, 0, MS + 60_000))
    return root


@given(st.integers(0, 4_102_444_800_000))
def test_ms_and_a_time_with_a_zone_are_one(ms: int) -> None:
    """Whatever the zone is."""
    at = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=ms)
    assert time_us("at", ms) == time_us("at", at) == time_us("at", at.astimezone(AT.tzinfo)) == ms * 1_000


def test_each_door_takes_both(root: str) -> None:
    """`Producer.send` took a number only, and `OutgoingMessage` a time only."""
    send(root, [OutgoingMessage("t", b"", deliver_at=each) for each in (AT, MS)])
    with Client(root) as client:
        producer = client.create_producer("t")
        for each in (AT, MS):
            producer.send(b"", deliver_at=each)
    rows = open_table(root, INBOX).to_pyarrow_table().to_pylist()
    assert [row["deliver_at"] for row in rows] == [AT] * 4
    moved = [reschedule(root, "t", to=each, key=None, where="true", dry_run=True) for each in (AT, MS)]
    assert {each.first_then for each in moved} == {MS}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_no_time_is_refused_by_each_door(root: str, wrong: object) -> None:
    """With what is one."""
    with pytest.raises(BadValue, match="time zone, or ms since 1970"):
        OutgoingMessage("t", b"", deliver_at=wrong)  # type: ignore[arg-type] # on purpose
    with pytest.raises(BadValue, match="time zone, or ms since 1970"):
        reschedule(root, "t", to=wrong, where="true")  # type: ignore[arg-type] # on purpose
    with Client(root) as client, pytest.raises(InvalidMessage, match="time zone, or ms since 1970"):
        client.create_producer("t").send(b"", deliver_at=wrong)  # type: ignore[arg-type] # on purpose
