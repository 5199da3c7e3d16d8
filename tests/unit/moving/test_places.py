"""How far an import is: numbers of positions, and which messages earlier commits have taken."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError

from pipeline.brokers.pulsar import Position
from pipeline.client.producing.inbox import OutgoingMessage, rows_of_messages
from pipeline.config.errors import BadValue, StageRunning
from pipeline.delta import deltars
from pipeline.delta.deltars import append, open_table, path_of
from pipeline.moving.places import ImportPlace, Wanted, position_of, sequence
from pipeline.subscriptions.sourcenotes import NotedByOthers, noted_by_others
from schemas import INBOX, Table
from tests.support.client import new_warehouse
from tests.support.examined import wrong

WANTED = Wanted("pulsar://a:1", "http://a:2", "public/default/t", "s", "t", 60_000)
positions = st.tuples(st.integers(0, 2**35 - 1), st.integers(0, 2**28 - 1))


@given(positions, positions)
def test_numbers_are_in_the_order_of_positions(one: Position, other: Position) -> None:
    """And say them again."""
    assert (sequence(one) < sequence(other)) == (one < other)
    assert position_of(sequence(one)) == one


@pytest.mark.parametrize("at", [(1, -1), (1, 2**28), (2**35, 1), (-1, 1)])
def test_a_position_that_no_number_holds_is_refused(at: Position) -> None:
    """Else two messages would have one number."""
    with pytest.raises(BadValue, match="position"):
        sequence(at)


@pytest.mark.parametrize(
    ("field", "value"),
    [("topic", "t"), ("service", "kafka://a:1"), ("service", "pulsar://u:hunter2@a"), ("margin_ms", 0)],
)
def test_what_cannot_be_is_refused(field: str, value: object) -> None:
    """Before anybody is asked; a password is not repeated."""
    wanted = {name: getattr(WANTED, name) for name in ("service", "admin", "topic", "subscription", "to", "margin_ms")}
    with pytest.raises(BadValue, match=field.partition("_")[0]) as refused:
        Wanted(**(wanted | {field: value}))
    assert "hunter2" not in str(refused.value)


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A new warehouse."""
    new_warehouse(str(tmp_path))
    return str(tmp_path)


def place(root: str) -> ImportPlace:
    """The import, as a new process sees it."""
    return ImportPlace(root, WANTED, WANTED.topic)


def commit(root: str, number: int, soon_ms: int, *, dies: bool = False) -> None:
    """A commit of an import, or one before which it died."""
    now = place(root)
    now.plan(number, soon_ms)
    if not dies:
        append(root, INBOX, rows_of_messages([OutgoingMessage("t", b"x")]), once=(now.name, number))


def test_a_later_process_knows_what_each_commit_has_left(root: str) -> None:
    """Each has its own time up to which it left messages."""
    commit(root, 10, 1_000)
    commit(root, 20, 5_000)
    now = place(root)
    assert now.last == 20
    assert [now.took(number, 3_000) for number in (1, 10, 11, 20, 21)] == [True, True, False, False, False]
    assert not now.took(1, 1_000)
    assert now.took(20, 5_001)


def test_a_later_process_knows_which_messages_were_left_one_by_one(root: str) -> None:
    """They were no less due than others of their commit."""
    place(root).commit(rows_of_messages([OutgoingMessage("t", b"x")]), 10, 1_000, [3, 7])
    place(root).commit(rows_of_messages([OutgoingMessage("t", b"x")]), 20, 1_000)
    taken = [number for number in range(1, 25) if place(root).took(number, 1 << 60)]
    assert taken == [each for each in range(1, 21) if each not in (3, 7)]
    assert not list(noted_by_others(root))


def test_a_commit_that_did_not_come_has_taken_nothing(root: str) -> None:
    """Its note is of no account, also when a commit at another time comes in its stead."""
    commit(root, 10, 1_000)
    commit(root, 20, 2_000, dies=True)
    assert place(root).last == 10
    assert not place(root).took(15, 9_000)
    commit(root, 20, 5_000)
    assert [place(root).took(15, due) for due in (3_000, 5_001)] == [False, True]


def test_another_subscription_is_another_import(root: str) -> None:
    """So is another topic of the warehouse."""
    commit(root, 10, 1_000)
    wanted = {name: getattr(WANTED, name) for name in ("service", "admin", "topic", "subscription", "to", "margin_ms")}
    for field in ("subscription", "to"):
        assert ImportPlace(root, Wanted(**(wanted | {field: "else"})), WANTED.topic).last == -1


