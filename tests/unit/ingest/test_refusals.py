"""Whoever runs the job hears of what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="ingest is made for sessions of Spark")
pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")

from pipeline.config.options import StageListener
from pipeline.config.stages import INGEST
from tests.support.stages import Stages
from tests.support.stream import message

T0 = 2_000_000_000_000
LONG = 11 * 366 * 86_400_000


def test_what_is_refused_is_said_while_it_happens(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """By reason, a line for each batch that refuses something; and to who watches."""
    reported = dict[str, int]()

    class Recorder(StageListener):
        def rejected(self, reason: str, count: int) -> None:
            reported[reason] = count

    stages = Stages(str(tmp_path / "warehouse"))
    stages._body(INGEST).watch = Recorder()
    stages.instant = T0
    assert stages.ingest(message("good"))
    assert caplog.messages == []
    rows = [message("a", after=LONG), message("b", after=LONG), message("c", after=-1), message("d")]
    assert stages.ingest(*rows)
    assert caplog.messages == ["inbox: messages are refused, by reason: 2 max_delay_exceeded, 1 negative_delay"]
    assert reported == {"max_delay_exceeded": 2, "negative_delay": 1}
