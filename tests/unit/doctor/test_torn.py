"""A power cut left the newest version of a table empty; there is no copy, and somebody does what the page says.

The stages are the real ones, without a JVM. `test_repaired.py` does the same with `inbox`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the stages are made for sessions of Spark")
pytest.importorskip("typer", reason="the doctor's tests need requirements/all.lock")

from pipeline.client.commanding.commands import cancel
from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from pipeline.config.errors import BrokenVersion
from pipeline.config.routes import SessionNeeded
from pipeline.delta.deltars import open_table, path_of
from pipeline.doctor.examine import examine
from schemas import CLOSED, COMMANDS, CONSUMER_EVENTS, CURSORS, REJECTED_SETTLE, SUBSCRIPTIONS, Table
from tests.support.client import put
from tests.support.examined import BEHIND_ALL
from tests.support.released import say
from tests.support.stages import Stages
from tests.support.stream import message
from tests.unit.doctor.test_again import begun, came, go, open_of, whats

Act = Callable[[Stages], object]


@pytest.fixture
def stages(tmp_path: Path) -> Stages:
    """Four messages were delivered to a subscription that acknowledges, and two of them failed; one comes later."""
    found = begun(tmp_path)
    assert found.ingest(message("off", "t", after=90_000) | {"message_key": "off"})
    go(found)
    return found


def acknowledge(stages: Stages) -> None:
    """A consumer acknowledges one that is outstanding."""
    say(stages, "ack", 2)


def call_off(stages: Stages) -> None:
    """A user cancels one that waits."""
    cancel(stages.root, "t", key="off")


def join(stages: Stages) -> None:
    """A user subscribes."""
    subscribe(stages.root, Subscription("t", "plain", tick_ms=1))


def settle(stages: Stages) -> None:
    """Settle takes in what a consumer said."""
    acknowledge(stages)
    assert stages.settle()


def close(stages: Stages) -> None:
    """Settle dies when it has written that a message that failed is settled."""
    say(stages, "ack", 0)
    stages.die_after("settle.closed")
    assert not stages.settle()


def reject(stages: Stages) -> None:
    """Settle dies when it has written that a row of a consumer is about nothing."""
    acknowledge(stages)
    say(stages, "guess", 2)
    stages.die_after("settle.rejected_settle")
    assert not stages.settle()


def nothing(_stages: Stages) -> None:
    """Settle goes on by itself."""


TORN: list[tuple[Table, Act, Act]] = [
    (CURSORS, settle, nothing),
    (CLOSED, close, nothing),
    (REJECTED_SETTLE, reject, nothing),
    (CONSUMER_EVENTS, acknowledge, acknowledge),
    (COMMANDS, call_off, call_off),
    (SUBSCRIPTIONS, join, join),
]


@pytest.mark.parametrize(("table", "write", "again"), TORN, ids=[table.name for table, _, _ in TORN])
def test_a_newest_version_that_a_power_cut_left_empty_is_deleted_and_what_it_held_is_written_again(
    stages: Stages, table: Table, write: Act, again: Act
) -> None:
    """Only queries have a rebuild: what of the others is gone somebody else says again, or settle does."""
    before, version = open_of(stages), open_table(stages.root, table).version()
    write(stages)
    entry = max(Path(path_of(stages.root, table), "_delta_log").glob("*.json"))
    assert int(entry.stem) > version
    entry.write_text("")
    stages.restart_all()
    with pytest.raises(BrokenVersion) as refused:
        open_table(stages.root, table)
    assert "rebuild" not in str(refused.value)
    torn = {("entry_torn", table.name), ("table_unreadable", table.name)}
    assert whats(stages) >= torn | ({("not_checked", COMMANDS.name)} if table is COMMANDS else set())
    entry.unlink()
    again(stages)
    go(stages)
    assert stages.ingest(message("new", "t"))
    go(stages, 91)
    assert whats(stages) == set()
    assert came(stages)[b"new", 0] == (2 if table is SUBSCRIPTIONS else 1)
    assert (b"off", 0) not in came(stages) or table is not COMMANDS
    assert [came(stages)[name, 1] for name in (b"0", b"1")] == [0 if table is CLOSED else 1, 1]
    # Six were sent. One of them was settled or cancelled, but for who only subscribed.
    assert (before, open_of(stages)) == (2, 6 if table is SUBSCRIPTIONS else 5)


def test_a_broken_file_of_subscriptions_stops_the_stages_until_it_is_brought_back(stages: Stages) -> None:
    """To go back to the version before is no way out: a batch that was begun reads the registry as it was then."""
    known = set(Path(path_of(stages.root, SUBSCRIPTIONS)).glob("*.parquet"))
    join(stages)
    (file,) = set(Path(path_of(stages.root, SUBSCRIPTIONS)).glob("*.parquet")) - known
    content = file.read_bytes()
    file.write_bytes(b"no Parquet")
    stages.restart_all()
    with pytest.raises(SessionNeeded):
        stages.ingest()
    file.write_bytes(content)
    stages.restart_all()
    go(stages)
    assert stages.ingest(message("new", "t"))
    go(stages, 91)
    assert whats(stages) == set()
    assert came(stages)[b"new", 0] == 2


def test_a_command_that_nobody_can_follow_is_given_again_by_the_command(stages: Stages) -> None:
    """The row that somebody wrote by hand changes nothing, before and after."""
    put(stages.root, COMMANDS, {"kind": "cancel", "topic": "t", "command_id": "mine"})
    go(stages)
    findings = [each.what for each in examine(stages.root, BEHIND_ALL).findings if each.check == "commands"]
    assert findings == ["command_not_followed"]
    call_off(stages)
    go(stages, 91)
    assert (b"off", 0) not in came(stages)
    assert whats(stages) == set()
