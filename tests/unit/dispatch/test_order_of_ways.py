"""What went by the schedule and what went past it is read in the order in which dispatch let it go."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

pytest.importorskip("deltalake", reason="the warehouse needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the stages need requirements/all.lock")

from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from pipeline.client.tables.datarows import ORDER
from pipeline.config.settings import LiveClock
from pipeline.delta.deltars import open_table, query
from schemas import DELIVERIES
from tests.support.job import Clocks
from tests.support.stages import Stages
from tests.support.stream import message

T0 = 1_700_000_000_000


@pytest.mark.parametrize("between", [(), ("dispatch",), ("restart_all",), ("dispatch", "restart_all")])
def test_messages_of_one_instant_are_read_as_they_were_sent(tmp_path: Path, between: tuple[str, ...]) -> None:
    """The first one goes by the schedule, since somebody has just joined, and the second one past it."""
    clocks, stages = Clocks(T0), Stages(str(tmp_path / "warehouse"), clock=LiveClock())

    def take(payload: str) -> None:
        stages.instant = T0
        assert stages.ingest(message(payload, deliver_at=T0))

    with clocks.in_force():
        stages.ingest()
        subscribe(stages.root, Subscription("t", "s", "shared", tick_ms=1))
        take("m1")
        stages.schedule.step(T0 + 8_000)
        for step in between:
            getattr(stages, step)()
        take("m2")
        assert stages.dispatch()
    assert read_in_order(stages) == [("due", "m1"), ("express", "m2")]


def read_in_order(stages: Stages) -> list[tuple[str, str]]:
    """Why each delivery came, and its payload, in the order of readers."""
    in_order = f"SELECT cause, CAST(payload AS VARCHAR) AS payload FROM t ORDER BY {', '.join(ORDER)}"  # noqa: S608 - our own words
    return [(each["cause"], each["payload"]) for each in query(in_order, t=open_table(stages.root, DELIVERIES))]


STEPS = st.tuples(st.integers(0, 700), st.sampled_from(("", "dispatch", "restart_all")))


@given(
    tick=st.sampled_from((1, 100, 1_000, 4_000)),
    late=st.integers(0, 3),
    begin=st.integers(0, 1_023),
    gaps=st.lists(STEPS, min_size=2, max_size=5),
)
@example(tick=1_000, late=0, begin=10, gaps=[(50, ""), (50, "dispatch"), (50, "restart_all"), (50, "")])
@example(tick=4_000, late=2, begin=10, gaps=[(50, ""), (50, ""), (50, ""), (50, "dispatch"), (50, "")])
@settings(max_examples=6, deadline=None)
def test_what_is_due_at_once_is_read_as_it_was_sent(
    tmp_path_factory: pytest.TempPathFactory, tick: int, late: int, begin: int, gaps: list[tuple[int, str]]
) -> None:
    """Some goes by the schedule and waits for the end of its tick: with who joins, and while the schedule is late."""
    clocks = Clocks(T0 + begin)
    stages = Stages(str(tmp_path_factory.mktemp("w") / "warehouse"), clock=LiveClock())
    with clocks.in_force():
        stages.ingest()
        subscribe(stages.root, Subscription("t", "s", "shared", tick_ms=tick))
        for number, (gap, step) in enumerate(gaps):
            clocks.go_on(gap)
            stages.instant = clocks.wall
            assert stages.ingest(message(f"m{number}", deliver_at=clocks.wall))
            if number >= late:
                stages.schedule.step(clocks.wall + 8_000)
            if step:
                getattr(stages, step)()
        clocks.go_on(20_000)
        stages.instant = clocks.wall
        stages.schedule.step(clocks.wall)
        assert stages.dispatch()
        assert stages.publish()
    assert [payload for _, payload in read_in_order(stages)] == [f"m{number}" for number in range(len(gaps))]
