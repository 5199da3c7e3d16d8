"""What rows of `commands` withdraw, and which runs dispatch leaves out, against plain sets."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark", reason="columns are described by Spark's types")

from pipeline.client.commanding import commands
from pipeline.client.commanding.commands import rows_of
from pipeline.client.commanding.inforce import Chosen
from pipeline.dispatch.core.withdrawn import Withdrawn
from pipeline.storage.arrays import arrow_schema
from pipeline.subscriptions.commands import READ, withdrawals, wrong
from schemas import COMMANDS, REDELIVERY
from state.positionset import PositionSet
from state.withdrawals import Parts, Round

RUN = st.fixed_dictionaries(
    {
        "subscription": st.sampled_from("sz"),
        "life": st.integers(1, 2),
        "redelivery_count": st.integers(0, 1),
        "ledger_id": st.integers(3, 4),
        "first_entry": st.integers(0, 12),
        "length": st.integers(1, 6),
    }
)
COMMAND = st.tuples(st.sampled_from(["cancel", "undo"]), st.sampled_from("ab"), RUN)
MOVE = st.tuples(st.sampled_from(["shift", "undo"]), st.sampled_from("cd"), RUN, st.integers(1, 3))
DUE = datetime(2026, 12, 24, tzinfo=UTC)
Place = tuple[str, int, int, int, int]
NOBODY = arrow_schema(COMMANDS.columns).empty_table()


def table(rows: list[dict[str, Any]]) -> pa.Table:
    """Rows of `commands`."""
    return pa.Table.from_pylist(rows, schema=arrow_schema(COMMANDS.columns)).select(READ)


def row(kind: str, command: str, run: dict[str, Any]) -> dict[str, Any]:
    """A row of `commands`; an undo has an id of its own."""
    ids = {"command_id": command} if kind == "cancel" else {"command_id": f"undo {command}", "undoes": command}
    return {
        "kind": kind,
        "topic": "t",
        "due_time": DUE,
        **ids,
        **run,
        "last_entry": run["first_entry"] + run["length"] - 1,
    }


def places(run: dict[str, Any]) -> set[Place]:
    """Each position of a run, with its round."""
    of = (run["subscription"], run["life"], run["redelivery_count"], run["ledger_id"])
    return {(*of, entry) for entry in range(run["first_entry"], run["first_entry"] + run["length"])}


def in_model(commanded: list[tuple[str, str, dict[str, Any]]]) -> set[Place]:
    """What is in force, by sets."""
    named: dict[tuple[str, str], set[Place]] = {}
    for kind, command, run in commanded:
        named.setdefault((kind, command), set()).update(places(run))
    return set().union(*(named.get(("cancel", each), set()) - named.get(("undo", each), set()) for each in "ab"))


def of_parts(parts: Parts) -> set[Place]:
    """Parts, by sets."""
    return {
        (of.subscription, of.life, of.redelivery_count, ledger, entry)
        for of, positions in parts.items()
        for ledger, entries in positions.by_ledger()
        for entry in entries
    }


@given(st.lists(COMMAND, max_size=12), st.randoms(use_true_random=False))
def test_rows_in_any_order_and_twice_withdraw_the_same(commanded: list[Any], chance: Any) -> None:  # noqa: ANN401 - Random
    """A union of cancels, each less its own undos; the files of a table have no order."""
    rows = [row(*each) for each in commanded]
    found = withdrawals(table(rows)).in_force()
    assert of_parts(found) == in_model(commanded)
    chance.shuffle(rows)
    assert withdrawals(table(rows + rows[:3])).in_force() == found


@given(st.lists(COMMAND, max_size=8), st.lists(MOVE, max_size=5), st.lists(RUN, min_size=1, max_size=10), st.data())
def test_runs_are_parted_position_by_position(
    commanded: list[Any], moves: list[Any], runs: list[dict[str, Any]], data: st.DataObject
) -> None:
    """What is withdrawn and what is not make up what was there, and each run keeps its other columns.

    A round that is not the last one that a command made is left out as such, be it cancelled or not.
    """
    moved = [row(kind, command, run) | {"round": run["redelivery_count"] + g} for kind, command, run, g in moves]
    rows = [row(*each) for each in commanded] + [each | {"deliver_at": DUE} for each in moved]
    seen = data.draw(st.integers(0, len(rows)), label="rows that were seen before")
    said = withdrawals(table(rows[:seen]))
    said.follow(withdrawals(table(rows[seen:])))
    asked = in_model(commanded)
    last: dict[Place, int] = {}
    for each, (*_, run, _) in zip(moved, moves, strict=True):
        last |= {place: max(last.get(place, 0), each["round"]) for place in places(run)}
    more = [data.draw(st.none() | st.integers(1, 4), label="round") for _ in runs]
    given_rows = [
        {"topic": "t", "batch_id": number, **run, "last_entry": run["first_entry"] + run["length"] - 1, "round": other}
        for number, (run, other) in enumerate(zip(runs, more, strict=True))
    ]
    released = pa.Table.from_pylist(given_rows, schema=arrow_schema(REDELIVERY.columns))
    wanted: dict[str | None, list[tuple[int, Place]]] = {None: [], "cancelled": [], "rescheduled": []}
    for number, (run, other) in enumerate(zip(runs, more, strict=True)):
        own = run["redelivery_count"] if other is None else other
        for place in places(run):
            reason = "rescheduled" if own < last.get(place, 0) else "cancelled" if place in asked else None
            wanted[reason].append((number, place))
    left, gone = Withdrawn(0, said.left_out()).split_withdrawn(released)
    assert left.schema.equals(released.schema)
    found: dict[str | None, list[tuple[int, Place]]] = {reason: [] for reason in wanted}
    for each in (*left.to_pylist(), *gone.to_pylist()):
        of = places({**each, "length": each["last_entry"] - each["first_entry"] + 1})
        found[each.get("reason")] += [(each["batch_id"], place) for place in of]
    assert {reason: sorted(each) for reason, each in found.items()} == {r: sorted(each) for r, each in wanted.items()}


def chosen(of: Round, positions: PositionSet) -> Chosen:
    """The positions as a command names them, all due at one time."""
    return Chosen.of_runs(of, [(0, positions.positions().due_at(1_000))])


@given(st.lists(COMMAND, max_size=6), st.integers(1, 4))
def test_rows_that_are_written_say_what_they_were_made_of(commanded: list[Any], most: int) -> None:
    """Also when long runs are cut into pieces."""
    parts = withdrawals(table([row(*each) for each in commanded])).in_force()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(commands, "MAX_RUN", most)
        more = {"kind": "cancel", "command_id": "c", "asked": "true"}
        rows = pa.concat_tables([NOBODY, *(rows_of(chosen(of, each), None, more) for of, each in parts.items())])
        assert wrong(rows).null_count == rows.num_rows
        assert withdrawals(rows).in_force() == parts
        assert all(each["last_entry"] - each["first_entry"] < most for each in rows.to_pylist())


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"kind": "forget"}, "unknown_kind"),
        ({"kind": None}, "unknown_kind"),
        ({"command_id": None}, "no_name"),
        ({"topic": None}, "no_name"),
        ({"subscription": None}, "no_name"),
        ({"kind": "undo"}, "no_name"),
        ({"due_time": None}, "no_due_time"),
        ({"ledger_id": None}, "bad_position"),
        ({"first_entry": 3, "last_entry": 2}, "bad_position"),
        ({"first_entry": -1}, "bad_position"),
        ({"last_entry": 1 << 62}, "bad_position"),
        ({"last_entry": 1 << 21}, "bad_position"),
        ({"life": None}, "bad_round"),
        ({"redelivery_count": None}, "bad_round"),
        ({"redelivery_count": 1 << 40}, "bad_round"),
        ({"kind": "shift"}, "bad_round"),
        ({"kind": "shift", "round": 0, "deliver_at": DUE}, "bad_round"),
        ({"kind": "shift", "round": 1}, "no_deliver_at"),
        ({"kind": "undo", "undoes": "c", "round": 1}, "no_deliver_at"),
        ({"kind": "release", "round": 1 << 31, "deliver_at": DUE}, "bad_round"),
    ],
)
def test_a_row_that_cannot_be_followed_changes_nothing(change: dict[str, Any], reason: str) -> None:
    """Anybody may append to the table, and dispatch reads it on its way."""
    run = {"subscription": "s", "life": 1, "redelivery_count": 0, "ledger_id": 1, "first_entry": 0, "length": 2}
    good, bad = row("cancel", "a", run), {**row("cancel", "b", {**run, "ledger_id": 9}), **change}
    assert wrong(table([good, bad])).to_pylist() == [None, reason]
    assert withdrawals(table([good, bad])).in_force() == withdrawals(table([good])).in_force()
