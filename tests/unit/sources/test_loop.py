"""A source at work: what goes wrong beside its query does not end it. No Spark runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from threading import Event
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="sources are streams of Spark's")
pytest.importorskip("deltalake", reason="the warehouse needs requirements/all.lock")

from pyspark.sql import DataFrame, SparkSession

from pipeline.config.options import Options
from pipeline.config.settings import LiveClock
from pipeline.config.sources import Source
from pipeline.delta.warehouse import Warehouse
from pipeline.sources import loop
from pipeline.sources.door import Door, Place
from pipeline.sources.loop import SourceLoop
from pipeline.storage.files import Files
from pipeline.subscriptions.sourcestates import SourceState, SourceStates


class Nothing(Door):
    """A system that has no rows."""

    position = "'nowhere'"

    def check(self, spark: SparkSession) -> None:
        """It is there."""

    def latest(self, spark: SparkSession) -> Place:  # noqa: ARG002 - a door is asked with the session
        """The beginning."""
        return {}

    def stream(self, spark: SparkSession, after: Place | None) -> DataFrame:
        """Nobody asks."""
        raise NotImplementedError

    def behind(self, told: Mapping[str, Any]) -> int | str:  # noqa: ARG002 - there is nothing
        """Never."""
        return 0


class Counted(SourceLoop):
    """A source whose query is counted, and runs in nobody's session."""

    begun = 0

    def _start(self) -> None:
        self.begun += 1
        self._begun = True

    def look(self) -> None:
        """It runs."""


def test_a_note_that_cannot_be_written_does_not_leave_the_source_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody would begin its query again when that ends; a store may be away for a while."""
    monkeypatch.setattr(loop, "session_files", lambda _: Files())
    for name in ("_LOOK_S", "_FIRST_PAUSE_S"):
        monkeypatch.setattr(loop, name, 0.01)
    notes, came, put = iter([OSError("away")] * 4), Event(), SourceStates.put

    def noted(self: SourceStates, state: SourceState) -> None:
        if (error := next(notes, None)) is not None:
            raise error
        put(self, state)
        if state.error is None:
            came.set()

    monkeypatch.setattr(SourceStates, "put", noted)
    source = Source("orders", "kafka://h:9092/t")
    session: Any = None
    made = Counted(session, Warehouse(str(tmp_path)), source, Nothing(), Options(LiveClock()))
    made.begin()
    made.watch()
    try:
        assert came.wait(60)
        assert made.begun > 1
    finally:
        made.stop()
