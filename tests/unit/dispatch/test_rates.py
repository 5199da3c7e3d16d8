"""A subscription with a rate, on the stages without a JVM: what comes in each second, whatever was there before."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

from pipeline.client.commanding.commands import cancel
from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from pipeline.delta.deltars import open_table, query
from pipeline.subscriptions.policies import Policies
from schemas import DELIVERIES
from tests.support.stages import Stages
from tests.support.stream import message

T0, SECOND, HOUR = 2_000_000_000_000, 1_000, 3_600_000
RATE = 10


@pytest.fixture
def stages(tmp_path: Path) -> Stages:
    """One message of a subscription with a rate has come."""
    found = Stages(str(tmp_path / "warehouse"))
    subscribe(found.root, Subscription("t", "s", tick_ms=1, policies=Policies(max_rate=RATE)))
    turn(found, T0)
    turn(found, T0 + SECOND, "first")
    turn(found, T0 + 2 * SECOND)
    assert came(found) == ["first"]
    return found


def turn(stages: Stages, instant: int, *names: str) -> None:
    """Move the clock; messages are sent that are due at once; each stage does what there is."""
    stages.instant = instant
    rows = [{**message(name, "t"), "message_key": name} for name in names]
    assert stages.ingest(*rows)
    stages.schedule.step(instant)
    while stages.has_dispatch:
        assert stages.dispatch()


def came(stages: Stages) -> list[str]:
    """What was delivered, in order."""
    rows = query("SELECT payload FROM d ORDER BY batch_id, sequence", d=open_table(stages.root, DELIVERIES))
    return [row["payload"].decode() for row in rows]


@pytest.mark.parametrize("restarts", [False, True])
def test_what_is_due_at_once_after_a_rest_comes_at_the_rate(stages: Stages, *, restarts: bool) -> None:
    """All of it came at once: the rest was taken for time in which nothing had come."""
    names = [f"{number:03}" for number in range(45)]
    begin = T0 + HOUR
    turn(stages, begin, *names)
    for second in range(1, 6):
        if restarts and second == 3:
            stages.restart("dispatch")
        turn(stages, begin + second * SECOND)
        if not restarts:
            assert came(stages)[1:] == names[: second * RATE]
        assert len(came(stages)) - 1 <= second * RATE
    if restarts:
        turn(stages, begin + 6 * SECOND)
    assert came(stages)[1:] == names


def test_what_is_cancelled_uses_up_nothing_of_a_rate_and_saves_nothing_up(stages: Stages) -> None:
    """The messages behind it neither wait for its share nor come in a burst."""
    names = [f"{number:03}" for number in range(100)]
    begin = T0 + HOUR
    turn(stages, begin, *names)
    chosen = cancel(stages.root, "t", "s", where="message_key < '060'")
    assert chosen.selection.count == 60
    for second in range(1, 5):
        turn(stages, begin + second * SECOND)
        assert came(stages)[1:] == names[60 : 60 + second * RATE]
