"""Guards: what a condition sees, what meets it, what it says of each position, and what happens when it fails."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

pytest.importorskip("deltalake", reason="guards need requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

import pyarrow as pa
from deltalake import write_deltalake

from pipeline.config.errors import BadValue
from pipeline.dispatch.asking import Failed
from pipeline.dispatch.core.suspects import RESTS
from pipeline.dispatch.guarding import AGAIN_MS, Guards
from pipeline.dispatch.release import LOOKED_UP
from pipeline.dispatch.searching import SEARCH_MS
from pipeline.storage.arrays import IntArray, arrow_schema, longs
from pipeline.storage.files import Files
from pipeline.subscriptions.guards import NUMBER, SEEN, Guard, GuardFailed, GuardStates, Starting, opened, seen, text_of
from pipeline.subscriptions.policies import Policies
from schemas import MESSAGES, REDELIVERY
from state.units import Ms

S, OTHER, FREE = ("t", "s"), ("t", "other"), ("t", "free")
UNPAID = "NOT EXISTS (SELECT 1 FROM paid p WHERE p.order_id = message_key)"
DUE = 1_700_000_000_000


@pytest.fixture
def paid(tmp_path: Path) -> str:
    """A table of others: orders 1 and 3 are paid."""
    path = str(tmp_path / "paid")
    pay(path, "o-1", "o-3")
    return path


def pay(path: str, *orders: str) -> None:
    """These are paid, too."""
    write_deltalake(path, pa.table({"order_id": pa.array(orders)}), mode="append")


def runs(*places: tuple[str, int, int]) -> pa.Table:
    """Subscription, first and last entry of each run."""
    same = {"topic": "t", "life": 1, "ledger_id": 7, "tick_ms": 1, "redelivery_count": 0, "cause": "due", "batch_id": 1}
    times = dict.fromkeys(("due_time", "message_due", "released_at"), DUE * 1000)
    rows = [{**same, **times, "subscription": s, "first_entry": first, "last_entry": last} for s, first, last in places]
    return pa.Table.from_pylist(rows, schema=arrow_schema(REDELIVERY.columns))


def look_up(of: pa.Table) -> Iterator[pa.Table]:
    """The message of an entry has a key like it; entry 9 has no message. Each run is a piece."""
    kinds = arrow_schema(MESSAGES.columns)
    schema = pa.schema([(n, kinds.field(n).type if n in kinds.names else pa.int64()) for n in LOOKED_UP])
    for number, run in enumerate(of.to_pylist()):
        entries = [each for each in range(run["first_entry"], run["last_entry"] + 1) if each != 9]
        rows = [
            {"run": number, "entry_id": each, "message_key": f"o-{each}", "due_time": DUE * 1_000, "payload": b"{}"}
            for each in entries
        ]
        yield pa.Table.from_pylist(rows, schema=schema)


def places(rows: pa.Table) -> list[tuple[str, int, int]]:
    """Subscription, first and last entry, in order."""
    return sorted(
        zip(*(rows.column(n).to_pylist() for n in ("subscription", "first_entry", "last_entry")), strict=True)
    )


def shaping(guard: str, **tables: str) -> Policies:
    """A policy."""
    return Policies(guard=guard, guard_tables=text_of(tables))


class Here:
    """Evaluates guards in this process."""

    def met_by(self, guard: Guard, rows: pa.Table, versions: Mapping[str, int]) -> IntArray:
        """The numbers of the rows that meet a guard."""
        return guard.met_by(rows, {name: opened(path, versions[path]) for name, path in guard.tables.items()})

    def version(self, path: str) -> int:
        """The newest version of a table."""
        return opened(path).version()

    def ready(self) -> bool:
        """It is there."""
        return True


def guards(tmp_path: Path) -> Guards:
    """Of a new process."""
    return Guards(GuardStates(Files(), str(tmp_path)), Here(), [str(tmp_path)])


def test_what_does_not_meet_its_guard_is_left_out_with_its_key_and_what_was_read(tmp_path: Path, paid: str) -> None:
    """Each subscription by its own guard; who has none is not asked, and what has no message is let go."""
    pay(paid, "o-4")
    shapings = {S: shaping(UNPAID, paid=paid), OTHER: shaping("message_key = 'o-1' OR NULL")}
    batch = runs(("s", 0, 5), ("s", 9, 9), ("other", 0, 2), ("free", 0, 5))
    left, out, *_ = guards(tmp_path).split_by_guard(batch, shapings, 12, look_up, Ms(DUE))
    assert places(left) == [("free", 0, 5), ("other", 1, 1), ("s", 0, 0), ("s", 2, 2), ("s", 5, 5), ("s", 9, 9)]
    said = [(r["subscription"], r["first_entry"], r["last_entry"], r["message_key"]) for r in out.to_pylist()]
    assert sorted(said) == [(s, e, e, f"o-{e}") for s, e in [("other", 0), ("other", 2), ("s", 1), ("s", 3), ("s", 4)]]
    assert {(r["subscription"], r["reason"], r["guard_version"], *r["table_versions"]) for r in out.to_pylist()} == {
        ("s", "suppressed", 12, ("paid", "1")),
        ("other", "suppressed", 12),
    }
    left, out, *_ = guards(tmp_path).split_by_guard(runs(("free", 0, 5)), shapings, 12, look_up, Ms(DUE))
    assert (places(left), out.num_rows) == ([("free", 0, 5)], 0)


def test_a_guard_that_fails_decides_nothing_rests_and_is_told(tmp_path: Path, paid: str) -> None:
    """Its table is gone, and then back; another guard is tried at once."""
    shapings, at_work = {S: shaping(UNPAID, paid=paid)}, guards(tmp_path)
    at_work.split_by_guard(runs(("s", 0, 1)), shapings, 1, look_up, Ms(DUE))
    shutil.move(paid, f"{paid}-away")
    with pytest.raises(Failed) as failed:
        at_work.split_by_guard(runs(("s", 0, 1)), shapings, 1, look_up, Ms(DUE))
    assert failed.value.name == S
    at_work.failed(failed.value, Ms(DUE))
    assert [at_work.failing(shapings, Ms(DUE + ms)) for ms in (0, AGAIN_MS - 1, AGAIN_MS)] == [{S}, {S}, set()]
    assert at_work.failing({S: shaping("true")}, Ms(DUE)) == at_work.failing({}, Ms(DUE)) == set()
    noted = GuardStates(Files(), str(tmp_path)).all()[S]
    assert (noted.guard, noted.since_ms) == (UNPAID, DUE)
    assert noted.error
    shutil.move(f"{paid}-away", paid)
    again = guards(tmp_path)
    left, *_ = again.split_by_guard(runs(("s", 0, 1)), shapings, 1, look_up, Ms(DUE))
    again.look({}, Ms(DUE))
    assert places(left) == [("s", 0, 0)]
    assert GuardStates(Files(), str(tmp_path)).all() == {}


def test_all_guards_that_fail_are_known_at_once(tmp_path: Path, paid: str) -> None:
    """Each of them had a turn of its own, in which all the others were asked again: 40 guards took half a minute."""
    shapings = {S: shaping("nope = 1"), OTHER: shaping(UNPAID, paid=f"{paid}-gone"), FREE: shaping("true")}
    at_work = guards(tmp_path)
    with pytest.raises(Failed) as failed:
        at_work.split_by_guard(runs(("free", 0, 1), ("s", 0, 1), ("other", 0, 1)), shapings, 1, look_up, Ms(DUE))
    assert {each.name for each in (failed.value, *failed.value.also)} == {OTHER, S}


def test_a_guard_reads_a_table_only_where_a_list_allows_it(tmp_path: Path, paid: str) -> None:
    """A link that lies there and leads elsewhere lies elsewhere; the list of a profile adds folders."""
    own, other = tmp_path / "own", tmp_path / "other"
    own.mkdir()
    (own / "link").symlink_to(paid)
    pay(str(own / "paid"), "o-1")
    batch = runs(("s", 0, 1))

    def asked(table: str, *folders: Path) -> list[tuple[str, int, int]]:
        at_work = Guards(GuardStates(Files(), str(tmp_path)), Here(), [str(each) for each in folders])
        return places(at_work.split_by_guard(batch, {S: shaping(UNPAID, paid=table)}, 1, look_up, Ms(DUE))[0])

    assert asked(str(own / "paid"), own) == asked(f"file://{own}/paid", own) == [("s", 0, 0)]
    assert asked(paid, other, Path(paid)) == asked(str(own / "link"), own, tmp_path) == [("s", 0, 0)]
    for table in (paid, str(own / "link"), f"{own}/../paid", f"{own}paid"):
        with pytest.raises(Failed, match="the table paid is not in guard_tables of the warehouse") as failed:
            asked(table, own)
        assert paid not in failed.value.error
    with pytest.raises(Failed, match="a table that it reads is not there"):
        asked(f"file://{own}/%2e%2e/paid", own)


def test_what_others_are_told_of_an_error_has_no_value_of_a_row(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither of the message nor of a table; whoever sets a guard is told what the engine says."""
    secret = str(tmp_path / "secret")
    write_deltalake(secret, pa.table({"word": ["classified"]}))
    of_table = shaping("EXISTS (SELECT 1 FROM secret WHERE CAST(word AS BIGINT) = 3)", secret=secret)
    kinds = {"a value cannot be cast": [of_table, shaping("CAST(message_key AS BIGINT) > 3")]}
    kinds["a division by zero"] = [shaping("1 / (entry_id - entry_id) > length(message_key)")]
    kinds["it does not fit its tables"] = [shaping("EXISTS (SELECT gone FROM secret)", secret=secret)]
    for kind, several in kinds.items():
        for each in several:
            at_work = guards(tmp_path)
            try:
                at_work.split_by_guard(runs(("s", 0, 1)), {S: each}, 1, look_up, Ms(DUE))
                at_work.look({S: 2}, Ms(DUE))
            except Failed as failed:
                at_work.failed(failed, Ms(DUE))
            error = GuardStates(Files(), str(tmp_path)).all()[S].error
            assert error.startswith(kind)
            assert not {"classified", "o-0", "o-1"} & set(re.split(r"[^\w-]+", error + caplog.text))
    with pytest.raises(BadValue, match="classified"):
        Guard.of(of_table.guard or "", of_table.guard_tables).checked()


