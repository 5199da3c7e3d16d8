"""Runs and the positions that are chosen of them, and what is known of the values of what is held."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest

pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from pipeline.dispatch.backlogchange import as_held
from pipeline.dispatch.core.fairness import keys_of, portions, row_of, split_chosen
from pipeline.dispatch.core.holding import Allowance
from pipeline.dispatch.release import taken_apart
from pipeline.dispatch.turns import PORTION, Turns, of_incarnation
from pipeline.storage.arrays import IntArray, arrow_schema
from pipeline.subscriptions.fairness import FairRule
from schemas import REDELIVERY
from state.turns import Turn

Run = tuple[int, int, int, int]
"""Due time in ms, ledger, length, how often it failed; entries are told by the number of the run."""
WHO, NAME, LIVES = ("t", "s", 1), ("t", "s"), {("t", "s"): 1}
RULE = FairRule("tenant")
runs = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(1, 6), st.integers(0, 1)), min_size=1, max_size=8
)


def table(drawn: Iterable[Run], life: int = 1) -> pa.Table:
    """Rows of `redelivery`."""
    same = {"topic": "t", "subscription": "s", "life": life, "tick_ms": 1, "released_at": 0, "cause": "due"}
    rows = [
        {
            **same,
            "batch_id": 7,
            "message_due": 0,
            "due_time": due * 1_000,
            "ledger_id": ledger,
            "first_entry": 100 * number,
            "last_entry": 100 * number + length - 1,
            "redelivery_count": count,
        }
        for number, (due, ledger, length, count) in enumerate(drawn)
    ]
    return pa.Table.from_pylist(rows, schema=arrow_schema(REDELIVERY.columns))


def entries(rows: pa.Table) -> list[tuple[int, int, int, int]]:
    """Due time in ms, ledger, how often it failed, and entry of each position."""
    columns = ("due_time", "ledger_id", "redelivery_count", "first_entry", "last_entry")
    values = (rows.column(name).cast(pa.int64()).to_pylist() for name in columns)
    return sorted(
        (due // 1_000, ledger, count, entry)
        for due, ledger, count, first, last in zip(*values, strict=True)
        for entry in range(first, last + 1)
    )


class Known:
    """Looks values up: an entry is of the tenant whose number it has, of ten."""

    def __init__(self) -> None:
        self.asked = 0

    def of(self, rows: pa.Table, _rule: FairRule) -> tuple[IntArray, IntArray, IntArray]:
        """As `Values.of`."""
        run, entry = taken_apart(rows, 1 << 40)
        self.asked += len(run)
        return run, entry, entry % 10


def ready(turns: Turns, held: pa.Table, rule: FairRule = RULE, *, whole: bool = True) -> bool:
    """Whether all is looked up that is held."""
    return turns.ready(WHO, rule, lambda: held, whole=whole)


def chosen(turns: Turns, count: int) -> list[int]:
    """The entries that come next."""
    served = turns.served({NAME: Allowance(count)}, LIVES)
    return [] if WHO not in served else served[WHO].choice.keys.entry.tolist()


@given(runs, st.integers(0, 8))
def test_portions_are_small_and_have_all_positions_once(drawn: list[Run], most: int) -> None:
    """Long runs are cut."""
    rows, size = table(drawn), most + 1
    found = list(portions(rows, size))
    assert all(1 <= len(entries(each)) <= size for each in found)
    assert entries(pa.concat_tables(found)) == entries(rows)


@given(runs, st.data())
def test_the_chosen_positions_are_parted_from_the_others(drawn: list[Run], data: st.DataObject) -> None:
    """Each is found in the run that it is in; one that is gone is in none."""
    rows = table(drawn)
    run, entry = taken_apart(rows, 1_000)
    keys = keys_of(rows, run, entry, entry)
    assert row_of(rows, keys).tolist() == run.tolist()
    some = np.flatnonzero(data.draw(st.lists(st.booleans(), min_size=len(run), max_size=len(run))))
    taken, stays = split_chosen(rows, keys.at(some))
    every = list(zip(*(each.tolist() for each in (keys.due // 1_000, keys.ledger, keys.round, entry)), strict=True))
    assert entries(taken) == sorted(every[place] for place in some.tolist())
    assert sorted(entries(taken) + entries(stays)) == entries(rows)
    gone = set(row_of(stays, keys.at(some)).tolist())
    assert gone <= {-1}


def test_a_portion_is_looked_up_at_a_time_and_nothing_is_chosen_before_the_last_one() -> None:
    """So nobody else waits for more than one."""
    turns, known = Turns(values := Known()), table([(0, 0, 100, 0)] * 1)
    long = pa.concat_tables(
        [known.set_column(known.column_names.index("last_entry"), "last_entry", pa.array([2 * PORTION], pa.int32()))]
    ).cast(known.schema)
    assert [ready(turns, as_held(long), whole=False) for _ in range(2)] == [False, False]
    assert chosen(turns, 3) == []
    assert ready(turns, as_held(long), whole=False)
    assert (values.asked, chosen(turns, 3)) == (2 * PORTION + 1, [0, 1, 2])


def test_what_is_known_follows_what_a_batch_does() -> None:
    """What it took is gone, what it holds again comes at its turn, and what is new is looked up."""
    turns, held = Turns(values := Known()), as_held(table([(0, 0, 30, 0)]))
    assert ready(turns, held)
    served = turns.served({NAME: Allowance(12)}, LIVES)
    assert sorted(served[WHO].choice.keys.entry.tolist()) == list(range(12))
    assert turns.noted(served) == ((*WHO, 2, 0),)
    taken, _ = split_chosen(held, served[WHO].choice.keys)
    handed, stays, then = served[WHO].within(taken, 5)
    assert sorted(each for *_, each in entries(handed)) == [0, 1, 2, 3, 4]
    new = as_held(table([(1, 5, 1, 0)]))
    turns.done({WHO: then}, as_held(stays), new, ())
    assert turns.noted({}) == ((*WHO, 5, 0),)
    assert chosen(turns, 9) == []
    assert ready(turns, held)
    assert values.asked == 31
    # The new one is due later than others of its tenant.
    assert sorted(chosen(turns, 6)) == [5, 6, 7, 8, 9, 10]
    assert sorted(chosen(turns, 25))[:2] == [5, 6]
    assert len(chosen(turns, 99)) == 26


def test_another_rule_and_what_is_taken_past_the_turns_look_everything_up_again() -> None:
    """Nothing stale is chosen."""
    turns, held = Turns(values := Known(), [[*WHO, 7, 0]]), as_held(table([(0, 0, 20, 0)]))
    none = held.slice(0, 0)
    turns.follow({NAME: RULE}, [WHO])
    assert ready(turns, held)
    assert sorted(chosen(turns, 2)) == [7, 8]
    turns.follow({NAME: FairRule()}, [WHO])
    assert chosen(turns, 2) == []
    assert ready(turns, held, FairRule())
    turns.done({}, none, none, [NAME])
    assert ready(turns, held, FairRule())
    assert values.asked == 60
    turns.follow({NAME: FairRule()}, [])
    assert (turns.names, turns.noted({})) == (set(), ())


def test_what_expired_is_chosen_beyond_the_turns() -> None:
    """Also where nothing else may be taken."""
    turns = Turns(Known())
    assert ready(turns, as_held(table([(1, 0, 4, 0), (5, 0, 4, 0)])))
    allowed = Allowance(0, 1, 9, 1)
    served = turns.served({NAME: allowed}, LIVES)[WHO]
    assert (sorted(served.choice.keys.entry.tolist()), served.then) == ([0, 1, 2, 3], Turn())
    assert turns.served({NAME: Allowance(0)}, LIVES) == turns.served({("t", "other"): Allowance(9)}, LIVES) == {}
    assert turns.served({NAME: Allowance(9)}, {NAME: 2}) == {}


def test_runs_of_another_life_are_not_those_of_this_one() -> None:
    """They may be in one file."""
    both = pa.concat_tables([table([(0, 0, 3, 0)]), table([(0, 1, 2, 0)], life=2)])
    assert entries(of_incarnation(both, WHO)) == [(0, 0, 0, each) for each in range(3)]
