"""Maintenance beside the stages: what one chore meets does not end the others. No Spark runs."""

from __future__ import annotations

import logging
from pathlib import Path
from threading import Event
from typing import Any, cast

import pytest

pytest.importorskip("pyspark", reason="maintenance is made for sessions of Spark")
pytest.importorskip("deltalake", reason="the warehouse needs requirements/all.lock")

from pipeline.config.settings import Upkeep
from pipeline.delta.warehouse import Warehouse
from pipeline.maintenance import upkeep


class PanicException(BaseException):
    """As delta-rs raises it."""


class Panicking:
    """Small files of which a merge panics, but for the third time."""

    def __init__(self) -> None:
        """Nobody has merged."""
        self.asked, self.went_on = 0, Event()

    def merge(self) -> tuple[int, int]:
        """Merge them."""
        self.asked += 1
        if self.asked < 3:
            raise PanicException("no more")
        self.went_on.set()
        return 2, 1


def test_maintenance_goes_on_after_a_panic_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its thread was gone, and nothing was merged, deleted or cut any more until somebody started the job anew."""
    files = Panicking()
    monkeypatch.setattr(upkeep, "SmallFiles", lambda _: files)
    monkeypatch.setattr(upkeep, "_LOOK_S", 0.01)
    with caplog.at_level(logging.ERROR), upkeep.maintaining(Warehouse(str(tmp_path), cast("Any", object())), Upkeep()):
        assert files.went_on.wait(60)
    said = [each for each in caplog.records if each.exc_info is not None and "tried again" in each.message]
    assert len(said) == 2