@pytest.mark.parametrize("wrong", [{"guard": "nope = 1"}, {"guard": "true", "guard_tables": "[]"}, {"guard": ""}])
def test_a_guard_that_somebody_wrote_by_hand_and_that_is_none_fails(tmp_path: Path, wrong: dict[str, str]) -> None:
    """It is not taken for one that lets all go."""
    with pytest.raises(Failed):
        guards(tmp_path).split_by_guard(runs(("s", 0, 1)), {S: Policies.followed(wrong)}, 1, look_up, Ms(DUE))


def test_a_condition_sees_columns_of_a_delivery_and_payloads_only_when_it_names_them() -> None:
    """As bytes and as text; what is no UTF-8 has no text."""
    columns = {name: pa.nulls(3, SEEN.field(name).type) for name in SEEN.names}
    columns |= {NUMBER: pa.array([0, 1, 2]), "payload": pa.array([b"yes", b"\xff", None], pa.binary())}
    columns["properties"] = pa.array([[("city", "Rome")], [], None], SEEN.field("properties").type)
    columns["deliver_at"] = pa.array([DUE * 1_000, 5, 6], SEEN.field("deliver_at").type)
    for condition, met in {
        "payload_text = 'yes'": [0],
        "payload_text IS NULL": [1, 2],
        "octet_length(encode(payload, 'hex')) = 2": [1],
        "payload_bytes = 0": [2],
        "properties['city'] = 'Rome'": [0],
        "deliver_at >= TIMESTAMP '2023-01-01T00:00:00Z'": [0],
        "topic IS NULL -- whatever": [0, 1, 2],
        "NULL": [],
    }.items():
        guard = Guard(condition)
        guard.checked()
        assert guard.met_by(seen(columns, guard.columns()), {}).tolist() == met, condition
        assert ("payload" in guard.columns()) is ("payload," in condition)


