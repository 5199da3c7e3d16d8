"""What the REST interface of Pulsar says of cursors, and which addresses of it are taken."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.brokers.pulsaradmin import Admin, Cursor, Position, position, ranges
from pipeline.config.errors import BadValue, BrokerRefused


def test_ranges_have_both_ends() -> None:
    """Brokers leave out the first one."""
    assert ranges("[]") == []
    assert ranges("[(3:5..3:7],(12:-1..12:0]]") == [((3, 6), (3, 7)), ((12, 0), (12, 0))]
    assert ranges("[[3:5..3:7)]") == [((3, 5), (3, 6))]
    assert position("3:-1") == (3, -1)


positions = st.tuples(st.integers(0, 3), st.integers(0, 20))


@given(st.sets(positions), positions)
def test_a_cursor_has_what_is_acknowledged(acknowledged: set[Position], before: Position) -> None:
    """Up to its mark, and within its ranges: compared with the set of positions."""
    single = sorted(each for each in acknowledged if each > before)
    text = ",".join(f"({ledger}:{entry - 1}..{ledger}:{entry}]" for ledger, entry in single)
    cursor = Cursor(before, ranges(f"[{text}]"), (9, 9), "Shared", 0)
    for ledger in range(4):
        for entry in range(21):
            at = (ledger, entry)
            assert cursor.has(at) == (at <= before or at in acknowledged)


def test_what_lies_behind_a_position_is_counted_by_ledgers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The list says 0 of the ledger that is written; another figure has its entries."""
    ledgers = [{"ledgerId": 3, "entries": 10}, {"ledgerId": 5, "entries": 7}, {"ledgerId": 8, "entries": 0}]
    told = json.dumps({"ledgers": ledgers, "currentLedgerEntries": 4}).encode()
    monkeypatch.setattr(Admin, "_get", lambda *_: ({}, told))
    admin = Admin("http://127.0.0.1:1")
    wanted = {(-1, -1): 21, (3, 8): 12, (3, 9): 11, (4, 0): 11, (5, 6): 4, (8, 0): 3, (8, 3): 0, (9, 0): 0}
    assert {place: admin.entries_after("public/default/t", place) for place in wanted} == wanted
    empty = json.dumps({"ledgers": [], "currentLedgerEntries": 0}).encode()
    monkeypatch.setattr(Admin, "_get", lambda *_: ({}, empty))
    assert admin.entries_after("public/default/t", (-1, -1)) == 0


@pytest.mark.parametrize("url", ["localhost:8080", "pulsar://a:1", "http://", "http://me:hunter2@a:1", "http://a:1/x"])
def test_another_form_of_address_is_refused(url: str) -> None:
    """A password is not repeated."""
    with pytest.raises(BadValue, match="admin") as refused:
        Admin(url)
    assert "hunter2" not in str(refused.value)


def test_a_broker_that_is_away_is_named() -> None:
    """And nothing waits for ever."""
    with pytest.raises(BrokerRefused, match=r"no answer from 127\.0\.0\.1:1"):
        Admin("http://127.0.0.1:1").cursor("public/default/t", "s")
