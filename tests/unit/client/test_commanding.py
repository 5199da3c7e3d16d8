"""Cancelling and undoing without Spark: what a condition names, what is written, what became of it."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pipeline.client.client import Client
from pipeline.client.commanding.arguments import HowCommanded
from pipeline.client.commanding.commands import Command, cancel, shift, undo
from pipeline.client.commanding.inforce import InForce
from pipeline.client.commanding.outcomes import outcomes
from pipeline.client.commanding.selecting import Example, choose
from pipeline.client.exceptions import CommandNotFound, SubscriptionNotFound
from pipeline.client.insight.pending import pending, pending_by_key
from pipeline.client.insight.trace import trace
from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from pipeline.config.errors import BadValue, NoWarehouse
from pipeline.delta.deltars import open_table, path_of, query
from pipeline.storage.files import Files
from pipeline.subscriptions.settled import SettledMark, raise_to
from schemas import COMMANDS, DELIVERIES, MESSAGES, REDELIVERY, REJECTED_DISPATCH, SEGMENTS
from state import Ack, Nack
from state.units import Ms
from state.withdrawals import Round
from tests.support.acknowledged import acknowledges, settled
from tests.support.client import at, delivery_row, left_out_row, message_row, noticed, put, retry_row, run_row
from tests.support.settled import NOW, released
from tests.support.settled import at as positions

NOON = 1_700_000_000_000
SECOND = 1_000
PLACES = [(1, 0), (1, 1), (1, 2), (4, 0), (4, 7)]


def rows() -> list[dict[str, Any]]:
    """Five messages, a second between two; the first and the third are of one airline."""
    made = []
    for number, place in enumerate(PLACES):
        airline = "UA" if number in (0, 2) else "DL"
        more = {"message_key": f"it's {number}", "properties": [("airline", airline), ("seats", str(number))]}
        made.append({**message_row(*place, NOON + number * SECOND), **more, "payload": b"x" * number})
    return made


@pytest.fixture
def flights(root: str) -> str:
    """Those messages, and two subscriptions that ingest knows; `late` joined with the second ledger."""
    for name, since in (("s", 0), ("late", 4)):
        subscribe(root, Subscription("t", name))
        noticed(root, name, since)
    put(root, MESSAGES, *rows())
    return root


def named(root: str, where: str, subscription: str | None = "s") -> list[tuple[int, int]]:
    """The positions that a condition names."""
    return [
        place
        for each in choose(root, "t", subscription, where, InForce())
        for place in zip(each.ledgers.tolist(), each.entries.tolist(), strict=True)
    ]


def release(root: str, ledger: int, first: int, last: int, name: str = "s") -> None:
    """Positions become due."""
    put(root, REDELIVERY, run_row(ledger, first, last, NOON, subscription=name))


def leave_out(root: str, ledger: int, entry: int, name: str = "s") -> None:
    """Dispatch leaves out a position."""
    put(root, REJECTED_DISPATCH, left_out_row(ledger, entry, NOON, subscription=name))


def figures(root: str) -> list[tuple[str, int, int, int, int, int]]:
    """Kind, count, applied, too late, undone, being decided of each command, the newest first."""
    found = outcomes(root)
    return [(o.kind, o.count, o.applied, o.too_late, o.undone, o.deciding) for o in found]


@pytest.mark.parametrize(
    ("where", "found"),
    [
        ("true", PLACES),
        ("false", []),
        ("properties['airline'] = 'UA'", [PLACES[0], PLACES[2]]),
        ("CAST(properties['seats'] AS INT) > 3", PLACES[4:]),
        ("message_key LIKE 'it''s %' AND due_time >= '2023-11-14T22:13:22Z'", PLACES[2:]),
        ("publish_time < '1970-01-02' AND payload_bytes BETWEEN 1 AND 2", PLACES[1:3]),
        ("subscription = 's' AND ledger_id = 4", PLACES[3:]),
        ("subscription = 'other' OR topic = 'other'", []),
        ("entry_id = 0 -- and nothing else", [PLACES[0], PLACES[3]]),
    ],
)
def test_a_condition_is_sql_over_what_is_pending(flights: str, where: str, found: list[tuple[int, int]]) -> None:
    """Topic, subscription, key, properties, times and sizes."""
    assert named(flights, where) == found


def test_positions_may_be_given_whoever_chose_them(flights: str) -> None:
    """What is not pending, or is nobody's, counts for nothing; the command says how many were given."""
    put(flights, DELIVERIES, delivery_row(rows()[1]))
    given = pa.table({"ledger_id": [4, 1, 1, 1, 99], "entry_id": [7, 1, 2, 2, 0]})
    assert cancel(flights, "t", positions=given, dry_run=True).selection.subscriptions == {"late": 1, "s": 2}
    assert cancel(flights, "t", positions=given.slice(0, 0)).command_id is None
    assert cancel(flights, "t", "s", positions=given.slice(1)).selection.count == 1
    (found,) = outcomes(flights)
    assert (found.asked, found.count) == ("4 positions", 1)


