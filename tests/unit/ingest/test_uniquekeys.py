"""What may be with dispatch already, so that no newer message takes its place; and what is not found again."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

from pipeline.client.subscribing.policysetting import set_policy
from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from pipeline.config.options import Options
from pipeline.config.settings import Clock, LiveClock, Settings, VirtualClock
from pipeline.config.zones import OtherRules
from pipeline.delta.reading.messages import MessageLog
from pipeline.delta.warehouse import Warehouse
from pipeline.ingest.uniquekeys import UniqueKeys
from pipeline.service.run import taking_in
from state.units import Ms
from tests.support.client import new_warehouse
from tests.support.examined import NOW, checkpoint
from tests.support.stages import Stages
from tests.support.stream import message


def keys(root: str, clock: Clock) -> UniqueKeys:
    """Those of ingest by a clock; what is due within a second goes express."""
    warehouse = Warehouse(root)
    options = taking_in(Options(clock, Settings(express_ms=1_000)))
    return UniqueKeys(warehouse, MessageLog(warehouse), options)


def test_a_live_schedule_runs_ahead_and_takes_its_next_step_meanwhile(tmp_path: Path) -> None:
    """It was told an instant, and steps by half of its lookahead; what goes express may be further ahead."""
    root = str(tmp_path)
    new_warehouse(root)
    live = keys(root, LiveClock(lookahead_ms=10_000))
    assert live.taken(Ms(NOW)) == NOW + 1_000
    checkpoint(root, "schedule", 0, 1)
    assert live.taken(Ms(NOW - 9_000)) == NOW + 5_000
    assert live.taken(Ms(NOW + 9_000)) == NOW + 10_000


def test_a_virtual_schedule_does_not_run_ahead(tmp_path: Path) -> None:
    """Whatever it was told before."""
    root = str(tmp_path)
    new_warehouse(root)
    checkpoint(root, "schedule", 0, 1)
    assert keys(root, VirtualClock()).taken(Ms(NOW - 9_000)) == NOW - 8_000


def test_what_a_window_put_off_is_replaced_by_the_rules_of_zones_of_its_batch_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By others it would have another position, and something else would be left out."""
    stages = Stages(str(tmp_path / "warehouse"))
    subscribe(stages.root, Subscription("t", "s", tick_ms=1))
    set_policy(stages.root, "t", unique="replace", window="Mo-Su 08:00-20:00", window_zone="Europe/Rome")
    stages.instant = NOW
    assert stages.ingest({**message("older", after=90_000), "message_key": "a"})
    stages.instant += 1_000
    with monkeypatch.context() as then:
        then.setattr("pipeline.ingest.stage.RULES", "1999a")
        stages.die_after("ingest.messages")
        assert not stages.ingest({**message("newer", after=90_000), "message_key": "a"})
    with pytest.raises(OtherRules) as refused:
        stages.ingest()
    assert refused.value.allowed.startswith("1999a")
