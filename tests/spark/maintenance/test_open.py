"""Retention in a warehouse whose subscriptions acknowledge: what is open stays, and its neighbours go."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable as RustTable
from pyspark.sql import SparkSession

from pipeline.config.settings import HOUR_MS, Upkeep
from pipeline.config.wallclock import wall_ms
from pipeline.delta.logs.entries import newest
from pipeline.delta.warehouse import Warehouse
from pipeline.maintenance import layout, readers, retention, rounds
from pipeline.maintenance.readers import Unread, settled_upto, unread_from
from pipeline.maintenance.rounds import TableMetrics, maintain
from pipeline.storage.files import Files
from pipeline.subscriptions.policies import Policies
from pipeline.subscriptions.settled import SettledMark
from schemas import (
    CLOSED,
    COMMANDS,
    CONSUMER_EVENTS,
    CURSORS,
    DELIVERIES,
    MESSAGES,
    REDELIVERY,
    REJECTED_DISPATCH,
    Table,
)
from state import Ack, Move, Nack, Outstanding
from state.units import Ms
from tests.support.acknowledged import acknowledges, settled
from tests.support.client import at, delivery_row, message_row, new_warehouse, put
from tests.support.settled import NOW, released
from tests.support.settled import at as positions
from tests.support.spark import session

OLD, MARK = 1_000, 2_000
LEDGER, COUNT = 7, 10


def _redelivery(first: int, last: int, count: int = 0, due: int = OLD, ledger: int = LEDGER) -> dict[str, object]:
    times = {"due_time": at(due), "message_due": at(OLD), "released_at": at(due)}
    run = {"topic": "t", "subscription": "s", "life": 1, "ledger_id": ledger, "first_entry": first, "last_entry": last}
    return {**run, **times, "tick_ms": 1, "redelivery_count": count, "cause": "nack" if count else "due", "batch_id": 0}


@pytest.fixture
def warehouse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Warehouse:
    """Ten messages of a ledger, released in two runs, delivered, and old: the mark is above them."""
    made = Warehouse(str(tmp_path / "warehouse"), session())
    new_warehouse(made.root)
    sent = [message_row(LEDGER, entry, OLD) for entry in range(COUNT)]
    put(made.root, MESSAGES, *sent)
    put(made.root, REDELIVERY, _redelivery(0, 4), _redelivery(5, 9))
    put(made.root, DELIVERIES, *(delivery_row(row, number + 1) for number, row in enumerate(sent)))
    monkeypatch.setattr(rounds, "raise_mark", lambda *_: SettledMark(MARK, LEDGER + 1, 10))
    monkeypatch.setattr(rounds, "visible", lambda *_: (MARK, 1))
    for module in (retention, layout):
        monkeypatch.setattr(module, "unread", lambda *_: Unread())
    return made


def _round(warehouse: Warehouse, letters_ms: int = 0) -> dict[str, TableMetrics]:
    upkeep = Upkeep(retain_ms=HOUR_MS, retain_deliveries_ms=HOUR_MS, retain_dead_letters_ms=letters_ms)
    return {done.table: done for done in maintain(warehouse, upkeep, wall_ms())}


def _entries(warehouse: Warehouse, table: Table) -> list[int]:
    column = "entry_id" if "entry_id" in table.schema.names else "first_entry"
    found = RustTable(warehouse.path(table)).to_pyarrow_table(columns=[column])[column].to_pylist()
    return sorted(found)


def _open(*entries: int) -> Outstanding:
    """A state of the ten messages of which these are outstanding."""
    state = released((LEDGER, 0, COUNT - 1))
    for entry in set(range(COUNT)) - set(entries):
        state.handle(Ack(positions((LEDGER, entry, entry))), now=Ms(NOW))
    return state


def test_what_is_open_stays_its_neighbours_go_and_it_goes_when_it_is_settled(warehouse: Warehouse) -> None:
    """Entry 2 is outstanding, entry 6 waits: releases and deliveries stay with them. The last takes its file along."""
    state = _open(2, 6)
    state.handle(Nack(positions((LEDGER, 6, 6)), 0), now=Ms(NOW))
    acknowledges(warehouse.root)
    settled(warehouse.root, state, read={"released": 1})
    done = _round(warehouse)
    assert {step for each in done.values() for step in each.failed} == set()
    assert (_entries(warehouse, MESSAGES), _entries(warehouse, DELIVERIES)) == ([2, 6], [2, 6])
    assert _entries(warehouse, REDELIVERY) == [0, 5]
    assert [done[table.name].rows for table in (MESSAGES, REDELIVERY, DELIVERIES)] == [8, 0, 8]
    settled(warehouse.root, _open(6), batch=1, read={"released": 1})
    assert _round(warehouse)[MESSAGES.name].rows == 1
    assert (_entries(warehouse, MESSAGES), _entries(warehouse, REDELIVERY)) == ([6], [5])
    settled(warehouse.root, _open(), batch=2, read={"released": 1}, gone=(0,))
    _round(warehouse)
    assert [_entries(warehouse, table) for table in (MESSAGES, REDELIVERY, DELIVERIES)] == [[], [], []]


def test_a_file_of_which_most_stays_is_left_as_it_is(warehouse: Warehouse) -> None:
    """Else each acknowledgement of an old message would copy all that lies beside it."""
    acknowledges(warehouse.root)
    settled(warehouse.root, _open(0, 1, 2, 3, 4, 5), read={"released": 1})
    before = RustTable(warehouse.path(MESSAGES)).file_uris()
    assert _round(warehouse)[MESSAGES.name].rows == 0
    assert RustTable(warehouse.path(MESSAGES)).file_uris() == before


def test_without_acknowledgement_all_goes(warehouse: Warehouse) -> None:
    """Also what a subscription left open that does not acknowledge any more."""
    acknowledges(warehouse.root, policies=Policies())
    settled(warehouse.root, _open(2), read={"released": 1})
    _round(warehouse)
    assert [_entries(warehouse, table) for table in (MESSAGES, REDELIVERY, DELIVERIES)] == [[], [], []]


@pytest.mark.parametrize(("by_spark", "outstanding"), [(True, ()), (False, ()), (False, (2,))])
def test_dead_letters_have_a_retention_of_their_own(
    warehouse: Warehouse,
    by_spark: bool,  # noqa: FBT001 - what is counted differs
    outstanding: tuple[int, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody subscribes to their topic, so all that is due there is settled; a person is to look at it all the same."""
    if by_spark:
        monkeypatch.setattr(retention, "_is_sifted", lambda *_: False)
    dead = "it's t-s-DLQ"
    put(warehouse.root, MESSAGES, message_row(LEDGER, 20, OLD, topic=dead), message_row(LEDGER, 21, 1, topic=dead))
    acknowledges(warehouse.root, policies=Policies(ack=True, max_redeliveries=1, dead_letter_topic=dead))
    settled(warehouse.root, _open(*outstanding), read={"released": 1})
    _round(warehouse, letters_ms=HOUR_MS + MARK - OLD + 1)
    assert _entries(warehouse, MESSAGES) == [*outstanding, 20]
    _round(warehouse, letters_ms=HOUR_MS)
    assert _entries(warehouse, MESSAGES) == [*outstanding]


