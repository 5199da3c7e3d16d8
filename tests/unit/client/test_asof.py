"""What was pending at an instant, counted from what the tables say of times; and by key."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from pipeline.client.commanding.commands import cancel
from pipeline.client.insight.pending import KeyBacklog, pending, pending_by_key
from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from pipeline.config.errors import BadValue
from pipeline.delta.deltars import open_table
from pipeline.storage.files import Files
from pipeline.subscriptions.settled import SettledMark, raise_to
from schemas import COMMANDS, DELIVERIES, MESSAGES, PUBLICATIONS, REJECTED_DISPATCH
from tests.support.client import at, delivery_row, left_out_row, message_row, noticed, put

NOON = 1_700_000_000_000
SECOND = 1_000
SENT = (0, 0, 5, 20)
"""When each of four messages was sent, in seconds after noon; they are due at 10, 11, 12, 30 s."""
DUE = (10, 11, 12, 30)
BUCKET = 24
"""A bucket is so many ms later than the due time, see `delivery_row`."""


def row(number: int) -> dict[str, Any]:
    """A row of `messages`."""
    made = message_row(1, number, NOON + DUE[number] * SECOND, published=NOON + SENT[number] * SECOND)
    return {**made, "message_key": "even" if number % 2 == 0 else None}


def publish(root: str, *numbers: int, committed: float, batch: int = 0) -> None:
    """Messages become visible in one commit, so many seconds after noon."""
    rows = [{**delivery_row(row(each)), "message_key": row(each)["message_key"], "batch_id": batch} for each in numbers]
    put(root, DELIVERIES, *rows)
    ends = {"first_due": rows[0]["due_time"], "last_due": rows[-1]["due_time"]}
    columns = {"batch_id": batch, "committed_at": at(round(NOON + committed * SECOND)), "count": len(rows)}
    put(root, PUBLICATIONS, {**columns, **ends})


@pytest.fixture
def log(root: str) -> str:
    """Four messages for one subscription."""
    subscribe(root, Subscription("t", "s"))
    noticed(root, "s", 0)
    put(root, MESSAGES, *map(row, range(4)))
    return root


def then(root: str, seconds: float) -> int:
    """How many were pending so many seconds after noon."""
    (found,) = pending(root, as_of=round(NOON + seconds * SECOND)).backlogs
    assert found.count == sum(found.minutes.values())
    return found.count


def course(root: str) -> list[int]:
    """The same at some instants."""
    return [then(root, each) for each in (-1, 0, 5, 10.02, 11.05, 12.1, 19, 25, 60)]


def test_a_message_is_pending_from_when_it_was_sent_until_it_was_published(log: str) -> None:
    """What came late was pending until then, whatever was due when; one row of a batch is like another."""
    publish(log, 0, committed=10.03)
    publish(log, 1, 2, committed=19.0, batch=1)
    publish(log, 3, committed=30.03, batch=2)
    assert course(log) == [0, 2, 3, 3, 2, 2, 0, 1, 0]
    (found,) = pending(log, as_of=NOON + 12 * SECOND).backlogs
    assert found.next_due == NOON + 11 * SECOND
    assert pending(log).backlogs[0].count == 0


def test_of_publications_with_one_number_the_nearest_to_the_release_counts(log: str) -> None:
    """A new checkpoint counts batches from 0 again."""
    publish(log, 0, 1, 2, committed=13)
    again = {"batch_id": 0, "committed_at": at(NOON + 3_600 * SECOND), "count": 1}
    put(log, PUBLICATIONS, again | {"first_due": at(NOON), "last_due": at(NOON + 60 * SECOND)})
    assert course(log) == [0, 2, 3, 3, 3, 3, 0, 1, 1]


def test_a_delivery_that_nobody_noted_counts_from_its_due_time(log: str) -> None:
    """The note comes a second after the commit, or not at all when the process died between the two."""
    put(log, DELIVERIES, delivery_row(row(0)))
    assert then(log, 10.02) == 3
    assert then(log, 10.03) == 2


def test_what_retention_has_deleted_from_the_log_is_counted_by_its_deliveries(log: str) -> None:
    """While it is deleted, and after; the answer stays what it was."""
    publish(log, 0, committed=10.03)
    publish(log, 1, 2, committed=19.0, batch=1)
    wanted = [(each, then(log, each)) for each in (10.03, 11, 12, 19, 25)]
    raise_to(Files(), log, SettledMark(NOON + 12_000, 2, 1))
    assert [(each, then(log, each)) for each, _ in wanted] == wanted
    open_table(log, MESSAGES).delete("entry_id < 3")
    assert [(each, then(log, each)) for each, _ in wanted] == wanted
    assert [each for each in range(10, 20) if pending(log, as_of=NOON + 11 * SECOND).uncertain] == []


def test_an_instant_of_which_deliveries_may_be_gone_is_refused(log: str) -> None:
    """The first one that is kept says from when on they are all there."""
    publish(log, 0, committed=10.03)
    assert then(log, 1) == 2
    raise_to(Files(), log, SettledMark(NOON + 10_000, 2, 1))
    with pytest.raises(BadValue) as refused:
        pending(log, as_of=NOON + SECOND)
    assert (refused.value.field, refused.value.value) == ("as_of", "2023-11-14T22:13:21.000Z")
    assert "2023-11-14T22:13:30.030" in refused.value.allowed
    assert then(log, 10.03) == 2


def command(root: str, kind: str, seconds: int, first: int, last: int, undoes: str | None = None) -> None:
    """A command that was given so many seconds after noon."""
    of = {"topic": "t", "subscription": "s", "life": 1, "redelivery_count": 0, "ledger_id": 1, "undoes": undoes}
    run = {"first_entry": first, "last_entry": last, "due_time": at(NOON + 30 * SECOND)}
    put(root, COMMANDS, {**of, **run, "kind": kind, "command_id": kind, "at": at(NOON + seconds * SECOND)})


def test_what_was_cancelled_by_then_was_not_pending_and_what_was_taken_back_was_again(log: str) -> None:
    """Each from the time on that its command states."""
    command(log, "cancel", 6, 0, 3)
    command(log, "undo", 8, 1, 2, "cancel")
    assert [then(log, each) for each in (5, 6, 7, 8, 25)] == [3, 0, 0, 2, 2]


def test_what_dispatch_had_left_out_was_not_pending_whatever_the_command_says(log: str) -> None:
    """In a replay commands state a time of another clock."""
    command(log, "cancel", 86_400, 1, 1)
    left_out = left_out_row(1, 1, NOON + 11 * SECOND)
    put(log, REJECTED_DISPATCH, left_out, {**left_out, "entry_id": 2, "reason": "message_missing"})
    assert [then(log, each) for each in (10.5, 11, 25)] == [3, 2, 3]
    put(log, REJECTED_DISPATCH, {**left_out, "entry_id": 3, "reason": "expired", "rejected_at": at(NOON + 20 * SECOND)})
    assert [then(log, each) for each in (10.5, 11, 25)] == [3, 2, 2]


def test_what_was_cancelled_since_and_deleted_is_told_apart(log: str) -> None:
    """Nobody knows when it was sent."""
    publish(log, 0, committed=10.03)
    assert cancel(log, "t", where="entry_id = 1").selection.count == 1
    put(log, REJECTED_DISPATCH, left_out_row(1, 1, NOON + 11 * SECOND + BUCKET))
    assert then(log, 10.5) == 2
    raise_to(Files(), log, SettledMark(NOON + 11_100, 2, 1))
    open_table(log, MESSAGES).delete("entry_id < 2")
    found = pending(log, as_of=NOON + 10_500)
    assert (found.backlogs[0].count, found.uncertain, found.in_inbox) == (1, 1, 0)
    assert pending(log, as_of=NOON + 12_000).uncertain == 0
    assert pending(log).uncertain == 0


def test_keys_are_counted_those_with_most_first(log: str) -> None:
    """Now and as of an instant; messages without a key are counted together."""
    subscribe(log, Subscription("t", "also"))
    noticed(log, "also", 0)
    publish(log, 0, committed=10.03)
    assert pending_by_key(log) == [
        KeyBacklog("t", "also", "even", 2),
        KeyBacklog("t", "also", None, 2),
        KeyBacklog("t", "s", None, 2),
        KeyBacklog("t", "s", "even", 1),
    ]
    assert pending_by_key(log, "t", "s", limit=1) == [KeyBacklog("t", "s", None, 2)]
    first = [KeyBacklog("t", "s", "even", 2), KeyBacklog("t", "s", None, 1)]
    assert pending_by_key(log, subscription="s", as_of=NOON + 6 * SECOND) == first
    assert pending_by_key(log, "other") == []


def test_the_times_of_a_batch_are_those_of_its_rows(log: str) -> None:
    """Of a commit that came late, what was not due yet is not missed by anybody."""
    publish(log, 0, 3, committed=40)
    assert then(log, 29) == 4
    assert row(3)["due_time"] - row(0)["due_time"] == timedelta(seconds=20)
