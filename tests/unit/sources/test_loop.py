"""A source at work: what goes wrong beside its query does not end it. No Spark runs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from threading import Event, Semaphore
from typing import Any, cast

import pytest

pytest.importorskip("pyspark", reason="sources are streams of Spark's")
pytest.importorskip("deltalake", reason="the warehouse needs requirements/all.lock")

from pyspark.sql import DataFrame, SparkSession

from pipeline.config.errors import BadSetting, SourceAway
from pipeline.config.options import Options
from pipeline.config.settings import DAY_MS, LiveClock
from pipeline.config.sources import Source
from pipeline.delta.warehouse import Warehouse
from pipeline.sources import loop
from pipeline.sources.door import Place, SourceConnector
from pipeline.sources.loop import SourceLoop
from pipeline.storage.files import Files
from tests.support.client import new_warehouse
from tests.support.examined import wrong


class Nothing(SourceConnector):
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

    def behind(self, progress: Mapping[str, Any]) -> int | str:  # noqa: ARG002 - there is nothing
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


class Away(Files):
    """A store that takes nothing at first."""

    def __init__(self, refused: int) -> None:
        """So many files are not taken."""
        super().__init__()
        self.refused, self.took = refused, Event()

    def write(self, path: str, content: str | bytes, *, lasting: bool = True) -> None:
        """As in `Files`."""
        if self.refused:
            self.refused -= 1
            raise OSError("away")
        super().write(path, content, lasting=lasting)
        if json.loads(content)["error"] is None:
            self.took.set()


def test_a_note_that_cannot_be_written_does_not_leave_the_source_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody would begin its query again when that ends; a store may be away for a while."""
    files = Away(4)
    monkeypatch.setattr(Warehouse, "files", files)
    for name in ("_LOOK_S", "_FIRST_PAUSE_S"):
        monkeypatch.setattr(loop, name, 0.01)
    source = Source("orders", "kafka://h:9092/t")
    session: Any = object()
    made = Counted(Warehouse(str(tmp_path), session), source, Nothing(), Options(LiveClock()))
    made.begin()
    made.watch()
    try:
        assert files.took.wait(60)
        assert made.begun > 1
    finally:
        made.stop()


class PanicException(BaseException):
    """As delta-rs raises it."""


class Refused(Counted):
    """A source that connects, and then cannot begin."""

    def _start(self) -> None:
        raise BadSetting("sources.orders.start", "soon", "earliest")


class Closing(Nothing):
    """Counts how often its connections are let go."""

    closed = 0

    def close(self) -> None:
        """See `SourceConnector`."""
        self.closed += 1


def test_who_cannot_begin_lets_go_of_its_connections_and_of_its_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is left to the garbage collector is closed in the midst of somebody's talk with the JVM, which breaks it."""
    monkeypatch.setattr(Warehouse, "files", Files())
    source = Source("orders", "kafka://h:9092/t")
    door, session = Closing(), cast("Any", object())
    for _ in range(2):
        with pytest.raises(BadSetting):
            Refused(Warehouse(str(tmp_path), session), source, door, Options(LiveClock())).begin()
    assert door.closed == 2


class Panicking(Counted):
    """A source whose query meets a panic when it begins for the first time behind the job."""

    went_on = Event()

    def _start(self) -> None:
        super()._start()
        if self.begun == 2:
            raise PanicException("no more")
        if self.begun > 2:
            self.went_on.set()


def test_a_source_goes_on_after_a_panic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its thread was gone: nobody would begin its query again when that ends."""
    for name in ("_LOOK_S", "_FIRST_PAUSE_S"):
        monkeypatch.setattr(loop, name, 0.01)
    monkeypatch.setattr(Warehouse, "files", Files())
    session: Any = object()
    made = Panicking(
        Warehouse(str(tmp_path), session), Source("orders", "kafka://h:9092/t"), Nothing(), Options(LiveClock())
    )
    made.begin()
    made._begun = False
    made.watch()
    try:
        assert made.went_on.wait(60)
    finally:
        made.stop()


class Repaired(Counted):
    """A source that cannot begin until somebody repairs what it follows."""

    away, failed, went_on = True, Event(), Event()

    def _start(self) -> None:
        if self.away and self.begun:
            self.failed.set()
            raise SourceAway("source.orders.from", "h:9092", "refused")
        super()._start()

    def look(self) -> None:
        """The query ends, until it is begun behind the repair."""
        if self.away:
            raise RuntimeError("the query ended")
        self.went_on.set()


def test_a_source_that_stands_still_goes_on_by_itself_when_what_it_follows_is_repaired(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The doctor says why it stands still, and nothing more once it goes on."""
    root = str(tmp_path)
    new_warehouse(root)
    monkeypatch.setattr(Warehouse, "files", Files())
    for name in ("_LOOK_S", "_FIRST_PAUSE_S", "_LONGEST_PAUSE_S"):
        monkeypatch.setattr(loop, name, 0.01)
    session: Any = object()
    made = Repaired(Warehouse(root, session), Source("orders", "kafka://h:9092/t"), Nothing(), Options(LiveClock()))
    made.begin()
    made.watch()
    try:
        assert made.failed.wait(60)
        assert ("source_stands_still", "orders") in wrong(root)
        made.away = False
        assert made.went_on.wait(60)
    finally:
        made.stop()
    assert wrong(root) == set()


def test_a_query_whose_checkpoint_lasts_is_begun_anew_each_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would hold in memory what its checkpoint has forgotten; one whose checkpoint does not last holds nothing."""
    now = [0]
    monkeypatch.setattr(Warehouse, "files", Files())
    monkeypatch.setattr(loop, "_LOOK_S", 0.01)
    monkeypatch.setattr(loop, "monotonic_ms", lambda: now[0])
    looked, again = Semaphore(0), Semaphore(0)

    class Looked(Counted):
        def _start(self) -> None:
            super()._start()
            self._renew_ms = now[0] + DAY_MS

        def look(self) -> None:
            looked.release()
            again.acquire()

    source, session = Source("orders", "kafka://h:9092/t"), cast("Any", object())
    for lasting, begun in ((True, 2), (False, 1)):
        door, now[0] = Nothing(), 0
        door.lasting = lasting
        made = Looked(Warehouse(str(tmp_path), session), source, door, Options(LiveClock()))
        made.begin()
        made.watch()
        for moment in (DAY_MS - 1, DAY_MS, DAY_MS + 1):
            assert looked.acquire(timeout=60)
            now[0] = moment
            again.release()
        assert looked.acquire(timeout=60)
        assert made.begun == begun
        again.release(100)
        made.stop()