def test_while_settle_stands_still_nothing_goes(warehouse: Warehouse) -> None:
    """What was released and it has not read may be open."""
    acknowledges(warehouse.root)
    settled(warehouse.root, _open(), read={"released": -1})
    _round(warehouse)
    assert len(_entries(warehouse, MESSAGES)) == COUNT


def test_a_cursor_that_cannot_be_read_stops_the_deleting_alone(warehouse: Warehouse) -> None:
    """Nobody knows what is open; logs are cut and files merged as ever."""
    acknowledges(warehouse.root)
    settled(warehouse.root, _open(2), read={"released": 1})
    torn = {"topic": "t", "subscription": "s", "life": 1, "block": 0, "batch_id": 1, "events": 0, "released": 1}
    put(warehouse.root, CURSORS, torn | {"bytes": b"torn"})
    done = _round(warehouse)
    assert [each.table for each in done.values() if each.failed] == [CURSORS.name]
    assert len(_entries(warehouse, MESSAGES)) == COUNT


def test_a_redelivery_goes_when_its_own_time_is_long_past(warehouse: Warehouse) -> None:
    """Its message was due long before; a rebuild must find that the redelivery was released."""
    put(warehouse.root, REDELIVERY, _redelivery(1, 1, 1, MARK + 1), _redelivery(3, 3, 1, MARK))
    acknowledges(warehouse.root)
    settled(warehouse.root, _open(), read={"released": 2})
    _round(warehouse)
    assert _entries(warehouse, REDELIVERY) == [1]


