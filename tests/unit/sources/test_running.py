"""All sources of a profile, while a block runs. No Spark runs."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyspark", reason="sources are streams of Spark's")
pytest.importorskip("deltalake", reason="the warehouse needs requirements/all.lock")

from pipeline.config.options import Options
from pipeline.config.settings import LiveClock
from pipeline.config.sources import Source
from pipeline.delta.warehouse import Warehouse
from pipeline.sources import running

NAMES = ("first", "second", "third")


class Stops:
    """In the place of a source at work: it is stopped, and one of them cannot note that."""

    stopped: list[str]

    def __init__(self, _warehouse: Any, source: Source, *_: Any) -> None:  # noqa: ANN401 - not looked at
        """It has a name."""
        self._name = source.name

    def begin(self) -> None:
        """It begins."""

    def watch(self) -> None:
        """It runs."""

    def stop(self) -> None:
        """The store is away just then."""
        self.stopped.append(self._name)
        if self._name == NAMES[1]:
            raise OSError("away")


def test_all_sources_are_stopped_when_one_of_them_cannot_note_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The queries of the others would run on, and their locks would stay taken."""
    monkeypatch.setattr(Stops, "stopped", [], raising=False)
    monkeypatch.setattr(running, "SourceLoop", Stops)
    session: Any = None
    sources = [Source(name, "kafka://h:9092/t") for name in NAMES]
    following = running.following(Warehouse("w", session), sources, Options(LiveClock()))
    with pytest.raises(OSError, match="away"), following as loops:
        assert len(loops) == len(NAMES)
    assert sorted(Stops.stopped) == sorted(NAMES)
