"""Lines of the registry that only strangers write: two of one name, a seek to nowhere. They stop nobody."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="settle is made for sessions of Spark")
pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")

from pipeline.delta.deltars import append, open_table, rows_of
from pipeline.doctor.examine import examine
from schemas import DELIVERIES, REJECTED_INGEST, SUBSCRIPTIONS
from tests.support.stages import Stages
from tests.support.stream import message

T0 = 2_000_000_000_000
LAST = {"max_redeliveries": "1"}
"""Of two lines the one with these policies comes last."""


def line(**more: Any) -> dict[str, Any]:  # noqa: ANN401 - columns
    """A line of the registry."""
    columns = {"topic": "t", "subscription": "s", "type": "shared", "start": "latest", "tick_ms": 1, "active": True}
    return columns | {"policies": {"ack": "true"}} | more


@pytest.fixture
def stages(tmp_path: Path) -> Stages:
    """A warehouse without a subscription."""
    found = Stages(str(tmp_path / "warehouse"))
    found.instant = T0
    return found


def goes_on(stages: Stages) -> int:
    """All stages begin anew and take a message; how many deliveries there are."""
    for stage in ("ingest", "dispatch", "settle"):
        stages.restart(stage)
    stages.instant += 1_000
    assert stages.ingest(message(str(stages.instant)))
    stages.schedule.step(stages.instant)
    assert stages.dispatch()
    assert stages.settle()
    return len(open_table(stages.root, DELIVERIES).to_pyarrow_table(columns=["topic"]))


@pytest.mark.parametrize("order", [1, -1])
def test_of_two_lines_of_one_subscription_one_counts_for_everybody(stages: Stages, order: int) -> None:
    """Settle could not say which comes first, and ended at each start."""
    rows = [line(policies={"ack": "true", "max_redeliveries": str(most)}) for most in (1, 2)]
    append(stages.root, SUBSCRIPTIONS, rows_of(SUBSCRIPTIONS, [*rows, line(type="exclusive")][::order]))
    assert stages.ingest()
    assert goes_on(stages) == 1
    assert goes_on(stages) == 2
    assert "two_lines" in {each.what for each in examine(stages.root, stages.instant).findings}


@pytest.mark.parametrize("start", ["9999999999999999999@0:0", "1@9999999999999999999:0", "1@0:4294967296"])
@pytest.mark.parametrize("joined", [False, True])
def test_a_seek_to_what_cannot_be_is_refused(stages: Stages, start: str, *, joined: bool) -> None:
    """Its life, or its ledger, fits no column: ingest ended at each start. A line that can be followed goes on."""
    append(stages.root, SUBSCRIPTIONS, rows_of(SUBSCRIPTIONS, [line(subscription="other"), line()][: 1 + joined]))
    assert stages.ingest()
    append(stages.root, SUBSCRIPTIONS, rows_of(SUBSCRIPTIONS, [line(subscription="lost", start=start)]))
    append(stages.root, SUBSCRIPTIONS, rows_of(SUBSCRIPTIONS, [line(start=start, policies=LAST)]))
    assert goes_on(stages) == 1 + joined
    rows = open_table(stages.root, REJECTED_INGEST).to_pyarrow_table().to_pylist()
    assert {row["reason"] for row in rows} == {"bad_start"}
