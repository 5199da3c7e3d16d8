"""`delayline doctor` and acknowledgement: policies, cursors, and a settle that stands still."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

from pipeline.delta.deltars import path_of
from pipeline.doctor.examine import examine
from pipeline.doctor.look import Severity
from pipeline.subscriptions.policies import Policies
from schemas import CONSUMER_EVENTS, CURSORS, REDELIVERY, REJECTED_SETTLE, SUBSCRIPTIONS, Table
from state import LeaseReplay, Nack
from state.units import Ms
from tests.support.acknowledged import acknowledges, settled
from tests.support.client import put
from tests.support.examined import entries, files, found, made, run_row, sound, wrong
from tests.support.settled import NOW, at, released

ACK = {"kind": "ack", "topic": "t", "subscription": "a", "life": 1, "ledger_id": 0, "first_entry": 0, "last_entry": 0}
READ = {"events": 0, "released": 1, "refused": 0}
"""As far as the healthy warehouse goes."""


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A healthy warehouse in which the subscription `t/s` acknowledges, and has something open."""
    folder = str(shutil.copytree(made(), tmp_path / "warehouse"))
    acknowledges(folder)
    state = released((0, 0, 3), (40, 1, 1))
    state.handle(Nack(at((0, 1, 1)), 0), now=Ms(NOW))
    settled(folder, state, read=READ, leases=LeaseReplay())
    return folder


def later(root: str, table: Table, seconds: int) -> None:
    """Date the newest version of a table so long after now."""
    path = entries(root, table)[-1]
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        if "commitInfo" in line:
            line["commitInfo"]["timestamp"] = int(datetime.now(UTC).timestamp() * 1_000) + 1_000 * seconds
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def again(root: str, **more: Any) -> None:  # noqa: ANN401 - a row of the table
    """A row of `cursors` that replaces another one."""
    row = {"topic": "t", "subscription": "s", "life": 1, "batch_id": 1, "events": 0, "released": 1}
    put(root, CURSORS, row | more)


def test_a_settle_that_keeps_up_is_sound(root: str) -> None:
    """Also when it is some seconds behind."""
    sound(root)
    put(root, CONSUMER_EVENTS, ACK)
    later(root, CONSUMER_EVENTS, 50)
    sound(root)


@pytest.mark.parametrize("table", [CONSUMER_EVENTS, REDELIVERY])
def test_a_settle_that_stands_still_is_told(root: str, table: Table) -> None:
    """Consumers acknowledge, and nobody takes it in; or nobody sees what was released."""
    put(root, table, ACK if table is CONSUMER_EVENTS else run_row("s", 0, 0, 5, life=3))
    later(root, table, 90)
    (finding,) = (each for each in found(root) if each.check == "settled")
    assert (finding.what, finding.subject, finding.severity) == ("settle_behind", table.name, Severity.WARNING)
    assert finding.text.startswith(f"it has not read 1 versions of {table.name}, up to ")


def test_a_settle_whose_clock_was_ahead_is_told(root: str) -> None:
    """It does not start; a clock that is a little ahead is allowed, as for the other stages."""
    state = released((0, 0, 3))
    settled(root, state, batch=1, read=READ | {"now": NOW + 60_000})
    assert [each for each in examine(root, NOW).findings if each.what == "clock_ahead"] == []
    settled(root, state, batch=2, read=READ | {"now": NOW + 600_000})
    (ahead,) = (each for each in examine(root, NOW).findings if each.what == "clock_ahead")
    assert (ahead.subject, ahead.severity) == ("settle", Severity.WARNING)
    assert "--stage all --reset-clock" in ahead.remedy
    Path(root, "_clock").mkdir()
    Path(root, "_clock", "settle").touch()
    assert "clock_ahead" not in {each.what for each in examine(root, NOW).findings}


def test_who_does_not_acknowledge_is_not_missed(root: str) -> None:
    """Nobody reads then what was left."""
    shutil.rmtree(path_of(root, SUBSCRIPTIONS))
    shutil.copytree(path_of(made(), SUBSCRIPTIONS), path_of(root, SUBSCRIPTIONS))
    put(root, CONSUMER_EVENTS, ACK)
    later(root, CONSUMER_EVENTS, 90)
    sound(root)


def test_policies_that_cannot_be_followed_are_told(root: str) -> None:
    """Any Delta writer may set them."""
    texts = Policies(ack=True).as_map() | {"retry_min_ms": "soon"}
    row = {"topic": "t", "subscription": "x", "type": "shared", "start": "latest", "tick_ms": 1, "active": True}
    put(root, SUBSCRIPTIONS, row | {"policies": texts})
    assert wrong(root) == {("policy_refused", "t/x")}


@pytest.mark.parametrize("block", [-1, -2, 0, 2])
def test_bytes_that_cannot_be_read_are_told(root: str, block: int) -> None:
    """The head, the leases, and each block of ledgers."""
    again(root, block=block, bytes=b"torn")
    assert wrong(root) == {("cursor_torn", "t/s")}


def test_a_block_that_is_missing_is_told(root: str) -> None:
    """Its messages would pass for settled."""
    again(root, block=0, bytes=None)
    assert wrong(root) == {("cursor_torn", "t/s")}


def test_events_that_are_gone_before_settle_has_read_them_are_told(root: str) -> None:
    """Their log was cut, or a VACUUM took the file."""
    put(root, CONSUMER_EVENTS, ACK)
    files(root, CONSUMER_EVENTS)[0].unlink()
    assert ("source_gone", "settle") in wrong(root)
    put(root, CONSUMER_EVENTS, ACK)
    entries(root, CONSUMER_EVENTS)[1].unlink()
    assert ("source_cut", "settle") in wrong(root)


def test_what_settle_refused_is_told_by_reason(root: str) -> None:
    """It is the matter of whoever wrote the events."""
    row = ACK | {"reason": "never_delivered", "rejected_at": datetime.now(UTC), "batch_id": 0}
    put(root, REJECTED_SETTLE, row, row)
    (finding,) = (each for each in examine(root, NOW).findings if each.what == "rejected")
    assert (finding.subject, finding.text) == ("rejected_settle", "2 never_delivered")