def test_what_cannot_be_evaluated_is_refused_when_it_is_set(paid: str, tmp_path: Path) -> None:
    """With the name of the policy, its value and what is allowed."""
    Guard(UNPAID, {"paid": paid}).checked()
    for condition, tables, field in (
        ("nope = 1", {}, "guard"),
        ("message_key", {}, "guard"),
        ("EXISTS (SELECT 1 FROM paid)", {}, "guard"),
        ("random() > 0.5", {}, "guard"),
        ("deliver_at < now()", {}, "guard"),
        ("", {}, "guard"),
        ("true", {"paid": str(tmp_path / "none")}, "guard_tables"),
        ("true", {"Paid": paid}, "guard_tables"),
        ("true", {"due": paid}, "guard_tables"),
        ("true", {"paid": "paid"}, "guard_tables"),
    ):
        with pytest.raises(BadValue) as refused:
            Guard(condition, tables).checked()
        assert refused.value.field == field, condition


class Sluggish:
    """Evaluates guards: one that takes too long with some messages."""

    def __init__(self, *keys: str) -> None:
        """With the messages that have these keys."""
        self.asked, self._keys = list[list[str]](), set(keys)

    def met_by(self, _guard: Guard, rows: pa.Table, _versions: Mapping[str, int]) -> IntArray:
        """All."""
        self.asked.append(rows.column("message_key").to_pylist())
        if self._keys.intersection(self.asked[-1]):
            raise GuardFailed("it takes too long", SEARCH_MS)
        return longs(rows, NUMBER)

    def version(self, path: str) -> int:
        """Of no table."""
        raise NotImplementedError(path)

    def ready(self) -> bool:
        """It is there."""
        return True


