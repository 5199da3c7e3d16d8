"""Other due times without Spark: what is written, what is pending then, what became of it, and taking it back."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pipeline.client.client import Client
from pipeline.client.commanding.commands import cancel, release_now, reschedule, shift, undo
from pipeline.client.commanding.outcomes import outcomes
from pipeline.client.commanding.selecting import Example
from pipeline.client.exceptions import CommandNotFound
from pipeline.client.insight.pending import pending
from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from pipeline.config.errors import BadValue
from pipeline.delta.deltars import open_table, query
from schemas import COMMANDS, DELIVERIES, MESSAGES, REDELIVERY, REJECTED_DISPATCH, SEGMENTS
from state import Move, Nack, encode_chunk
from state.units import Ms
from tests.support.acknowledged import acknowledges, settled
from tests.support.client import at, delivery_row, message_row, noticed, put
from tests.support.settled import NOW, released
from tests.support.settled import at as positions

NOON = 3_999_960_000_000
"""A whole minute, far ahead: what is released now is due before."""
SECOND, MINUTE, HOUR = 1_000, 60_000, 3_600_000


def rows() -> list[dict[str, Any]]:
    """Four messages of one ledger, due a second after one another."""
    return [{**message_row(1, each, NOON + each * SECOND), "message_key": f"k{each}"} for each in range(4)]


@pytest.fixture
def trips(root: str) -> str:
    """Those messages, and a subscription that ingest knows."""
    subscribe(root, Subscription("t", "s"))
    noticed(root, "s", 0)
    put(root, MESSAGES, *rows())
    return root


def written(root: str, *columns: str) -> list[tuple[Any, ...]]:
    """Columns of the rows of `commands`, by position and round; times in ms."""
    found = query("SELECT * FROM t ORDER BY round, first_entry", t=open_table(root, COMMANDS))
    columns_of = [tuple(row[name] for name in columns) for row in found]
    return [tuple(_ms(each) if isinstance(each, datetime) else each for each in row) for row in columns_of]


def _ms(time: datetime) -> int:
    return int(time.replace(tzinfo=UTC).timestamp() * 1_000)


def release(root: str, entry: int, number: int = 0) -> None:
    """A round of an entry becomes due."""
    times = dict.fromkeys(("due_time", "message_due", "released_at"), at(NOON))
    of = {"topic": "t", "subscription": "s", "life": 1, "ledger_id": 1, "first_entry": entry, "last_entry": entry}
    more = {"tick_ms": 1, "redelivery_count": 0, "round": number or None, "cause": "due", "batch_id": 0}
    put(root, REDELIVERY, {**of, **times, **more})


def leave_out(root: str, entry: int, number: int = 0, reason: str = "rescheduled") -> None:
    """Dispatch leaves out a round of an entry."""
    times = dict.fromkeys(("due_time", "rejected_at"), at(NOON))
    of = {"topic": "t", "subscription": "s", "life": 1, "ledger_id": 1, "entry_id": entry, "cause": "due"}
    more = {"reason": reason, "redelivery_count": 0, "round": number or None, "batch_id": 0}
    put(root, REJECTED_DISPATCH, {**of, **times, **more})


def deliver(root: str, entry: int, number: int = 0) -> None:
    """A round of an entry is delivered."""
    put(root, DELIVERIES, {**delivery_row(rows()[entry]), "round": number or None})


def figures(root: str) -> list[tuple[str, int, int, int, int, int]]:
    """Kind, count, applied, too late, undone, being decided of each command, the newest first."""
    return [(o.kind, o.count, o.applied, o.too_late, o.undone, o.deciding) for o in outcomes(root)]


def test_what_is_said_of_a_message_that_was_moved_counts_as_long_as_what_moved_it(trips: str) -> None:
    """It is due before the mark of what is settled by then, and dispatch passes over rows below that."""
    past = [NOON - each * HOUR for each in (700, 800)]
    for to in past:
        reschedule(trips, "t", to=at(to), where="message_key = 'k1'")
    last = reschedule(trips, "t", to=at(past[0]), where="message_key = 'k1'").command_id
    undo(trips, last or "")
    undo(trips, cancel(trips, "t", where="message_key = 'k1'").command_id or "")
    wanted = [("reschedule", 1), ("reschedule", 2), ("reschedule", 3), ("undo", 4), ("cancel", None), ("undo", None)]
    assert sorted(written(trips, "kind", "round", "due_time"), key=str) == sorted(
        [(*each, NOON + SECOND) for each in wanted], key=str
    )


def minutes(root: str) -> tuple[int, int | None, dict[int, int]]:
    """How many are pending, the first due time, and how many in which minute."""
    (found,) = pending(root).backlogs
    return found.count, found.next_due, {(minute - NOON) // MINUTE: n for minute, n in found.minutes.items()}


def test_a_shift_says_for_each_message_when_it_was_due_and_is_to_be(trips: str) -> None:
    """In the next round, as one commit; a run of messages has one time. A dry run says the same and writes nothing."""
    asked = {"span": timedelta(hours=2), "where": "entry_id < 2"}
    dry = shift(trips, "t", dry_run=True, **asked)  # type: ignore[arg-type]
    assert (dry.command_id, dry.selection.count) == (None, 2)
    assert (dry.selection.first_due, dry.selection.last_due) == (NOON, NOON + SECOND)
    assert (dry.first_then, dry.last_then) == (NOON + 2 * HOUR, NOON + 2 * HOUR + SECOND)
    assert outcomes(trips) == []
    done = shift(trips, "t", **asked)  # type: ignore[arg-type]
    assert done.selection == dry.selection
    assert open_table(trips, COMMANDS).version() == 1
    rows = written(trips, "kind", "first_entry", "last_entry", "round", "due_before", "deliver_at", "due_time")
    until = NOON + 2 * HOUR + SECOND
    assert rows == [
        ("shift", each, each, 1, NOON + each * SECOND, NOON + 2 * HOUR + each * SECOND, until) for each in (0, 1)
    ]
    assert minutes(trips) == (4, NOON + 2 * SECOND, {0: 2, 120: 2})


def test_a_time_far_ahead_is_not_rounded_down(trips: str) -> None:
    """A number of microseconds beyond the year 2255 has no exact float, and a message is never early."""
    year = datetime(9000, 1, 1, tzinfo=UTC)
    moved = reschedule(trips, "t", to=year + timedelta(microseconds=1), key="k0", dry_run=True)
    assert moved.first_then == (year - at(0)) // timedelta(milliseconds=1) + 1


@pytest.mark.parametrize("most", [1 << 20, 2])
def test_messages_that_get_one_time_are_one_run(trips: str, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """If they had one before, too; runs that are too long are cut."""
    monkeypatch.setattr("pipeline.client.commanding.commands.MAX_RUN", most)
    put(trips, MESSAGES, *(message_row(2, each, NOON) for each in (0, 1, 2, 4)))
    reschedule(trips, "t", to=at(NOON + HOUR), where="ledger_id = 2")
    runs = [(first, last) for first, last in written(trips, "first_entry", "last_entry")]
    assert runs == ([(0, 2), (4, 4)] if most > 2 else [(0, 1), (2, 2), (4, 4)])
    assert minutes(trips)[2] == {0: 4, 60: 4}


def test_what_has_another_due_time_is_seen_at_that_time_and_moves_on_from_it(trips: str) -> None:
    """Also when its first time is below the mark of retention by then; a cancel takes it, whatever its round."""
    shift(trips, "t", span=timedelta(hours=1), key="k0")
    assert shift(trips, "t", span=timedelta(hours=-2), key="k0").selection.examples == (
        Example("s", (1, 0), NOON + HOUR, "k0"),
    )
    assert written(trips, "round", "due_before", "deliver_at") == [
        (1, NOON, NOON + HOUR),
        (2, NOON + HOUR, NOON - HOUR),
    ]
    later = f"due_time < '{at(NOON).isoformat()}'"
    assert cancel(trips, "t", where=later, dry_run=True).selection.examples[0].position == (1, 0)
    release(trips, 0)
    leave_out(trips, 0)
    assert minutes(trips) == (4, NOON - HOUR, {-60: 1, 0: 3})
    assert cancel(trips, "t", key="k0").command_id is not None
    assert minutes(trips) == (3, NOON + SECOND, {0: 3})
    assert shift(trips, "t", span=timedelta(hours=1), key="k0").command_id is None


def test_what_is_to_come_now_comes_now_and_what_is_due_already_is_left_alone(trips: str) -> None:
    """There is nothing to say of it."""
    put(trips, MESSAGES, message_row(0, 0, 1_000))
    done = release_now(trips, "t", where="true")
    assert done.selection.count == 4
    assert done.last_then is not None
    assert done.last_then < NOON
    assert reschedule(trips, "t", to=at(done.last_then), where="ledger_id = 1").command_id is None


def test_the_tables_tell_what_became_of_it(trips: str) -> None:
    """What waits is moved for sure; what was released before is being decided, until it is delivered or left out."""
    release(trips, 2)
    release(trips, 3)
    done = shift(trips, "t", span=timedelta(hours=1), where="true")
    assert figures(trips) == [("shift", 4, 2, 0, 0, 2)]
    deliver(trips, 2)
    leave_out(trips, 3)
    release(trips, 0)
    leave_out(trips, 0)
    assert figures(trips) == [("shift", 4, 3, 1, 0, 0)]
    release(trips, 0, 1)
    deliver(trips, 0, 1)
    assert figures(trips) == [("shift", 4, 3, 1, 0, 0)]
    back = undo(trips, str(done.command_id), by="me")
    assert (back.selection.count, back.first_then, back.last_then) == (2, NOON + SECOND, NOON + 3 * SECOND)
    assert figures(trips) == [("undo", 2, 2, 0, 0, 0), ("shift", 4, 1, 1, 2, 0)]
    assert minutes(trips) == (2, NOON + SECOND, {0: 2})
    assert undo(trips, str(done.command_id)).command_id is None
    # Dispatch took one of them before: taking it back came too late.
    release(trips, 1, 1)
    deliver(trips, 1, 1)
    assert figures(trips) == [("undo", 2, 1, 1, 0, 0), ("shift", 4, 2, 1, 1, 0)]


def test_only_the_last_word_of_a_message_is_taken_back(trips: str) -> None:
    """What got yet another time, or was cancelled since, stays as it is; an undo cannot be undone."""
    first = shift(trips, "t", span=timedelta(hours=1), where="entry_id < 3")
    shift(trips, "t", span=timedelta(hours=1), key="k0")
    cancel(trips, "t", key="k1")
    back = undo(trips, str(first.command_id), dry_run=True)
    assert [each.position for each in back.selection.examples] == [(1, 2)]
    done = undo(trips, str(first.command_id))
    with pytest.raises(CommandNotFound):
        undo(trips, str(done.command_id))
    assert minutes(trips) == (3, NOON + 2 * SECOND, {0: 2, 120: 1})


def test_what_failed_and_waits_to_come_again_gets_another_due_time_in_its_round(trips: str) -> None:
    """Settle says in which round it waits; one that was moved before waits in a later one than it failed."""
    acknowledges(trips, "busy")
    noticed(trips, "busy", 0)
    state = released((1, 0, 1))
    state.handle(Nack(positions((1, 0, 1)), 0), Move(positions((1, 1, 1)), 1, 2), now=Ms(NOW))
    settled(trips, state, "busy")
    put(trips, DELIVERIES, *(delivery_row(row, subscription="busy") for row in rows()))
    times = dict.fromkeys(("segment_start", "first_due", "last_due"), at(NOON))
    for count, number, entries in ((1, None, [0, 1]), (1, 2, [1])):
        chunk = encode_chunk([1] * len(entries), entries, [NOON + MINUTE * (number or 1)] * len(entries), 1)
        listeners = [{"name": "busy", "life": 1, "tick_ms": 1}]
        retry: dict[str, object] = {"topic": "t", "subscriptions": listeners, "kind": "retry"}
        retry |= {"redelivery_count": count, "round": number, "cause": "nack", "chunk": chunk, "batch_id": 1}
        put(trips, SEGMENTS, {**retry, **times, "count": len(entries)})
    done = shift(trips, "t", "busy", span=timedelta(hours=1), where="true")
    lines = written(trips, "first_entry", "redelivery_count", "round", "due_before", "deliver_at")
    assert lines == [
        (0, 1, 2, NOON + MINUTE, NOON + HOUR + MINUTE),
        (1, 1, 3, NOON + 2 * MINUTE, NOON + HOUR + 2 * MINUTE),
    ]
    assert undo(trips, str(done.command_id)).last_then == NOON + 2 * MINUTE


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda root: reschedule(root, "t", to=datetime(2030, 1, 1), key="k0"), "to"),  # noqa: DTZ001 - that is it
        (lambda root: reschedule(root, "t", to=datetime(1960, 1, 1, tzinfo=UTC), key="k0"), "to"),
        (lambda root: shift(root, "t", span=timedelta(0), key="k0"), "span"),
        (lambda root: shift(root, "t", span=timedelta(days=365 * 9_000), key="k0"), "span"),
        (lambda root: shift(root, "t", span=timedelta(hours=1)), "where"),
        (lambda root: release_now(root, "t", key="k0", where="true"), "where"),
    ],
)
def test_what_cannot_be_followed_is_refused(trips: str, call: Callable[[str], object], field: str) -> None:
    """Before anything is written."""
    with pytest.raises(BadValue) as refused:
        call(trips)
    assert refused.value.field == field
    assert open_table(trips, COMMANDS).version() == 0


def test_a_span_that_leads_too_far_is_named(trips: str) -> None:
    """Who gave it has to know what to change."""
    span = timedelta(days=365 * 7_950)
    with pytest.raises(BadValue) as refused:
        shift(trips, "t", span=span, key="k0")
    assert (refused.value.field, refused.value.value) == ("span", span)


def test_a_client_moves_undoes_and_lists(trips: str) -> None:
    """The names of the module functions; the last commands first."""
    with Client(trips) as client:
        assert client.shift("t", "s", span=timedelta(hours=1), key="k1", dry_run=True).selection.count == 1
        assert client.reschedule("t", to=at(NOON + HOUR), key="k0").command_id is not None
        done = client.release_now("t", where="entry_id > 1", by="me")
        assert client.undo(str(done.command_id), reason="sun").selection.count == 2
        assert [each.kind for each in client.commands()] == ["undo", "release", "reschedule"]