@pytest.mark.parametrize(
    "given", [{"ledger_id": [1]}, {"ledger_id": [1], "entry_id": [-1]}, {"ledger_id": [None], "entry_id": [0]}]
)
def test_positions_that_are_none_are_refused(flights: str, given: dict[str, list[int | None]]) -> None:
    """A column that lacks, a number out of its range, NULL."""
    with pytest.raises(BadValue, match="positions = "):
        cancel(flights, "t", positions=pa.table(given))


@pytest.mark.parametrize("where", ["", "nosuch = 1", "topic =", "topic", "true; DROP TABLE messages"])
def test_a_condition_that_cannot_be_followed_is_refused_with_the_columns_there_are(flights: str, where: str) -> None:
    """Nothing is written."""
    with pytest.raises(BadValue) as refused:
        cancel(flights, "t", where=where)
    assert (refused.value.field, refused.value.value) == ("where", where)
    assert "payload_bytes" in refused.value.allowed
    assert outcomes(flights) == []


def test_a_condition_whose_times_cannot_be_read_is_told_how_they_are_written(flights: str) -> None:
    """The text that could not be read is named, too."""
    with pytest.raises(BadValue) as refused:
        cancel(flights, "t", where="due_time < '2026-11-25T10:00Z'")
    assert "'2026-11-25T10:00:00Z'" in refused.value.allowed
    assert "'2026-11-25T10:00Z'" in refused.value.allowed


def test_what_is_delivered_settled_or_withdrawn_is_not_pending_and_nobody_gets_what_was_before_it(flights: str) -> None:
    """Each subscription for itself, in its present life."""
    made = rows()
    put(
        flights, DELIVERIES, delivery_row(made[1]), {**delivery_row(made[2]), "life": 7}, delivery_row(made[3], count=1)
    )
    assert named(flights, "true") == [PLACES[0], *PLACES[2:]]
    assert named(flights, "true", "late") == PLACES[3:]
    assert cancel(flights, "t", "s", where="ledger_id = 4").selection.count == 2
    assert cancel(flights, "t", "s", where="true").selection.count == 2
    assert cancel(flights, "t", "late", where="true").selection.count == 2
    raise_to(Files(), flights, SettledMark(NOON + SECOND, 2, 1))
    assert named(flights, "true") == PLACES[2:]


def test_a_dry_run_says_what_the_command_then_does(flights: str) -> None:
    """How many, for whom, when they are due, five of them; and nothing is written."""
    asked: HowCommanded = {"where": "ledger_id = 4 OR entry_id = 2", "by": "me", "reason": "rain"}
    dry = cancel(flights, "t", **(asked | {"dry_run": True}))
    assert dry.command_id is None
    assert (dry.selection.count, dry.selection.subscriptions) == (5, {"late": 2, "s": 3})
    assert (dry.selection.first_due, dry.selection.last_due) == (NOON + 2 * SECOND, NOON + 4 * SECOND)
    assert len(dry.selection.examples) == 5
    assert dry.selection.examples[0] == Example("s", (1, 2), NOON + 2 * SECOND, "it's 2")
    assert outcomes(flights) == []
    done = cancel(flights, "t", **asked)
    assert done == Command(done.command_id, "cancel", dry.selection)
    (found,) = outcomes(flights)
    assert (found.command_id, found.topic, found.subscriptions) == (done.command_id, "t", ("late", "s"))
    assert (found.asked, found.by, found.reason) == (asked["where"], "me", "rain")
    assert open_table(flights, COMMANDS).version() == 1


def test_a_key_is_a_key_whatever_it_says(flights: str) -> None:
    """Quotes are data."""
    assert cancel(flights, "t", "s", key="it's 3").selection.examples[0].position == PLACES[3]
    assert cancel(flights, "t", "s", key="' OR true --").command_id is None