@pytest.mark.parametrize("slow", [{3}, {7}, {0, 1, 5}])
def test_what_was_asked_with_a_message_that_takes_too_long_comes_and_later_ones_are_on_time(
    tmp_path: Path, slow: set[int]
) -> None:
    """Each failure is followed by a rest of ten times as long; in the end such messages wait alone."""
    keys = {f"o-{each}" for each in slow}
    evaluator, shapings = Sluggish(*keys), {S: shaping("true")}
    at_work = Guards(GuardStates(Files(), str(tmp_path)), evaluator, [])
    left, _, undecided, _ = at_work.split_by_guard(runs(("s", 0, 7)), shapings, 1, look_up, Ms(DUE))
    at_work.look({S: 8}, Ms(DUE))
    assert (left.num_rows, places(undecided)) == (0, [("s", 0, 7)])
    assert len(evaluator.asked) == 2
    now = DUE + RESTS * SEARCH_MS
    assert [at_work.failing(shapings, Ms(each)) for each in (now - 1, now)] == [{S}, set()]
    waiting, entry, failures = set(range(8)), 10, 0
    while waiting != slow:
        evaluator.asked.clear()
        batch = runs(*(("s", each, each) for each in (*sorted(waiting), entry)))
        left, _, undecided, _ = at_work.split_by_guard(batch, shapings, 1, look_up, Ms(now))
        came, stays = ({each for _, each, _ in places(rows)} for rows in (left, undecided))
        at_work.look({S: len(stays)}, Ms(now))
        assert entry in came
        assert came | stays == {*waiting, entry}
        assert at_work.failing(shapings, Ms(now)) == set()
        assert sum(bool(keys.intersection(each)) for each in evaluator.asked) <= 1
        # Until the rest is over nothing is asked again, but for what is new.
        evaluator.asked.clear()
        again = runs(*(("s", each, each) for each in (*sorted(stays), entry + 1)))
        left, *_ = at_work.split_by_guard(again, shapings, 1, look_up, Ms(now + RESTS * SEARCH_MS - 1))
        assert ([each for _, each, _ in places(left)], evaluator.asked) == ([entry + 1], [[f"o-{entry + 1}"]])
        waiting, entry, failures, now = stays, entry + 2, failures + 1, now + RESTS * SEARCH_MS
        assert failures < 30
    assert GuardStates(Files(), str(tmp_path)).all()[S].text == f"on {len(slow)} messages: it takes too long"


class Mortal(Sluggish):
    """Evaluates guards in a process that ends of some messages, or of one guard whatever the message."""

    def __init__(self, *keys: str, always: str = "") -> None:
        """It is there."""
        super().__init__(*keys)
        self.up, self._always = True, always

    def met_by(self, guard: Guard, rows: pa.Table, versions: Mapping[str, int]) -> IntArray:
        """All."""
        if not self.up:
            raise Starting
        try:
            found = super().met_by(guard, rows, versions)
        except GuardFailed:
            self.up = False
        self.up = self.up and guard.condition != self._always
        if not self.up:
            raise GuardFailed("its process has died", 2_000, ended=True)
        return found

    def ready(self) -> bool:
        """Whether it is there."""
        return self.up


