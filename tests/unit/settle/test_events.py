"""What consumers say, as the core of settle reads it; and what a batch writes of what is open."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import product
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="settle has modules of Spark beside it")

from pipeline.settle.core.events import (
    EVENT,
    RELEASED,
    ConsumerEvents,
    consumer_events,
    only_released,
    refused_by,
    released_by,
)
from pipeline.settle.core.listener import Listener
from pipeline.settle.core.opened import CursorState
from pipeline.storage.arrays import arrow_schema
from pipeline.subscriptions.incarnations import Name
from pipeline.subscriptions.policies import Policies
from schemas import CURSOR_HEAD, CURSOR_LEASES, REDELIVERY, REJECTED_DISPATCH
from state import Ack, LeaseKind, LeaseRow, Nack
from state.buckets import MAX_TIME
from state.positions import Positions
from state.retry import MAX_ROUND
from state.runs import MAX_ENTRY, MAX_LEDGER
from state.settling import Released
from state.units import EPOCH

NAME = ("t", "s")
LISTENER = Listener(NAME, 2, 1, 4, Policies(ack=True))
SOUND: dict[str, Any] = {
    "topic": "t",
    "subscription": "s",
    "kind": "ack",
    "life": 2,
    "ledger_id": 7,
    "first_entry": 3,
    "last_entry": 5,
    "redelivery_count": 0,
}


def said(*rows: dict[str, Any]) -> ConsumerEvents:
    """What settle reads of rows."""
    return consumer_events(pa.Table.from_pylist([SOUND | row for row in rows], schema=EVENT), {NAME: LISTENER})


def reasons(found: ConsumerEvents) -> list[str]:
    """Why rows were refused."""
    return [reason for each in found.refused for reason in each.column("reason").to_pylist()]


EDGES: dict[str, dict[Any, bool]] = {
    "ledger_id": {None: False, -1: False, 0: True, MAX_LEDGER: True, MAX_LEDGER + 1: False},
    "first_entry": {None: False, -1: False, 0: True, 5: True, 6: False},
    "last_entry": {None: False, 2: False, 3: True, MAX_ENTRY: True, MAX_ENTRY + 1: False},
}
"""Which values of the columns that name a position are sound beside the others of `SOUND`."""


@pytest.mark.parametrize("kind", ["ack", "nack"])
@pytest.mark.parametrize("column", sorted(EDGES))
def test_a_position_is_taken_up_to_its_bounds(column: str, kind: str) -> None:
    """A row with one that is none is refused, and the row beside it has its effect."""
    for value, sound in EDGES[column].items():
        found = said({"kind": kind, column: value}, {"kind": kind, "ledger_id": 1})
        assert reasons(found) == ([] if sound else ["bad_position"]), (column, value)
        assert (1, 3, 5) in [run for each in found.events[NAME] for run in each.positions.runs()]


@pytest.mark.parametrize(
    ("column", "value", "reason"),
    [
        ("life", 1, "other_incarnation"),
        ("life", None, "other_incarnation"),
        ("redelivery_count", -1, "bad_redelivery_count"),
        ("redelivery_count", None, "bad_redelivery_count"),
        ("redelivery_count", MAX_ROUND + 1, "bad_redelivery_count"),
        ("after_ms", -1, "bad_after_ms"),
        ("after_ms", MAX_TIME + 1, "bad_after_ms"),
        ("kind", "forget", "unknown_kind"),
        ("kind", None, "unknown_kind"),
    ],
)
def test_each_rule_about_what_a_consumer_says_has_its_reason(column: str, value: Any, reason: str) -> None:  # noqa: ANN401
    """What only a failure says is nothing to an acknowledgement."""
    found = said({"kind": "nack", column: value})
    assert (reasons(found), found.events[NAME]) == ([reason], [])
    if column in ("redelivery_count", "after_ms"):
        assert reasons(said({"kind": "ack", column: value})) == []


@pytest.mark.parametrize("count", [0, MAX_ROUND])
@pytest.mark.parametrize("after", [None, 0, MAX_TIME])
@pytest.mark.parametrize("cause", [None, "nack", "ack_timeout", "owner_lost", "somebody's"])
def test_a_failure_says_its_count_its_delay_and_its_cause(count: int, after: int | None, cause: str | None) -> None:
    """At the bounds of each; a cause that nobody knows counts as a nack."""
    found = said({"kind": "nack", "redelivery_count": count, "after_ms": after, "cause": cause})
    (event,) = found.events[NAME]
    known = cause if cause in ("ack_timeout", "owner_lost") else "nack"
    assert isinstance(event, Nack)
    assert (event.redelivery_count, event.after_ms, event.reason) == (count, after, known)
    assert list(event.positions.runs()) == [(7, 3, 5)]


def test_neighbours_that_say_the_same_are_one_event_and_others_are_not() -> None:
    """In the order of the log."""
    kinds: list[dict[str, Any]] = [
        {"kind": "ack"},
        {"kind": "nack"},
        {"kind": "nack", "after_ms": 5},
        {"kind": "nack", "redelivery_count": 1},
    ]
    for one, other in product(kinds, kinds):
        found = said(one, other)
        assert len(found.events[NAME]) == (1 if one == other else 2), (one, other)
    # Of an acknowledgement neither a delay nor a cause makes another event, but its count does.
    same = said({"ledger_id": 1, "after_ms": 5}, {"ledger_id": 2, "cause": "ack_timeout"})
    (event,) = same.events[NAME]
    assert isinstance(event, Ack)
    assert (list(event.positions.runs()), event.redelivery_count) == ([(1, 3, 5), (2, 3, 5)], 0)
    assert len(said({"ledger_id": 1}, {"ledger_id": 2, "redelivery_count": 1}).events[NAME]) == 2


def test_rows_about_leases_are_read_of_the_present_life_alone() -> None:
    """Of nobody else anybody is told: they are void."""
    row: dict[str, Any] = {"kind": "claim", "consumer": "c", "session": 1, "counter": 2, "slot": 3}
    found = said(row, {**row, "life": 1}, {**row, "life": None})
    assert [(each.consumer, each.session, each.counter, each.slot) for each in found.leases[NAME]] == [("c", 1, 2, 3)]
    assert (found.events[NAME], reasons(found)) == ([], [])


def test_rows_of_nobody_and_of_who_does_not_acknowledge_are_refused() -> None:
    """The subscription beside them is not."""
    found = said({}, {"subscription": "other"}, {"topic": None})
    assert sorted(reasons(found)) == ["not_acknowledging", "not_acknowledging"]
    assert len(found.events[NAME]) == 1
    assert found.rows == 3


RELEASE = {"topic": "t", "subscription": "s", "life": 2, "ledger_id": 7, "first_entry": 3, "last_entry": 5}
RELEASES = pa.schema([arrow_schema(REDELIVERY.columns).field(each) for each in RELEASED])
OTHERS: tuple[dict[str, Any], ...] = ({"life": 1}, {"subscription": "other"}, {"topic": "u"}, {"topic": None})


def runs_of(events: Iterable[tuple[Name, Any]]) -> list[tuple[Name, str, int | None, list[tuple[int, int, int]]]]:
    """Whose, what, in which round, and where."""
    return [(n, type(e).__name__, getattr(e, "round", None), list(e.positions.runs())) for n, e in events]


def test_what_is_released_counts_for_the_present_life_round_by_round() -> None:
    """A row without a round is of that of its count."""
    more: list[dict[str, Any]] = [
        {"redelivery_count": 0},
        {"redelivery_count": 1, "ledger_id": 8},
        {"redelivery_count": 0, "round": 4, "ledger_id": 9},
        *({"redelivery_count": 0} | each for each in OTHERS),
    ]
    rows = pa.Table.from_pylist([RELEASE | each for each in more], RELEASES)
    assert runs_of(released_by(rows, 12, {NAME: LISTENER})) == [
        (NAME, "Released", 0, [(7, 3, 5)]),
        (NAME, "Released", 1, [(8, 3, 5)]),
        (NAME, "Released", 4, [(9, 3, 5)]),
    ]


def test_what_dispatch_refused_is_taken_by_its_reason_and_what_it_left_for_later_by_its_round() -> None:
    """Rows of other lives do not count; those of earlier versions of this project name none, and do."""
    row = {"topic": "t", "subscription": "s", "life": 2, "ledger_id": 7, "redelivery_count": 0, "round": None}
    more: list[dict[str, Any]] = [
        {"reason": "cancelled", "entry_id": 1},
        {"reason": "message_missing", "entry_id": 2, "life": None},
        {"reason": "rescheduled", "entry_id": 3, "round": 2},
        {"reason": "rescheduled", "entry_id": 4, "round": 1},
        {"reason": "rescheduled", "entry_id": 5, "redelivery_count": 2},
        *({"reason": "cancelled", "entry_id": 9} | each for each in OTHERS),
    ]
    schema = arrow_schema(REJECTED_DISPATCH.columns)
    rows = pa.Table.from_pylist([row | each for each in more], schema)
    found = list(refused_by(rows, {NAME: LISTENER}))
    assert runs_of(found) == [
        (NAME, "Cancel", None, [(7, 1, 1)]),
        (NAME, "Undeliverable", None, [(7, 2, 2)]),
        (NAME, "LeftOut", 1, [(7, 4, 4)]),
        (NAME, "LeftOut", 2, [(7, 3, 3), (7, 5, 5)]),
    ]
    assert list(refused_by(rows.slice(0, 0), {NAME: LISTENER})) == []
    # Of who is new only that counts of which the release is among the others, in its round.
    released = [Released(Positions.of([7], [1], [3]), 2, 1), Released(Positions.of([7], [4], [4]), 0, 2)]
    assert runs_of(only_released(found, {NAME: released})) == [
        (NAME, "Cancel", None, [(7, 1, 1)]),
        (NAME, "Undeliverable", None, [(7, 2, 2)]),
        (NAME, "LeftOut", 2, [(7, 3, 3)]),
    ]


def blocks(state: CursorState) -> set[int]:
    """What a batch would write of a subscription."""
    return {row["block"] for row in state.changed_rows()}


def test_a_batch_writes_what_has_changed_of_a_subscription_and_nothing_else() -> None:
    """All of a new one; then what is open when that changed, and leases when they did."""
    state = CursorState.begun(LISTENER, 0)
    assert {CURSOR_HEAD, CURSOR_LEASES} <= blocks(state)
    state.saved()
    assert blocks(state) == set()
    state.handle([Released(Positions.of([7], [3], [5]), 0, 1)], [], EPOCH)
    assert CURSOR_HEAD in blocks(state)
    assert CURSOR_LEASES not in blocks(state)
    state.saved()
    state.handle([], [LeaseRow(LeaseKind.RENEW, "c", 1, 1, None, 0, 0, 10_000)], EPOCH)
    assert blocks(state) == {CURSOR_LEASES}
    state.saved()
    assert blocks(state) == set()


def test_of_who_does_not_acknowledge_no_leases_are_written() -> None:
    """Only what got another due time is kept of it."""
    mute = replace(LISTENER, policies=Policies())
    assert blocks(CursorState.begun(mute, 0)) == {CURSOR_HEAD}
    assert {row["block"] for row in CursorState.begun(mute, 0).all_rows()} == {CURSOR_HEAD}
    assert {row["block"] for row in CursorState.begun(LISTENER, 0).all_rows()} == {CURSOR_HEAD, CURSOR_LEASES}
