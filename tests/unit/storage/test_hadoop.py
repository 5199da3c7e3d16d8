"""Hadoop's file systems, without a JVM: what is done when a store says `try again`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the JVM's file systems need requirements/all.lock")

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

from pipeline.service.outages import no_answer
from pipeline.storage.hadoop import HadoopFiles


class Conflict(Py4JJavaError):  # type: ignore[misc] # Py4J has no types
    """What Hadoop's connector says of 409."""

    def __init__(self) -> None:
        """Without a JVM."""
        kind = SimpleNamespace(getName=lambda: "org.apache.hadoop.fs.s3a.AWSS3IOException")
        self.java_exception = SimpleNamespace(getClass=lambda: kind)

    def __str__(self) -> str:
        """The text of the store."""
        return "ConditionalRequestConflict (Service: S3, Status Code: 409)"


class Crowded:
    """A store in which so many puts meet another one."""

    def __init__(self, conflicts: int) -> None:
        self.conflicts, self.puts = conflicts, 0

    def createFile(self, _: object) -> Any:  # noqa: ANN401, N802 - Hadoop's name
        """A stream to an object."""
        built: Any = SimpleNamespace(build=lambda: SimpleNamespace(write=lambda _: None, close=self._close))
        built.must = built.opt = lambda *_: built
        return built

    def _close(self) -> None:
        self.puts += 1
        if self.puts <= self.conflicts:
            raise Conflict


def files_of(store: Crowded, monkeypatch: pytest.MonkeyPatch) -> HadoopFiles:
    """The store, as Hadoop reaches it."""
    monkeypatch.setattr(HadoopFiles, "_system", lambda *_: store)
    monkeypatch.setattr(HadoopFiles, "_path", lambda _, path: path)
    return HadoopFiles.__new__(HadoopFiles)


def test_a_put_that_meets_others_waits_longer_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a pause each of those who meet makes it more likely that they meet again."""
    pauses = list[float]()
    store = Crowded(4)
    assert files_of(store, monkeypatch).create("s3a://b/a", "x", pauses.append)
    assert (store.puts, len(pauses)) == (5, 4)
    assert pauses[0] < 0.05 < pauses[-1]


def test_a_put_that_meets_others_without_an_end_is_a_store_that_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A stage then waits for its store, as long as for any other trouble, instead of asking as fast as it can."""
    pauses = list[float]()
    with pytest.raises(Conflict) as ended:
        files_of(Crowded(10**9), monkeypatch).create("s3a://b/a", "x", pauses.append)
    assert 2 < sum(pauses) < 12
    assert no_answer(ended.value) is not None
