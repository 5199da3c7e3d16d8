"""Guards: what a condition sees, what meets it, what it says of each position, and what happens when it fails."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("deltalake", reason="guards need requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

import pyarrow as pa
from deltalake import write_deltalake

from pipeline.config.errors import BadValue
from pipeline.dispatch.guarding import AGAIN_MS, Failed, Guards
from pipeline.dispatch.release import LOOKED_UP
from pipeline.storage.arrays import arrow_schema
from pipeline.storage.files import Files
from pipeline.subscriptions.guards import NUMBER, SEEN, Guard, seen, text_of
from pipeline.subscriptions.guardstates import GuardStates
from pipeline.subscriptions.policies import Shaping
from schemas import MESSAGES, REDELIVERY

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


def runs(*told: tuple[str, int, int]) -> pa.Table:
    """Subscription, first and last entry of each run."""
    same = {"topic": "t", "life": 1, "ledger_id": 7, "tick_ms": 1, "redelivery_count": 0, "cause": "due", "batch_id": 1}
    times = dict.fromkeys(("due_time", "message_due", "released_at"), DUE * 1000)
    rows = [{**same, **times, "subscription": s, "first_entry": first, "last_entry": last} for s, first, last in told]
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


def shaping(guard: str, **tables: str) -> Shaping:
    """A policy."""
    return Shaping(guard=guard, guard_tables=text_of(tables))


def guards(tmp_path: Path) -> Guards:
    """Of a new process."""
    return Guards(GuardStates(Files(), str(tmp_path)))


def test_what_does_not_meet_its_guard_is_left_out_with_its_key_and_what_was_read(tmp_path: Path, paid: str) -> None:
    """Each subscription by its own guard; who has none is not asked, and what has no message is let go."""
    pay(paid, "o-4")
    told = {S: shaping(UNPAID, paid=paid), OTHER: shaping("message_key = 'o-1' OR NULL")}
    batch = runs(("s", 0, 5), ("s", 9, 9), ("other", 0, 2), ("free", 0, 5))
    left, out = guards(tmp_path).parted(batch, told, 12, look_up)
    assert places(left) == [("free", 0, 5), ("other", 1, 1), ("s", 0, 0), ("s", 2, 2), ("s", 5, 5), ("s", 9, 9)]
    said = [(r["subscription"], r["first_entry"], r["last_entry"], r["message_key"]) for r in out.to_pylist()]
    assert sorted(said) == [(s, e, e, f"o-{e}") for s, e in [("other", 0), ("other", 2), ("s", 1), ("s", 3), ("s", 4)]]
    assert {(r["subscription"], r["reason"], r["guard_version"], *r["table_versions"]) for r in out.to_pylist()} == {
        ("s", "suppressed", 12, ("paid", "1")),
        ("other", "suppressed", 12),
    }
    left, out = guards(tmp_path).parted(runs(("free", 0, 5)), told, 12, look_up)
    assert (places(left), out.num_rows) == ([("free", 0, 5)], 0)


def test_a_guard_that_fails_decides_nothing_rests_and_is_told(tmp_path: Path, paid: str) -> None:
    """Its table is gone, and then back; another guard is tried at once."""
    told, at_work = {S: shaping(UNPAID, paid=paid)}, guards(tmp_path)
    at_work.parted(runs(("s", 0, 1)), told, 1, look_up)
    shutil.move(paid, f"{paid}-away")
    with pytest.raises(Failed) as failed:
        at_work.parted(runs(("s", 0, 1)), told, 1, look_up)
    assert failed.value.name == S
    at_work.failed(failed.value, DUE)
    assert [at_work.failing(told, DUE + ms) for ms in (0, AGAIN_MS - 1, AGAIN_MS)] == [{S}, {S}, set()]
    assert at_work.failing({S: shaping("true")}, DUE) == at_work.failing({}, DUE) == set()
    noted = GuardStates(Files(), str(tmp_path)).all()[S]
    assert (noted.guard, noted.since_ms) == (UNPAID, DUE)
    assert noted.error
    shutil.move(f"{paid}-away", paid)
    left, _ = guards(tmp_path).parted(runs(("s", 0, 1)), told, 1, look_up)
    assert places(left) == [("s", 0, 0)]
    assert GuardStates(Files(), str(tmp_path)).all() == {}


@pytest.mark.parametrize("wrong", [{"guard": "nope = 1"}, {"guard": "true", "guard_tables": "[]"}, {"guard": ""}])
def test_a_guard_that_somebody_wrote_by_hand_and_that_is_none_fails(tmp_path: Path, wrong: dict[str, str]) -> None:
    """It is not taken for one that lets all go."""
    with pytest.raises(Failed):
        guards(tmp_path).parted(runs(("s", 0, 1)), {S: Shaping.followed(wrong)}, 1, look_up)


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