def test_what_is_cancelled_is_not_pending(flights: str) -> None:
    """Before its time, after it was left out, and also when it was too late."""
    assert [each.count for each in pending(flights).backlogs] == [2, 5]
    cancel(flights, "t", "s", where="ledger_id = 1")
    assert [each.count for each in pending(flights).backlogs] == [2, 2]
    assert pending(flights, "t", "s").backlogs[0].next_due == NOON + 3 * SECOND
    put(flights, DELIVERIES, delivery_row(rows()[1]))
    assert [each.count for each in pending(flights).backlogs] == [2, 2]
    put(flights, DELIVERIES, delivery_row(rows()[3]))
    assert [each.count for each in pending(flights).backlogs] == [2, 1]


def test_what_has_expired_is_neither_pending_nor_cancelled(flights: str) -> None:
    """It comes to nobody, so a command does not name it. For another subscription it waits as before."""
    before = [each.count for each in pending(flights).backlogs]
    put(flights, REJECTED_DISPATCH, left_out_row(*PLACES[3], NOON, subscription="s", reason="expired"))
    assert [each.count for each in pending(flights).backlogs] == [before[0], before[1] - 1]
    assert cancel(flights, "t", "s", key="it's 3").command_id is None


def test_what_was_left_out_before_its_cancel_was_taken_back_comes_to_nobody(flights: str) -> None:
    """The undo was written while dispatch decided: it came too late, and all that tells of the message says so."""
    done = cancel(flights, "t", "s", key="it's 3")
    undo(flights, str(done.command_id))
    assert pending(flights, "t", "s").backlogs[0].count == 5
    release(flights, *PLACES[3], PLACES[3][1])
    leave_out(flights, *PLACES[3])
    assert figures(flights) == [("undo", 1, 0, 1, 0, 0), ("cancel", 1, 1, 0, 0, 0)]
    assert pending(flights, "t", "s").backlogs[0].count == 4
    assert [each.key for each in pending_by_key(flights, "t", "s")] == ["it's 0", "it's 1", "it's 2", "it's 4"]
    assert cancel(flights, "t", "s", key="it's 3").command_id is None
    assert [state.state for each in trace(flights, "t", "s", key="it's 3") for state in each.states] == ["cancelled"]