def test_nobody_waits_for_the_process_of_guards_when_it_has_died_and_other_guards_go_on_when_it_is_there(
    tmp_path: Path,
) -> None:
    """Dispatch stood still for each start: a guard that ended its process at each message held up all subscriptions."""
    evaluator, shapings = Mortal("o-3"), {OTHER: shaping("true"), S: shaping("true")}
    at_work = Guards(GuardStates(Files(), str(tmp_path)), evaluator, [])
    batch = runs(("s", 3, 4), ("other", 5, 6), ("free", 0, 1))
    left, _, undecided, postponed = at_work.split_by_guard(batch, shapings, 1, look_up, Ms(DUE))
    at_work.look({S: 2}, Ms(DUE))
    assert (places(left), places(undecided)) == ([("free", 0, 1)], [("s", 3, 4)])
    assert (places(postponed), len(evaluator.asked)) == ([("other", 5, 6)], 1)
    # Whoever has a guard is held until the next process is there, then only the one that has ended this one.
    assert at_work.failing(shapings | {FREE: Policies()}, Ms(DUE)) == {OTHER, S}
    left, _, undecided, postponed = at_work.split_by_guard(runs(("other", 5, 6)), shapings, 1, look_up, Ms(DUE))
    assert (places(left), places(undecided), places(postponed)) == ([], [], [("other", 5, 6)])
    evaluator.up = True
    assert at_work.failing(shapings, Ms(DUE)) == {S}
    left, *_ = at_work.split_by_guard(runs(("other", 5, 6)), shapings, 1, look_up, Ms(DUE))
    assert places(left) == [("other", 5, 6)]
    # After its rest it is asked about no message, which was not asked before, and what comes later is on time.
    now = DUE + RESTS * 2_000
    assert at_work.failing(shapings, Ms(now)) == set()
    evaluator.asked.clear()
    left, *_ = at_work.split_by_guard(runs(("s", 7, 7), ("s", 3, 4)), shapings, 1, look_up, Ms(now))
    assert (evaluator.asked, places(left)) == ([[], ["o-7"], ["o-3"]], [("s", 7, 7)])


def test_a_guard_that_ends_its_process_without_a_message_holds_everything_and_is_tried_again(tmp_path: Path) -> None:
    """The messages are not why: they do not rest longer each time."""
    evaluator, shapings, now = Mortal(always="false"), {S: shaping("false")}, DUE
    at_work = Guards(GuardStates(Files(), str(tmp_path)), evaluator, [])
    _, _, undecided, _ = at_work.split_by_guard(runs(("s", 3, 4)), shapings, 1, look_up, Ms(DUE))
    assert places(undecided) == [("s", 3, 4)]
    for _ in range(3):
        evaluator.up, now = True, now + RESTS * 2_000
        assert at_work.failing(shapings, Ms(now)) == set()
        with pytest.raises(Failed) as failed:
            at_work.split_by_guard(runs(("s", 3, 4)), shapings, 1, look_up, Ms(now))
        at_work.failed(failed.value, Ms(now))
    evaluator.up = True
    left, *_ = at_work.split_by_guard(runs(("s", 3, 4)), {S: shaping("true")}, 1, look_up, Ms(now))
    assert places(left) == [("s", 3, 4)]


def test_a_guard_that_takes_long_to_fail_rests_for_longer(tmp_path: Path) -> None:
    """Others wait for it meanwhile, so it is not asked again at once."""
    shapings, at_work = {S: shaping("true")}, guards(tmp_path)
    at_work.failed(Failed(S, shapings[S], "slow", 3_000), Ms(DUE))
    assert at_work.failing(shapings, Ms(DUE + RESTS * 3_000 - 1)) == {S}
    assert at_work.failing(shapings, Ms(DUE + RESTS * 3_000)) == set()


def test_people_are_told_on_how_many_messages_a_guard_fails(tmp_path: Path) -> None:
    """As long as they wait, also after others came."""
    at_work = guards(tmp_path)
    shapings = {S: shaping("CAST(right(replace(message_key, '2', 'x'), 1) AS BIGINT) >= 0")}
    left, unmet, undecided, _ = at_work.split_by_guard(runs(("s", 0, 4), ("free", 0, 1)), shapings, 1, look_up, Ms(DUE))
    assert places(left) == [("free", 0, 1), ("s", 0, 1), ("s", 3, 4)]
    assert (unmet.num_rows, places(undecided)) == (0, [("s", 2, 2)])
    at_work.look({S: 1}, Ms(DUE))
    state = GuardStates(Files(), str(tmp_path)).all()[S]
    assert (state.messages, state.text[:14]) == (1, "on 1 messages:")
    at_work.split_by_guard(runs(("s", 0, 1)), shapings, 1, look_up, Ms(DUE))
    at_work.look({S: 1}, Ms(DUE + 1))
    assert GuardStates(Files(), str(tmp_path)).all()[S].messages == 1
    at_work.split_by_guard(runs(("s", 0, 1)), shapings, 1, look_up, Ms(DUE))
    at_work.look({}, Ms(DUE + 2))
    assert GuardStates(Files(), str(tmp_path)).all() == {}
