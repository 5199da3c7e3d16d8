"""A round of maintenance over tables as strange writers leave them: each step and each file stands for itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.delta.deltars import open_table
from pipeline.delta.warehouse import Warehouse
from pipeline.maintenance import layout, retention, rounds
from pipeline.maintenance.readers import Unread
from pipeline.subscriptions.settled import SettledMark
from schemas import INBOX, MESSAGES
from tests.support.client import at, message_row, new_warehouse, noticed, put
from tests.support.maintained import sharply
from tests.support.spark import session
from tests.support.strange import STATISTICS, far_off, strange


@pytest.fixture
def warehouse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Warehouse:
    """Strange files of the inbox and one that is not, four of `messages`; what was due until 2 000 ms is settled."""
    made = Warehouse(str(tmp_path / "warehouse"), session())
    new_warehouse(made.root)
    put(made.root, INBOX, {"topic": "t", "publish_time": at(1_000), "payload": b"old"})
    far_off(made.root, "far off")
    strange(made.root)
    for entry in range(4):
        put(made.root, MESSAGES, message_row(entry, 0, 1_000 * entry))
        noticed(made.root, f"s{entry}", 0, marker=entry + 1)
    open_table(made.root, MESSAGES).create_checkpoint()
    monkeypatch.setattr(rounds, "raise_mark", lambda *_: SettledMark(2_000, 10, 10))
    for module in (retention, layout):
        monkeypatch.setattr(module, "unread", lambda *_: Unread())
    return made


def _payloads(warehouse: Warehouse) -> list[str]:
    rows = open_table(warehouse.root, INBOX).to_pyarrow_table(columns=["payload"]).to_pylist()
    return sorted(row["payload"].decode() for row in rows)


def test_a_strange_file_ends_no_round(warehouse: Warehouse) -> None:
    """One row from the year 58865 ended every round for ever: nothing was merged, deleted or cut any more."""
    done = sharply(warehouse, 0)
    assert {step for each in done.values() for step in each.failed} == set()
    assert _payloads(warehouse) == sorted(["far off", *STATISTICS]), "what nobody knows to be old stays"
    assert (done["inbox"].rows, done["messages"].rows) == (1, 3)
    assert (done["segments"].merged, done["segments"].into) == (4, 1)
    assert done["messages"].entries
    assert {step for each in sharply(warehouse, 0).values() for step in each.failed} == set()


def test_a_step_that_fails_is_told_once_and_the_others_are_done(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A full disk, a file that cannot be read: that is one table's matter, and the next round tries again."""

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(rounds, "empty_inbox", full)
        patched.setattr(rounds, "compact", lambda *args: full() if args[1] is MESSAGES else layout.compact(*args))
        done = sharply(warehouse, 0)
    why = "(OSError: [Errno 28] No space left on device)"
    assert {name: each.failed for name, each in done.items() if each.failed} == {
        "inbox": (f"deleting rows {why}",),
        "messages": (f"merging files {why}",),
    }
    assert str(done["messages"]).endswith(f"deleted; failed: merging files {why}")
    assert (done["messages"].rows, done["segments"].merged) == (3, 4)
    assert done["messages"].entries
    texts = [record.getMessage() for record in caplog.records if "tries it again" in record.getMessage()]
    steps = ("inbox: deleting rows", "messages: merging files")
    assert texts == [f"{step} failed; the next round tries it again" for step in steps]
    assert sharply(warehouse, 0)["inbox"].rows == 1