def test_what_dispatch_must_leave_out_is_told_until_it_has_passed_it(warehouse: Warehouse) -> None:
    """Ledger 7 has a redelivery in `redelivery`, in ledger 8 one waits; both were acknowledged. Ledger 9 is done."""
    closed = {"topic": "t", "subscription": "s", "life": 1, "first_entry": 0, "last_entry": 0, "redelivery_count": 1}
    closed |= {"cause": "ack", "batch_id": 0}
    for ledger, when in ((7, OLD), (8, OLD), (9, OLD), (10, MARK + 1)):
        put(warehouse.root, CLOSED, closed | {"ledger_id": ledger, "closed_at": at(when)})
    put(warehouse.root, REDELIVERY, _redelivery(0, 0, 1, MARK + 1))
    state = released((8, 0, 0))
    state.handle(Nack(positions((8, 0, 0)), 0), Ack(positions((8, 0, 0))), now=Ms(NOW))
    acknowledges(warehouse.root)
    settled(warehouse.root, state, read={"released": 2})
    assert _round(warehouse)[CLOSED.name].rows == 1
    left = RustTable(warehouse.path(CLOSED)).to_pyarrow_table(columns=["ledger_id"])["ledger_id"].to_pylist()
    assert sorted(left) == [7, 8, 10]