@pytest.mark.parametrize("number", [1 << 60, 15, 0])
@pytest.mark.parametrize("begun", [True, False])
def test_a_number_of_somebody_else_does_not_move_an_import(root: str, number: int, *, begun: bool) -> None:
    """It would leave out messages, or take them twice; the remedy of the page works."""
    if begun:
        commit(root, 10, 1_000)
        commit(root, 20, 2_000)
    name = ImportPlace(root, WANTED, WANTED.topic).name
    assert not list(noted_by_others(root))
    strange = Transaction(name, number)
    write_deltalake(
        path_of(root, INBOX),
        rows_of_messages([OutgoingMessage("t", b"x")]),
        mode="append",
        commit_properties=CommitProperties(app_transactions=[strange]),
    )
    with pytest.raises(NotedByOthers, match=str(number)):
        place(root)
    if begun:
        assert [each.name for each in noted_by_others(root)] == [name]
        assert ("noted_by_others", name) in wrong(root)
        append(root, INBOX, rows_of_messages([OutgoingMessage("t", b"x")]), once=(name, 20), drawn=True)
        assert place(root).last == 20
        assert not list(noted_by_others(root))


@pytest.mark.parametrize("same", [True, False])
def test_of_two_imports_at_once_one_commits(root: str, monkeypatch: pytest.MonkeyPatch, *, same: bool) -> None:
    """In a store no lock keeps them apart. Both took the same messages."""
    commit(root, 10, 1_000)
    first, second = place(root), place(root)
    rows = rows_of_messages([OutgoingMessage("t", b"x")])
    first.commit(rows, 20, 5_000)
    with pytest.raises(StageRunning):
        second.commit(rows, 20 if same else 15, 9_000)
    now = place(root)
    assert (now.last, [now.took(20, due) for due in (5_000, 5_001)]) == (20, [False, True])
    # This one is faster after the plan of the other, which it puts back.
    first, second = place(root), place(root)
    plan = second.plan

    def plans(last: int, soon_ms: int, left: Sequence[int]) -> None:
        plan(last, soon_ms, left)
        first.commit(rows, 30, 6_000)

    monkeypatch.setattr(second, "plan", plans)
    with pytest.raises(StageRunning):
        second.commit(rows, 30 if same else 25, 9_000)
    now = place(root)
    assert (now.last, [now.took(30, due) for due in (6_000, 6_001)]) == (30, [False, True])
    assert open_table(root, INBOX).to_pyarrow_table().num_rows == 3
    # It begins again, and takes what is behind the commit of the other.
    place(root).commit(rows, 40, 5_000)
    assert place(root).last == 40
    assert open_table(root, INBOX).to_pyarrow_table().num_rows == 4


def test_of_two_imports_that_commit_at_the_same_moment_one_does(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one commits between the look at the number and the commit."""
    first, second = place(root), place(root)
    rows = rows_of_messages([OutgoingMessage("t", b"x")])
    fit = deltars.fitted

    def meanwhile(opened: DeltaTable, table: Table, some: pa.Table) -> pa.Table:
        monkeypatch.setattr(deltars, "fitted", fit)
        first.commit(rows, 20, 5_000)
        return fit(opened, table, some)

    monkeypatch.setattr(deltars, "fitted", meanwhile)
    with pytest.raises(StageRunning):
        second.commit(rows, 15, 5_000)
    assert open_table(root, INBOX).to_pyarrow_table().num_rows == 1
    assert place(root).last == 20


def test_a_commit_that_a_store_denies_though_it_has_come_is_no_other_import(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store put it at the first of two attempts. The plan was taken back, and no import could go on."""
    commit(root, 10, 1_000)
    write = write_deltalake

    def denies(*args: object, **named: object) -> None:
        monkeypatch.setattr(deltars, "write_deltalake", write)
        write(*args, **named)  # type: ignore[call-overload]
        raise CommitFailedError("a version is there")

    monkeypatch.setattr(deltars, "write_deltalake", denies)
    place(root).commit(rows_of_messages([OutgoingMessage("t", b"x")]), 20, 5_000)
    now = place(root)
    assert (now.last, [now.took(20, due) for due in (5_000, 5_001)]) == (20, [False, True])
    assert open_table(root, INBOX).to_pyarrow_table().num_rows == 2
