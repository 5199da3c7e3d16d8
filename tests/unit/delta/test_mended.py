"""Tables that DataFusion cannot read as they are: who asks gets an answer all the same."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

from pipeline.client.insight.pending import pending_by_key
from pipeline.client.insight.trace import trace
from pipeline.client.subscribing.subscriptions import Subscription, subscribe, subscriptions
from pipeline.client.tables.deliveries import Deliveries
from pipeline.delta.deltars import arrow_of, open_table, query
from pipeline.subscriptions.incarnations import Sought
from schemas import COMMANDS, DELIVERIES, MESSAGES, SUBSCRIPTIONS
from tests.support import strangers
from tests.support.client import delivery_row, message_row, new_warehouse, noticed, put

BROKEN = b"k\xff"


def test_texts_that_are_none_and_null_where_none_may_be_are_answered_for(tmp_path: Path) -> None:
    """Columns of any condition and of any order; what else goes wrong is raised."""
    root = new_warehouse(str(tmp_path))
    strangers.put(root, COMMANDS, {"command_id": b"a"}, {"command_id": BROKEN, "reason": b"why"})
    found = query("SELECT command_id FROM t WHERE reason = 'why'", t=open_table(root, COMMANDS))
    assert found == [{"command_id": "k\ufffd"}]
    assert arrow_of("SELECT * FROM t ORDER BY command_id", t=open_table(root, COMMANDS)).num_rows == 2
    strangers.put(root, SUBSCRIPTIONS, {"topic": b"t"})
    found = query("SELECT topic, active FROM t", t=open_table(root, SUBSCRIPTIONS))
    assert found == [{"topic": "t", "active": None}]
    with pytest.raises(Exception, match="nobody"):
        query("SELECT nobody FROM t", t=open_table(root, COMMANDS))


def test_keys_that_an_earlier_version_took_over_stop_no_client(tmp_path: Path) -> None:
    """They are in `messages` and `deliveries` for as long as these rows stay."""
    root = new_warehouse(str(tmp_path))
    subscribe(root, Subscription("t", "s", tick_ms=1))
    noticed(root, "s", 0)
    bad, good = message_row(1, 0, 9_000), message_row(1, 1, 9_000) | {"message_key": "k"}
    put(root, MESSAGES, good)
    strangers.put(root, MESSAGES, in_us(bad) | {"message_key": BROKEN})
    strangers.put(root, DELIVERIES, in_us(delivery_row(bad)) | {"message_key": BROKEN})
    assert [each.sent.position for each in trace(root, "t", key="k")] == [(1, 1)]
    assert {each.key for each in pending_by_key(root, "t")} == {"k"}
    assert [each.key for each in Deliveries(root).take("t", "s")] == ["k\ufffd"]


def in_us(row: dict[str, object]) -> dict[str, object]:
    """Times as numbers."""
    epoch = datetime.fromtimestamp(0, UTC)
    return {
        name: round((each - epoch).total_seconds() * 1e6) if isinstance(each, datetime) else each
        for name, each in row.items()
    }


def test_lines_of_the_registry_that_nobody_can_follow_are_left_out(tmp_path: Path) -> None:
    """Other lines are read as before."""
    root = new_warehouse(str(tmp_path))
    subscribe(root, Subscription("t", "s"))
    line = {"topic": b"t", "type": b"shared", "start": b"latest", "tick_ms": 1, "active": True}
    strangers.put(root, SUBSCRIPTIONS, line | {"subscription": b"\xff"}, line, line | {"subscription": b"x" * 20_000})
    assert [each.named for each in subscriptions(root)] == [("t", "s")]
    assert Sought.of_text("9999999999999999999@0:0") is Sought.of_text("1@1:9999999999") is None
    assert Sought.of_text("2@3:4") == Sought(2, 3, 4)


def test_a_table_of_others_is_copied_whole_where_all_is_asked_for(tmp_path: Path) -> None:
    """Tables that a guard reads have any columns."""
    rows = strangers.table_of(COMMANDS, [{"kind": BROKEN, "reason": b"b"}]).select(["kind", "reason"])
    root = new_warehouse(str(tmp_path))
    strangers.write(root, COMMANDS, rows)
    found = query("SELECT c.* FROM c", c=open_table(root, COMMANDS))
    assert [(row["kind"], row["reason"], row["at"]) for row in found] == [("k\ufffd", "b", None)]
