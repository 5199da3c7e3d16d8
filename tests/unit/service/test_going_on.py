"""Stages whose query ended of something that passes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from types import SimpleNamespace
from typing import Any, cast

import pytest

pytest.importorskip("delta", reason="stages are started by Spark")

from pipeline.service.process import going_on
from pipeline.service.run import Stage

BUSY = "org.apache.spark.SparkException: Python worker failed to connect back."


@dataclass
class Query:
    """A query that ended; `worked` when a batch of it ended before."""

    error: str
    worked: bool = False
    isActive: bool = False  # noqa: N815 - Spark's name

    @property
    def lastProgress(self) -> object | None:  # noqa: N802 - Spark's name
        """What it says of its last batch."""
        return object() if self.worked else None

    def exception(self) -> Exception | None:
        """What it died of."""
        return RuntimeError(self.error)

    def stop(self) -> None:
        """It ended already."""


def stage(queries: Iterator[Query]) -> Stage:
    """A stage that has the next of some queries whenever it is started."""
    lock = SimpleNamespace(release=lambda: None)
    return Stage("ingest", cast("Any", next(queries)), cast("Any", lock), again=lambda: stage(queries))


def test_a_worker_that_did_not_start_in_time_is_tried_again() -> None:
    """A machine that is busy for a minute ends no service."""
    begun = going_on(stage(iter((Query(BUSY), Query("", isActive=True)))))
    assert begun.failure is None


def test_a_python_that_never_starts_ends_the_stage() -> None:
    """Three times in a row: then the reason is said, and whoever runs it can look."""
    starts = count()
    queries = (Query(BUSY) for _ in starts)
    found = stage(queries)
    for _ in range(5):
        found = going_on(found)
    assert BUSY in str(found.failure)
    assert next(starts) == 3


def test_starts_are_counted_from_the_last_batch_that_ended() -> None:
    """A service that runs for a year meets more than three busy minutes."""
    starts = count()
    queries = (Query(BUSY, worked=True) for _ in starts)
    found = stage(queries)
    for _ in range(5):
        found = going_on(found)
    assert next(starts) == 6


def test_another_error_ends_the_stage() -> None:
    """What does not pass by itself is not repeated."""
    ended = stage(iter((Query("disk full", worked=True),)))
    assert going_on(ended) is ended
