"""Ctrl-C at an odd moment: nothing of ours goes on, and it is not told as another error."""

from __future__ import annotations

import signal
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="a session of Spark is started")
pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")

from pyspark import java_gateway

from jobs import interrupts
from jobs.commands import spark
from pipeline.config.session import Machine
from tests.support.client import new_warehouse
from tests.support.invoked import invoke

GATEWAY: Any = java_gateway


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_a_jvm_whose_start_is_interrupted_does_not_stay(
    monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    """It would never see that its parent has ended: the folder in which it leaves its address is gone."""
    begun = list[Popen[bytes]]()

    def starting(*_: Any, **__: Any) -> None:  # noqa: ANN401 - as the real one
        begun.append(GATEWAY.Popen(["sleep", "600"], stdin=PIPE))
        raise error

    launch = GATEWAY.Popen
    monkeypatch.setattr(spark, "need_java", lambda: None)
    monkeypatch.setattr(spark, "kept_session", starting)
    with pytest.raises((KeyboardInterrupt, spark.NoSession)), spark.session("a test", Machine()):
        pytest.fail("it did not start")
    assert begun[0].returncode == -signal.SIGKILL
    assert GATEWAY.Popen is launch


def test_an_interrupt_of_which_a_package_makes_another_error_is_an_interrupt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that comes while pandas is imported is an AttributeError in the end."""

    def importing(*_: Any) -> None:  # noqa: ANN401 - as the real one
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            message = "partially initialized module"
            raise AttributeError(message) from None

    handler = signal.signal(signal.SIGINT, interrupts.end)
    monkeypatch.setattr("pipeline.client.insight.topics.topics", importing)
    try:
        result = invoke(["topics", "--warehouse", new_warehouse(str(tmp_path))])
    finally:
        signal.signal(signal.SIGINT, handler)
        interrupts._CAME.clear()
    assert (result.exit_code, result.output) == (130, "")
