"""Which runs are taken, and which are held: against a plain list of positions."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from pipeline.dispatch.core import expiry
from pipeline.dispatch.core.holding import (
    EVERYTHING,
    Allowance,
    Share,
    Who,
    counted,
    rows_except,
    rows_of_subscriptions,
    split_by_allowance,
)
from pipeline.dispatch.core.shaping import Pacing, allowances, is_open
from pipeline.storage.arrays import arrow_schema
from pipeline.subscriptions.lines import Topics
from pipeline.subscriptions.policies import Policies
from pipeline.subscriptions.rates import QUANTUM_MS
from pipeline.subscriptions.topicpolicies import TopicPolicies
from schemas import REDELIVERY
from state.units import EPOCH, Ms

NAMES = [("t", "s"), ("t", "other"), ("u", "s")]
Run = tuple[int, int, int, int, int]
"""Number of the name, due time in ms, ledger, first entry (more with each run, so that none is in two), length."""
runs = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(0, 2), st.integers(0, 40), st.integers(1, 6)),
    max_size=12,
)
most = st.lists(
    st.tuples(
        st.sampled_from((0, 1, 3, 10, EVERYTHING)),
        st.sampled_from((1, EVERYTHING)),
        st.sampled_from((0, 2, EVERYTHING)),
        st.sampled_from((-EVERYTHING, 0, 1)),
    ),
    min_size=3,
    max_size=3,
)


def table(runs: list[Run]) -> pa.Table:
    """Rows of `redelivery`."""
    same = {
        "life": 1,
        "message_due": 0,
        "tick_ms": 1,
        "released_at": 0,
        "redelivery_count": 0,
        "cause": "due",
        "batch_id": 7,
    }
    rows = [
        {
            **same,
            "topic": NAMES[number][0],
            "subscription": NAMES[number][1],
            "due_time": due * 1_000,
            "ledger_id": ledger,
            "first_entry": first,
            "last_entry": first + length - 1,
        }
        for place, (number, due, ledger, offset, length) in enumerate(runs)
        for first in [offset + 100 * place]
    ]
    return pa.Table.from_pylist(rows, schema=arrow_schema(REDELIVERY.columns))


def positions(rows: pa.Table) -> list[tuple[str, str, int, int, int]]:
    """Topic, subscription, due time in ms, ledger and entry of each position."""
    names = ("topic", "subscription", "ledger_id", "first_entry", "last_entry")
    due = rows.column("due_time").cast(pa.int64()).to_pylist()
    columns = zip(*(rows.column(name).to_pylist() for name in names), due, strict=True)
    return [(t, s, d // 1_000, ledger, e) for t, s, ledger, first, last, d in columns for e in range(first, last + 1)]


@given(runs, most)
def test_the_first_positions_of_each_subscription_are_taken_and_the_others_stay(
    drawn: list[Run], allowed: list[tuple[int, int, int, int]]
) -> None:
    """In the order of due time and position, whatever runs they are in; none is lost and none is doubled.

    What has expired is taken beyond what is allowed.
    """
    rows = table(drawn)
    limits = {name: Allowance(*each) for name, each in zip(NAMES, allowed, strict=True)}
    taken, stays = split_by_allowance(rows, limits)
    every = positions(rows)
    assert sorted(positions(taken) + positions(stays)) == sorted(every)
    for name, limit in limits.items():
        own = sorted(each[2:] for each in every if each[:2] == name and each[2] <= limit.due_until)
        more = min(limit.expired, sum(due <= limit.expired_until for due, *_ in own))
        assert sorted(each[2:] for each in positions(taken) if each[:2] == name) == own[: limit.positions + more]
    for each in (taken, stays):
        assert [due for _, _, due, _, _ in positions(each)] == sorted(due for _, _, due, _, _ in positions(each))


def test_runs_are_counted_by_incarnation_and_told_apart_by_name() -> None:
    """How much, and from when until when it was due."""
    rows = table([(0, 2, 5, 10, 3), (0, 1, 6, 0, 1), (2, 3, 5, 0, 2)])
    assert counted(rows) == {("t", "s", 1): Share(4, 1, 2), ("u", "s", 1): Share(2, 3, 3)}
    numbers = rows_of_subscriptions(rows, {("t", "s"): None})
    assert numbers.tolist() == [0, 1]
    assert positions(rows_except(rows, numbers)) == [("u", "s", 3, 5, 200), ("u", "s", 3, 5, 201)]
    assert counted(rows.slice(0, 0)) == {}
    assert (
        rows_of_subscriptions(rows, {}).tolist()
        == rows_of_subscriptions(rows.slice(0, 0), {("t", "s"): None}).tolist()
        == []
    )


def test_who_is_paused_gets_nothing_and_the_others_share_what_may_be_taken() -> None:
    """What is held of a life that is over makes a batch, which lets it go."""
    paused, held = {("t", "s"): Policies(paused=True)}, Share(5, 0, 9)
    waiting = {("t", "s", 1): held, ("t", "other", 2): held, ("u", "s", 1): held, ("u", "gone", 1): held}
    lives = {("t", "s"): 1, ("t", "other"): 2, ("u", "s"): 1, ("t", "new"): 1}
    pacing = Pacing()
    found = allowances(paused, waiting, lives, 10, pacing, EPOCH)
    assert found == {
        ("t", "s"): Allowance(0),
        ("t", "other"): Allowance(5),
        ("u", "s"): Allowance(5),
        ("u", "gone"): Allowance(0),
    }
    assert is_open(paused, waiting, pacing, EPOCH)
    assert not is_open(paused, {("t", "s", 1): held}, pacing, EPOCH)
    assert allowances({}, {}, lives, 10, pacing, EPOCH) == {}


def taken(pacing: Pacing, rate: int, now: int, first_due: int = 0) -> int:
    """What is taken of a subscription of which much is held, when the clock looks."""
    shapings, waiting = {("t", "s"): Policies(max_rate=rate)}, {("t", "s", 1): Share(1 << 40, first_due, 1 << 40)}
    pacing.follow(shapings, waiting, Ms(now))
    if not is_open(shapings, waiting, pacing, Ms(now)):
        return 0
    most = allowances(shapings, waiting, {("t", "s"): 1}, 10, pacing, Ms(now))["t", "s"]
    assert most.due_until == now
    assert most.positions > most.handed > 0
    pacing.took({("t", "s"): (most.handed, rate)}, Ms(now))
    return most.handed


@pytest.mark.parametrize("rate", [1, 3, 7, 10_000])
def test_a_rate_is_kept_and_used_whenever_the_clock_looks(rate: int) -> None:
    """Over any time no more than the rate comes, and nothing of it is lost; a start begins with nothing."""
    pacing, begin = Pacing(), 1_000_000
    came = [(now, taken(pacing, rate, now)) for now in range(begin, begin + 60_000, 130)]
    assert came[0] == (begin, 0)
    for until in range(begin + 1_000, begin + 60_000, 1_000):
        total, most = sum(count for now, count in came if now <= until), rate * (until - begin) // 1_000
        assert most - rate - 1 <= total <= most
    assert [taken(Pacing(), rate, now) for now in (begin, begin + 50)] == [0, 0]


def test_a_rate_makes_no_more_batches_than_one_each_half_second() -> None:
    """However often the clock looks, and however fast the rate is."""
    pacing = Pacing()
    came = [now for now in range(0, 10_000, 40) if taken(pacing, 10_000, now)]
    assert len(came) <= 10_000 // QUANTUM_MS
    assert min(later - now for now, later in pairwise(came)) >= QUANTUM_MS


def test_what_two_files_have_of_an_incarnation_is_put_together() -> None:
    """In either order."""
    one, other = Share(3, 1_000, 5_000), Share(2, 2_000, 4_000)
    assert one | other == other | one == Share(5, 1_000, 5_000)


def test_the_time_of_a_rate_is_not_saved_while_nothing_is_due() -> None:
    """What is due after an hour of quiet comes no faster. Steps of a virtual clock are of any length."""
    pacing = Pacing()
    assert [taken(pacing, 10, now) for now in (10_000, 10_001, 11_000, 14_000, 14_001)] == [0, 0, 10, 30, 0]
    assert taken(pacing, 10, 20_000, first_due=20_001) == 0
    assert [taken(pacing, 10, now, first_due=3_600_000) for now in (3_600_000, 3_601_000)] == [0, 10]


def test_a_rest_with_nothing_held_saves_no_time_of_a_rate_and_a_standstill_little() -> None:
    """A thousand messages that were due at once after an hour of rest came at once."""
    pacing, shapings = Pacing(5_000), {("t", "s"): Policies(max_rate=10)}
    assert [taken(pacing, 10, now) for now in (10_000, 11_000)] == [0, 10]
    pacing.follow(shapings, {}, Ms(11_500))
    assert [taken(pacing, 10, now) for now in (3_600_000, 3_600_500, 3_601_000)] == [0, 5, 5]
    assert [taken(pacing, 10, now) for now in (7_200_000, 7_200_500)] == [50, 5]
    assert [taken(Pacing(5_000), 1, now) for now in (0, 999)] == [0, 0]
    # Who has used more than its time, which a batch that is repeated may, does not begin anew.
    pacing.took({("t", "s"): (30, 10)}, Ms(7_201_000))
    pacing.follow(shapings, {}, Ms(7_201_500))
    assert [taken(pacing, 10, now) for now in (7_202_000, 7_203_500, 7_204_000)] == [0, 0, 5]


@pytest.mark.parametrize("failing", [False, True])
def test_the_time_of_a_rate_is_not_saved_while_nothing_may_come(*, failing: bool) -> None:
    """After a pause, or while a guard could not be asked, what is held comes at the rate."""
    pacing, name, waiting = Pacing(), ("t", "s"), {("t", "s", 1): Share(1 << 40, 0, 1 << 40)}
    assert [taken(pacing, 10, now) for now in (10_000, 11_000)] == [0, 10]
    stands = Policies(max_rate=10) if failing else Policies(max_rate=10, paused=True)
    pacing.follow({name: stands}, waiting, Ms(12_000), {name} if failing else ())
    assert not is_open({name: stands}, waiting, pacing, Ms(12_000), failing={name} if failing else ())
    assert [taken(pacing, 10, now) for now in (3_600_000, 3_601_000)] == [0, 10]


def test_what_has_expired_is_taken_beyond_what_is_allowed_and_makes_a_batch_after_a_while() -> None:
    """Also while the subscription is paused, and whatever its rate; of the others nothing expires."""
    shapings = {
        ("t", "s"): Policies(paused=True, ttl_ms=5_000),
        ("t", "other"): Policies(max_rate=1, ttl_ms=5_000),
        ("u", "s"): Policies(paused=True),
    }
    waiting = {(*name, 1): Share(5, 1_000, 90_000) for name in NAMES}
    found = allowances(shapings, waiting, dict.fromkeys(NAMES, 1), 10, Pacing(), Ms(60_000))
    assert found == {
        ("t", "s"): Allowance(0, 54_999, 10, 54_999),
        ("t", "other"): Allowance(0, 54_999, 10, 54_999),
        ("u", "s"): Allowance(0),
    }
    held = {who: share for who, share in waiting.items() if who[:2] != ("t", "other")}
    assert [is_open(shapings, held, Pacing(), Ms(now)) for now in (15_000, 16_000, 16_001)] == [False, False, True]


def failed(entries: int, **more: object) -> pa.Table:
    """A run of a message that failed once and comes again at 100 s."""
    row = table([(0, 100_000, 5, 0, entries)]).to_pylist()[0]
    return pa.Table.from_pylist([{**row, "redelivery_count": 1, **more}], schema=arrow_schema(REDELIVERY.columns))


def test_what_failed_expires_by_the_due_time_of_its_message_and_what_was_moved_by_its_own() -> None:
    """The rows say the reason; other subscriptions are not asked for."""
    old = {"run": [0, 0], "entry_id": [0, 2], "due_time": [49_000_000, 50_001_000]}
    until = {NAMES[0]: 50_000}
    left, gone = expiry.split_expired(failed(4), until, lambda _: [pa.table(old)])
    assert [each[4] for each in positions(left)] == [1, 2, 3]
    assert [each[4] for each in positions(gone)] == [0]
    assert gone.column("reason").to_pylist() == ["expired"]
    for runs in (failed(4, round=3), failed(4, subscription="other"), table([(0, 50_001, 5, 0, 4)])):
        left, gone = expiry.split_expired(runs, until, lambda _: pytest.fail("nobody asks for messages"))
        assert (positions(left), gone.num_rows) == (positions(runs), 0)
    left, gone = expiry.split_expired(
        table([(0, 50_000, 5, 0, 4), (1, 50_000, 5, 0, 4)]), until, lambda _: pytest.fail("no")
    )
    assert {each[1] for each in positions(left)} == {"other"}
    assert {each[1] for each in positions(gone)} == {"s"}


def test_what_failed_expires_by_its_own_due_time_where_the_topic_has_a_window() -> None:
    """It may have waited for an opening for longer than it lives; the message is not asked for."""
    topics = Topics({"t": TopicPolicies(window="08:00-20:00"), "u": TopicPolicies(ttl_ms=1_000)})
    asked = list[str]()

    def look_up(runs: pa.Table) -> list[pa.Table]:
        asked.extend(runs.column("topic").to_pylist())
        return []

    runs = pa.concat_tables([failed(4), failed(4, topic="u")])
    for until, names in ((50_000, {"t", "u"}), (100_000, set())):
        left, _ = expiry.split_expired(runs, dict.fromkeys(NAMES, until), look_up, topics)
        assert set(left.column("topic").to_pylist()) == names
    assert set(asked) == {"u"}


def test_what_is_guarded_is_taken_shortly_before_it_is_due_unless_its_guard_fails() -> None:
    """Also what is new; a pause and a rate count as ever. A batch is due when half of the time ahead is left."""
    name, held = NAMES[0], {(*NAMES[0], 1): Share(5, 10_000, 90_000)}
    guarded, rated = {name: Policies(guard="true")}, {name: Policies(guard="true", max_rate=5)}
    paused = {name: Policies(guard="true", paused=True)}

    def allowed(shapings: dict[tuple[str, str], Policies], waiting: dict[Who, Share], **more: Any) -> Allowance:  # noqa: ANN401
        return allowances(shapings, waiting, {name: 1}, 10, Pacing(), Ms(9_000), 2_000, **more)[name]

    for waiting in (held, {}):
        assert allowed(guarded, waiting) == Allowance(10, 11_000)
        assert allowed(guarded, waiting, failing={name}).is_nothing
        assert allowed(paused, waiting).is_nothing
        assert allowed(rated, waiting) == Allowance(0, 9_000)
    times = [(now, is_open(guarded, held, Pacing(), Ms(now), 2_000)) for now in (8_999, 9_000)]
    assert times == [(8_999, False), (9_000, True)]
    assert [is_open(guarded, held, Pacing(), Ms(now)) for now in (9_999, 10_000)] == [False, True]
    assert not is_open(guarded, held, Pacing(), Ms(20_000), 2_000, {name})
    assert not is_open(paused, held, Pacing(), Ms(20_000), 2_000)
    assert Allowance(3, 5, 7, 4).only_expired == Allowance(0, 4, 7, 4)