def test_events_go_when_settle_has_read_them_and_they_are_an_hour_old(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clock of a consumer may say anything, or nothing."""
    now = wall_ms()
    for when in (now - 2 * HOUR_MS, now - HOUR_MS // 2, now - 2 * HOUR_MS, None, now + 100 * 24 * HOUR_MS):
        event = {"kind": "ack", "topic": "t", "subscription": "s", "life": 1, "ledger_id": LEDGER}
        put(warehouse.root, CONSUMER_EVENTS, event | {"at": None if when is None else at(when)})
    monkeypatch.setattr(retention, "unread", readers.unread)
    monkeypatch.setattr(layout, "unread", readers.unread)
    acknowledges(warehouse.root)
    settled(warehouse.root, _open(), read={"events": 2, "released": 1})
    assert _round(warehouse)[CONSUMER_EVENTS.name].rows == 1
    settled(warehouse.root, _open(), batch=1, read={"events": 5, "released": 1})
    assert _round(warehouse)[CONSUMER_EVENTS.name].rows == 3


def test_settle_holds_what_it_has_not_read(spark: SparkSession, tmp_path: Path) -> None:
    """The logs of its three sources; nothing while nobody acknowledges."""
    warehouse = Warehouse(str(tmp_path / "held"), spark)
    new_warehouse(warehouse.root)
    followed = (CONSUMER_EVENTS, REDELIVERY, REJECTED_DISPATCH)
    for _ in range(5):
        put(warehouse.root, REDELIVERY, _redelivery(0, 4))
    # Dispatch has no checkpoint, and so holds all.
    assert [unread_from(warehouse, table) for table in followed] == [None, 0, None]
    acknowledges(warehouse.root, policies=Policies(ack=True, ack_after=3))
    assert settled_upto(warehouse) == {"events": -1, "released": 3, "refused": -1, "commands": 0}
    settled(warehouse.root, _open(), read={"events": 4, "released": 5, "refused": 2, "commands": 6})
    assert settled_upto(warehouse) == {"events": 4, "released": 5, "refused": 2, "commands": 6}
    assert unread_from(warehouse, COMMANDS) == 7
    assert [unread_from(warehouse, table) for table in followed] == [5, 0, 3]
    assert unread_from(warehouse, CURSORS) is None


def test_commands_and_what_they_left_out_go_with_the_deliveries_of_their_time(warehouse: Warehouse) -> None:
    """Deliveries tell what became of a command. What may wait yet stays, and so does what was refused otherwise."""
    command = {"kind": "cancel", "command_id": "c", "topic": "t", "subscription": "s", "life": 1, "redelivery_count": 0}
    for ledger, due in ((LEDGER, OLD), (LEDGER, MARK + 1), (LEDGER + 1, OLD)):
        run = {"ledger_id": ledger, "first_entry": due, "last_entry": due}
        put(warehouse.root, COMMANDS, {**command, **run, "due_time": at(due)})
    refused = {"topic": "t", "subscription": "s", "life": 1, "ledger_id": LEDGER, "redelivery_count": 0, "cause": "due"}
    every = (0, "cancelled", OLD), (1, "cancelled", MARK + 1), (2, "message_missing", OLD), (3, "expired", OLD)
    for entry, reason, due in every:
        times = {"due_time": at(due), "rejected_at": at(due), "batch_id": 0}
        put(warehouse.root, REJECTED_DISPATCH, {**refused, **times, "entry_id": entry, "reason": reason})
    keep = Upkeep(retain_ms=HOUR_MS)
    done = {each.table: each for each in maintain(warehouse, keep, wall_ms())}
    assert (done[COMMANDS.name].rows, done[REJECTED_DISPATCH.name].rows) == (0, 0)
    done = _round(warehouse)
    assert {step for each in done.values() for step in each.failed} == set()
    assert (done[COMMANDS.name].rows, done[REJECTED_DISPATCH.name].rows) == (1, 2)
    assert _entries(warehouse, COMMANDS) == [OLD, MARK + 1]
    assert _entries(warehouse, REJECTED_DISPATCH) == [1, 2]


def _moved(entry: int, due: int) -> dict[str, object]:
    """A row of `commands` that gives a message another due time."""
    of = {"topic": "t", "subscription": "s", "life": 1, "ledger_id": LEDGER, "first_entry": entry, "last_entry": entry}
    times = {"due_time": at(due), "deliver_at": at(due), "due_before": at(OLD)}
    return {"kind": "shift", "command_id": "c", "redelivery_count": 0, "round": 1, **of, **times}


def test_what_got_another_due_time_stays_until_that_is_old(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody acknowledges. While it waits `cursors` says so; when it was released, dispatch may have to read it yet.

    Until settle has read that there is such a message, nothing goes.
    """
    put(warehouse.root, COMMANDS, _moved(2, MARK + 5))
    assert _round(warehouse)[MESSAGES.name].rows == 0
    state = Outstanding(1)
    state.handle(Move(positions((LEDGER, 2, 2)), 0, 1, fresh=True), now=Ms(NOW))
    settled(warehouse.root, state, read={"released": 1, "follows": True})
    _round(warehouse)
    assert (_entries(warehouse, MESSAGES), _entries(warehouse, REDELIVERY)) == ([2], [0])
    moved = _redelivery(2, 2, due=MARK + 5) | {"round": 1, "cause": "rescheduled"}
    put(warehouse.root, REDELIVERY, moved)
    settled(warehouse.root, Outstanding(2), batch=1, read={"released": 2, "follows": True}, gone=(0,))
    _round(warehouse)
    assert _entries(warehouse, MESSAGES) == [2]
    monkeypatch.setattr(rounds, "raise_mark", lambda *_: SettledMark(MARK + 5, LEDGER + 1, 11))
    _round(warehouse)
    assert (_entries(warehouse, MESSAGES), _entries(warehouse, REDELIVERY)) == ([], [])


def test_the_mark_waits_for_what_dispatch_left_out_and_settle_has_not_read(warehouse: Warehouse) -> None:
    """It is to come again; what was left out of later times does not matter yet."""
    wanted = SettledMark(MARK, LEDGER + 1, 1)
    settled(warehouse.root, Outstanding(1), read={"refused": 0, "follows": True})
    assert not retention.left_out_unread(warehouse, wanted)
    for due, waits in ((MARK + 1, False), (MARK, True)):
        of = {"topic": "t", "subscription": "s", "life": 1, "ledger_id": LEDGER, "entry_id": 2, "redelivery_count": 0}
        times = {"due_time": at(due), "rejected_at": at(due), "batch_id": 0, "cause": "due"}
        put(warehouse.root, REJECTED_DISPATCH, {**of, **times, "reason": "rescheduled"})
        assert retention.left_out_unread(warehouse, wanted) is waits
    settled(warehouse.root, Outstanding(1), batch=1, read={"refused": 2, "follows": True})
    assert not retention.left_out_unread(warehouse, wanted)


def test_cursors_are_not_merged(warehouse: Warehouse) -> None:
    """Settle replaces their files by what the rows of them come to."""
    acknowledges(warehouse.root)
    for batch in range(3):
        settled(warehouse.root, _open(2), batch=batch, read={"released": 1})
    before = newest(Files(), warehouse.path(CURSORS))
    _round(warehouse)
    assert newest(Files(), warehouse.path(CURSORS)) == before
