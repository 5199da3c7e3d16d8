"""What the doctor finds of positions: lost, twice, early, or in the wrong table."""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path

import pytest

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")
pytest.importorskip("typer", reason="the command needs requirements/all.lock")


from pipeline.client.producing.inbox import OutgoingMessage, send
from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from pipeline.delta.deltars import append, open_table, rows_of
from pipeline.storage.files import Files
from pipeline.subscriptions.settled import SettledMark, raise_to
from schemas import (
    DELIVERIES,
    MESSAGES,
    PUBLICATIONS,
    REDELIVERY,
    REJECTED_DISPATCH,
    SEGMENTS,
    SUBSCRIPTIONS,
)
from tests.support.client import at, message_row
from tests.support.examined import (
    DUE,
    NOW,
    checkpoint,
    commit,
    delivery,
    found,
    made,
    marker,
    prepare,
    publication,
    run_row,
    wrong,
)


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A healthy warehouse, to be hurt."""
    return str(shutil.copytree(made(), tmp_path / "warehouse"))


def test_a_position_that_the_schedule_lost_is_found(root: str) -> None:
    """It is due, and nobody will ever let it go."""
    open_table(root, REDELIVERY).delete("subscription = 'b' AND first_entry = 1")
    open_table(root, DELIVERIES).delete("subscription = 'b' AND entry_id = 1")
    assert wrong(root) == {("not_released", "t/b")}
    (lost,) = found(root)
    assert lost.remedy == f"delayline rebuild --warehouse {root} --stage schedule"


def test_what_retention_took_away_is_not_missed(root: str) -> None:
    """Below the mark all was settled; tables lose their rows one after the other."""
    raise_to(Files(), root, SettledMark(2_000, 1, 1))
    for table, due in ((MESSAGES, "due_time"), (REDELIVERY, "message_due"), (DELIVERIES, "due_time")):
        open_table(root, table).delete(f"{due} <= '1970-01-01T00:00:02Z'")
        assert wrong(root) == set()


def test_a_position_that_is_not_due_for_a_coarse_tick_is_not_missed(root: str) -> None:
    """Due is the end of a bucket."""
    subscribe(root, Subscription("t", "coarse", tick_ms=1 << 20))
    plan = {"now": NOW, "begin": [3, -1], "source": [3, -1], "registry": 3}
    commit(root, SEGMENTS, [{**marker("coarse"), "subscriptions": [{"name": "coarse", "life": 0, "tick_ms": 1 << 20}]}],
           "ingest", plan, batch=1)  # fmt: skip
    checkpoint(root, "ingest", 1, 3)
    checkpoint(root, "schedule", 1, 3)
    assert wrong(root) == set()
    lines = Path(root, "_checkpoints/schedule/offsets/1").read_text()
    Path(root, "_checkpoints/schedule/offsets/1").write_text(lines.replace(str(NOW), str(1 << 20)))
    assert wrong(root) == {("not_released", "t/coarse")}


def test_what_the_schedule_has_not_read_yet_is_not_missed(root: str) -> None:
    """It stands still, and the log goes on."""
    send(root, [OutgoingMessage("t", b"")])
    plan = {"now": NOW, "begin": [3, -1], "source": [4, -1], "registry": 2}
    commit(root, MESSAGES, [message_row(1, 0, 1_000)], "ingest", plan, batch=1)
    commit(root, SEGMENTS, [{**marker(), "marker": 2, "next_ledger": 2}], "ingest", plan, batch=1)
    checkpoint(root, "ingest", 1, 4)
    assert wrong(root) == set()
    checkpoint(root, "schedule", 1, 3)
    assert wrong(root) == {("not_released", "t/a"), ("not_released", "t/b")}


def test_positions_released_twice_or_of_no_message_are_found(root: str) -> None:
    """The first would be delivered twice, the second never."""
    note = {"instant": NOW, "version": 2, "index": -1}
    commit(root, REDELIVERY, [run_row("a", 0, 0, 1), run_row("b", 0, 0, 1, ledger=9)], "schedule", note)
    assert wrong(root) == {("released_twice", "t/a"), ("not_a_message", "t/b")}


def test_a_released_position_that_dispatch_did_not_hand_over_is_found(root: str) -> None:
    """By position, although another one came twice and the number of rows is right."""
    open_table(root, DELIVERIES).delete("subscription = 'a' AND entry_id = 1")
    append(root, DELIVERIES, rows_of(DELIVERIES, [delivery(message_row(0, 2, DUE[2]), "a")]))
    assert wrong(root) == {("not_delivered", "t/a"), ("delivered_twice", "t/a")}


def test_what_dispatch_has_not_read_or_has_refused_or_prepared_is_not_missed(root: str) -> None:
    """A released position may be in four places."""
    plan = {"now": NOW, "begin": [3, -1], "source": [3, -1], "registry": 2}
    commit(root, MESSAGES, [message_row(0, entry, 1_000) for entry in range(5, 8)], "ingest", plan, batch=1)
    commit(root, SEGMENTS, [{**marker(), "marker": 2}], "ingest", plan, batch=1)
    checkpoint(root, "ingest", 1, 3)
    runs = [run_row(name, 5, 7, 1) for name in "ab"]
    commit(root, REDELIVERY, runs, "schedule", {"instant": NOW, "version": 2, "index": -1})
    assert wrong(root) == set()
    checkpoint(root, "dispatch", 1, 3)
    assert wrong(root) == {("not_delivered", "t/a"), ("not_delivered", "t/b")}
    refused = {"reason": "message_missing", "rejected_at": at(NOW), "redelivery_count": 0, "cause": "due"}
    refused |= {"topic": "t", "ledger_id": 0, "entry_id": 5, "due_time": at(1_000), "batch_id": 0}
    rows = [{**refused, "subscription": name} for name in "ab"]
    append(root, REJECTED_DISPATCH, rows_of(REJECTED_DISPATCH, rows))
    prepare(root, 2, *(delivery(message_row(0, entry, 1_000), name) for entry in (6, 7) for name in "ab"), version=3)
    assert wrong(root) == set()


def test_deliveries_that_were_not_released_are_found(root: str) -> None:
    """A rebuild of the schedule would deliver them once more."""
    open_table(root, REDELIVERY).delete("subscription = 'a' AND first_entry = 3")
    (finding,) = found(root)
    assert (finding.what, finding.subject) == ("not_released", "t/a")
    assert finding.remedy.startswith("restore `redelivery`")


def test_who_left_is_owed_nothing(root: str) -> None:
    """Also while ingest has not noticed: dispatch looks at the registry itself."""
    open_table(root, DELIVERIES).delete("subscription = 'a'")
    line = {"topic": "t", "subscription": "a", "type": "shared", "start": "latest", "tick_ms": 1, "active": True}
    open_table(root, SUBSCRIPTIONS).delete("subscription = 'a'")
    assert wrong(root) == set()
    append(root, SUBSCRIPTIONS, rows_of(SUBSCRIPTIONS, [line]))
    assert wrong(root) == set()


def test_early_deliveries_are_found(root: str) -> None:
    """Never early is the other half of the promise."""
    early = delivery(message_row(7, 7, 5_000), "gone")
    append(root, DELIVERIES, rows_of(DELIVERIES, [{**early, "due_time": early["deliver_at"] - timedelta(seconds=1)}]))
    append(root, PUBLICATIONS, rows_of(PUBLICATIONS, [{**publication(), "committed_at": at(899_999)}]))
    assert wrong(root) == {("early", "deliveries"), ("early", "publications")}
