"""A subscription that stops to acknowledge, and begins again."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="settle is made for sessions of Spark")
pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")

from pipeline.client.subscribing.policysetting import set_policy
from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from pipeline.delta.deltars import append, open_table, query, rows_of
from pipeline.subscriptions.cursors import NEWEST, by_name
from pipeline.subscriptions.policies import Policies
from schemas import CONSUMER_EVENTS, CURSORS, MESSAGES
from tests.support.stages import Stages
from tests.support.stream import at, message

T0 = 2_000_000_000_000


def step(stages: Stages, *payloads: str) -> None:
    """A second later, with some messages."""
    stages.instant += 1_000
    assert stages.ingest(*map(message, payloads))
    stages.schedule.step(stages.instant)
    assert stages.dispatch()
    assert stages.settle()


def outstanding(stages: Stages) -> int:
    """How many messages wait for an acknowledgement."""
    found = by_name(query(NEWEST.format(rows="t"), t=open_table(stages.root, CURSORS)))
    return found["t", "s"].outstanding().counts.outstanding if ("t", "s") in found else 0


@pytest.mark.parametrize("seen", [True, False])
def test_what_was_settled_stays_settled_when_a_subscription_acknowledges_again(tmp_path: Path, *, seen: bool) -> None:
    """All that was ever acknowledged was outstanding again, and would have come a second time."""
    stages = Stages(str(tmp_path / "warehouse"))
    subscribe(stages.root, Subscription("t", "s", tick_ms=1, policies=Policies.of_map({"ack": "true"})))
    stages.instant = T0
    step(stages)
    step(stages, "a", "b")
    for row in open_table(stages.root, MESSAGES).to_pyarrow_table().to_pylist():
        of = {"topic": "t", "subscription": "s", "life": 1, "ledger_id": row["ledger_id"], "redelivery_count": 0}
        ack = of | {"kind": "ack", "first_entry": row["entry_id"], "last_entry": row["entry_id"], "at": at(0)}
        append(stages.root, CONSUMER_EVENTS, rows_of(CONSUMER_EVENTS, [ack]))
    step(stages)
    assert outstanding(stages) == 0
    assert set_policy(stages.root, "t", "s", ack=False)
    if seen:
        step(stages, "unheard")
    assert set_policy(stages.root, "t", "s", ack=True)
    step(stages, "c")
    assert outstanding(stages) == 1