def test_very_many_cancelled_messages_are_a_table_in_the_query(flights: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are subtracted one by one, and not spelled out."""
    cancel(flights, "t", "s", where="entry_id > 0")
    spelled_out = pending(flights)
    monkeypatch.setattr("pipeline.client.tables.relations._SPELLED_OUT", 1)
    assert pending(flights) == spelled_out


def test_the_tables_tell_what_became_of_a_cancel(flights: str) -> None:
    """What waits is cancelled for sure; what is released is being decided, until it is delivered or left out."""
    done = cancel(flights, "t", "s", where="true")
    assert figures(flights) == [("cancel", 5, 5, 0, 0, 0)]
    release(flights, 1, 0, 2)
    assert figures(flights) == [("cancel", 5, 2, 0, 0, 3)]
    put(flights, DELIVERIES, delivery_row(rows()[0]), delivery_row(rows()[3], subscription="late"))
    leave_out(flights, 1, 1)
    assert figures(flights) == [("cancel", 5, 3, 1, 0, 1)]
    back = undo(flights, str(done.command_id))
    assert back.selection.count == 3
    assert figures(flights) == [("undo", 3, 2, 0, 0, 1), ("cancel", 5, 1, 1, 3, 0)]
    # Dispatch had decided before: the undo came too late.
    leave_out(flights, 1, 2)
    assert figures(flights) == [("undo", 3, 2, 1, 0, 0), ("cancel", 5, 2, 1, 2, 0)]
    release(flights, 4, 0, 7)
    put(flights, DELIVERIES, delivery_row(rows()[3]), delivery_row(rows()[4]))
    assert figures(flights) == [("undo", 3, 2, 1, 0, 0), ("cancel", 5, 2, 1, 2, 0)]


def test_what_was_taken_back_and_then_cancelled_again_is_the_doing_of_the_second_cancel(flights: str) -> None:
    """The first one stays undone, and the undo was not too late, when dispatch leaves the messages out."""
    done = cancel(flights, "t", "s", where="ledger_id = 1")
    undo(flights, str(done.command_id))
    cancel(flights, "t", "s", where="ledger_id = 1 AND entry_id < 2")
    release(flights, 1, 0, 2)
    leave_out(flights, 1, 0)
    leave_out(flights, 1, 1)
    put(flights, DELIVERIES, delivery_row(rows()[2]))
    assert figures(flights) == [("cancel", 2, 2, 0, 0, 0), ("undo", 3, 3, 0, 0, 0), ("cancel", 3, 0, 0, 3, 0)]


@pytest.mark.parametrize("reason", ["suppressed", "expired"])
def test_what_was_taken_back_and_then_left_out_for_another_reason_stays_undone(flights: str, reason: str) -> None:
    """No command did that, so the undo was not too late; and there is nothing left that one could take back."""
    done = cancel(flights, "t", "s", where="ledger_id = 1")
    undo(flights, str(done.command_id))
    later = shift(flights, "t", "s", span=timedelta(hours=1), where="ledger_id = 1 AND entry_id = 0")
    release(flights, 1, 1, 2)
    put(flights, REDELIVERY, run_row(1, 0, 0, NOON, round=1))
    put(flights, REJECTED_DISPATCH, *(left_out_row(1, entry, NOON, reason=reason) for entry in (1, 2)))
    put(flights, REJECTED_DISPATCH, left_out_row(1, 0, NOON, reason=reason, round=1))
    assert figures(flights) == [("shift", 1, 1, 0, 0, 0), ("undo", 3, 3, 0, 0, 0), ("cancel", 3, 0, 0, 3, 0)]
    for command in (done, later):
        assert undo(flights, str(command.command_id)).command_id is None


def test_an_undo_brings_back_what_can_come_and_nothing_twice(flights: str) -> None:
    """Then the message is pending again, and may be cancelled again by another command."""
    done = cancel(flights, "t", where="ledger_id = 4")
    dry = undo(flights, str(done.command_id), dry_run=True)
    assert (dry.command_id, dry.selection.subscriptions) == (None, {"late": 2, "s": 2})
    assert named(flights, "true") == PLACES
    assert cancel(flights, "t", where="ledger_id = 4").command_id is None
    back = undo(flights, str(done.command_id), by="me")
    assert back.selection == dry.selection
    assert undo(flights, str(done.command_id)).command_id is None
    assert [each.count for each in pending(flights).backlogs] == [2, 5]
    assert cancel(flights, "t", where="ledger_id = 4").selection.count == 4
    assert [each.count for each in pending(flights).backlogs] == [0, 3]


def test_what_failed_and_waits_to_come_again_is_cancelled_in_its_round(flights: str) -> None:
    """Settle says that it waits, a retry row says when; a consumer's message and one that was settled are not named."""
    acknowledges(flights, "busy")
    noticed(flights, "busy", 0)
    state = released((1, 0, 2), (4, 0, 0))
    state.handle(Nack(positions((1, 0, 1)), 0), Ack(positions((1, 2, 2))), Ack(positions((1, 1, 1))), now=Ms(NOW))
    settled(flights, state, "busy")
    put(flights, DELIVERIES, *(delivery_row(row, subscription="busy") for row in rows()[:4]))
    put(flights, SEGMENTS, retry_row([(1, 0), (1, 1)], NOON + 60 * SECOND, "busy"))
    found = choose(flights, "t", "busy", "true", InForce())
    assert [(each.of.redelivery_count, each.positions.positions().runs()) for each in found] == [
        (0, [(4, 7, 7)]),
        (1, [(1, 0, 0)]),
    ]
    for where in ("redelivery_count = 1", "due_time > '2023-11-14T22:14:19Z'", "properties['airline'] = 'UA'"):
        assert cancel(flights, "t", "busy", where=where, dry_run=True).selection.examples == (
            Example("busy", (1, 0), NOON + 60 * SECOND, "it's 0"),
        )
    done = cancel(flights, "t", "busy", where="true")
    assert done.selection.subscriptions == {"busy": 2}
    assert cancel(flights, "t", "busy", where="true").command_id is None
    assert figures(flights) == [("cancel", 2, 2, 0, 0, 0)]
    assert undo(flights, str(done.command_id)).selection.last_due == NOON + 60 * SECOND
    cancels, undos = (
        [row["due_time"] for row in query("SELECT * FROM t", t=open_table(flights, COMMANDS)) if row["kind"] == kind]
        for kind in ("cancel", "undo")
    )
    # Else the cancel would be in force again when the undo is below the mark of retention.
    assert min(undos) == max(cancels) == at(NOON + 60 * SECOND)
    assert figures(flights) == [("undo", 2, 2, 0, 0, 0), ("cancel", 2, 0, 0, 2, 0)]


def test_what_waits_for_a_life_that_is_over_comes_to_nobody(flights: str) -> None:
    """The command was for that life."""
    cancel(flights, "t", "s", where="entry_id = 0")
    release(flights, 1, 0, 0)
    assert figures(flights) == [("cancel", 2, 1, 0, 0, 1)]
    noticed(flights, "s", -1, marker=2)
    noticed(flights, "s", 0, marker=3)
    assert figures(flights) == [("cancel", 2, 2, 0, 0, 0)]
    (chosen,) = choose(flights, "t", "s", "entry_id = 0 AND ledger_id = 1", InForce())
    assert chosen.of == Round("t", "s", 2, 0)


@pytest.mark.parametrize(
    ("how", "error"),
    [
        ({"topic": "t"}, BadValue),
        ({"topic": "t", "key": "a", "where": "true"}, BadValue),
        ({"topic": "t", "key": "a", "positions": pa.table({"ledger_id": [1], "entry_id": [0]})}, BadValue),
        ({"topic": "t", "key": "\udcff"}, BadValue),
        ({"topic": "t", "where": "true", "by": "\udcff"}, BadValue),
        ({"topic": "nosuch", "where": "true"}, SubscriptionNotFound),
        ({"topic": "t", "subscription": "nosuch", "where": "true"}, SubscriptionNotFound),
        ({"topic": "t", "subscription": "new", "where": "true"}, BadValue),
    ],
)
def test_what_cannot_be_followed_is_refused(flights: str, how: dict[str, Any], error: type[Exception]) -> None:
    """Before anything is written."""
    subscribe(flights, Subscription("t", "new"))
    with pytest.raises(error):
        cancel(flights, **how)
    assert open_table(flights, COMMANDS).version() == 0


def test_only_a_cancel_that_is_there_can_be_undone(flights: str) -> None:
    """An undo is final: to cancel again is another command."""
    done = cancel(flights, "t", where="true")
    back = undo(flights, str(done.command_id))
    for wrong in ("nosuch", str(back.command_id)):
        with pytest.raises(CommandNotFound) as refused:
            undo(flights, wrong)
        assert refused.value.command_id == wrong


def test_lines_that_nobody_would_write_by_command_are_listed_and_change_nothing(flights: str) -> None:
    """The table is open to any writer."""
    good = {"topic": "t", "subscription": "s", "life": 1, "redelivery_count": 0, "ledger_id": 1, "due_time": at(NOON)}
    odd = {**good, "kind": "forget", "command_id": "odd", "first_entry": 0, "last_entry": 2}
    put(flights, COMMANDS, odd, {"kind": "cancel"}, {**odd, "kind": "cancel", "command_id": "c", "last_entry": None})
    assert [each.count for each in pending(flights).backlogs] == [2, 5]
    assert sorted(figures(flights)) == [("cancel", 0, 0, 0, 0, 0), ("forget", 0, 0, 0, 0, 0)]
    with pytest.raises(CommandNotFound):
        undo(flights, "odd")


def test_a_warehouse_of_before_has_nothing_withdrawn_and_says_what_it_lacks(flights: str) -> None:
    """A start makes the table."""
    Path(path_of(flights, COMMANDS)).rename(Path(flights, "away"))
    assert [each.count for each in pending(flights).backlogs] == [2, 5]
    assert outcomes(flights) == []
    with pytest.raises(NoWarehouse):
        cancel(flights, "t", where="true")


def test_a_client_cancels_undoes_and_lists(flights: str) -> None:
    """The names of the module functions; the last commands first."""
    with Client(flights) as client:
        assert client.cancel("t", "s", key="it's 1", dry_run=True).selection.count == 1
        done = client.cancel("t", where="entry_id = 0", by="me")
        assert done.command_id is not None
        assert client.undo(done.command_id, reason="sun").selection.count == 3
        assert [each.kind for each in client.commands()] == ["undo", "cancel"]
        assert [each.reason for each in client.commands(limit=1)] == ["sun"]


def test_a_command_for_all_is_refused_while_ingest_does_not_know_one_of_them(flights: str) -> None:
    """It would get what is cancelled for the others, and nobody would have said so."""
    subscribe(flights, Subscription("t", "new"))
    with pytest.raises(BadValue) as refused:
        cancel(flights, "t", where="true")
    assert refused.value.field == "subscription"
    assert cancel(flights, "t", "s", where="true").selection.count > 0
