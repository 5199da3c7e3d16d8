"""Ctrl-C at an odd moment: nothing of ours goes on, and it is not told as another error."""

from __future__ import annotations

import signal
from contextlib import nullcontext
from pathlib import Path
from subprocess import PIPE, Popen
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="a session of Spark is started")
pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")

from pyspark import java_gateway

from jobs import interrupts
from jobs.commands import spark
from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from pipeline.config.session import Machine
from pipeline.subscriptions.policies import Policies
from tests.support.client import new_warehouse
from tests.support.invoked import commands, invoke

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


WAITS = {
    "consume": "jobs.commands.consume._work",
    "list": "jobs.commands.listing.time.sleep",
    "receive": "jobs.commands.receive.time.sleep",
    "top": "jobs.commands.top.time.sleep",
}
"""Where a command that follows waits for more."""


def test_each_command_that_follows_is_known_here() -> None:
    """A new one has to end as the others do."""
    following = {
        name for name, each in commands() if "--follow" in {word for param in each.params for word in param.opts}
    }
    assert following | {"top"} == WAITS.keys()


@pytest.mark.parametrize("command", WAITS)
def test_who_follows_and_is_interrupted_ends_as_every_command_does(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script that was ended by hand must not go on as after an end in good order."""
    root = new_warehouse(str(tmp_path))
    subscribe(root, Subscription("t", "s", policies=Policies(ack=True)))
    monkeypatch.setattr(WAITS[command], lambda *_: signal.raise_signal(signal.SIGINT))
    monkeypatch.setattr("jobs.commands.consume.open_consumer", lambda *_: nullcontext())
    monkeypatch.setattr("jobs.commands.top.sys", SimpleNamespace(stdout=SimpleNamespace(isatty=lambda: True)))
    of = [] if command == "top" else ["--topic", "t", "--subscription", "s"]
    result = invoke([command, *of, *(["--follow"] if command == "list" else []), "--warehouse", root])
    assert (result.exit_code, result.stderr) == (130, "")
