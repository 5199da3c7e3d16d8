"""Every command of `docs/operations.md`, against a warehouse with messages, in this process and in one session."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from jobs import main as mains
from jobs import maintain
from jobs.commands import profiles
from jobs.commands import run as running
from jobs.commands import spark as sessions
from pipeline.client.producing.inbox import OutgoingMessage, send
from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from pipeline.client.tables.deliveries import Deliveries
from pipeline.config.profiles import Profile, read_profile
from pipeline.config.settings import VirtualClock
from pipeline.delta.warehouse import Warehouse
from pipeline.service.lockstep import reach
from pipeline.service.run import Stage, stop_all
from tests.support.invoked import invoke
from tests.support.operations import commands, run
from tests.support.spark import lent
from tests.support.stream import at

T0 = 1_700_000_000_000
NEED_A_SESSION = ("run", "rebuild")


@dataclass
class InThisProcess:
    """The commands called as functions. A `run` brings the stages to the next instant of a virtual clock, and ends.

    What takes a session is done once with the same options, whatever folder it names; `tests/soak` does it each time.
    """

    spark: SparkSession
    root: str = ""
    instant: int = T0
    done: set[tuple[str, ...]] = field(default_factory=set)

    def delayline(self, words: tuple[str, ...], *, background: bool) -> int:
        """Run a command; what goes on in the background is what serves."""
        assert background == (words[0] == "run")
        form = tuple(word for word in words if "/" not in word)
        if words[0] in NEED_A_SESSION and form in self.done:
            return 0
        self.done.add(form)
        self.root = words[words.index("--warehouse") + 1]
        result = invoke(list(words))
        assert result.exit_code == 0, f"{words}\n{result.output}\n{result.stderr}"
        return result.exit_code

    def module(self, words: tuple[str, ...]) -> int:
        """The only main of the page."""
        assert words[0] == "jobs.maintain"
        return maintain.main(words[1:])

    def serve(self, stages: list[Stage], *_: object) -> None:
        """Send a message, let all stages do what there is to do, and stop them."""
        self.instant += 60_000
        message = OutgoingMessage("t", f"at {self.instant}".encode(), at(self.instant))
        try:
            # Sent while ingest waits: at an earlier instant of its clock the message would be from the future.
            reach(stages, Warehouse(self.root, self.spark), self.instant, lambda: send(self.root, [message]))
        finally:
            stop_all(stages)

    def profile(self, path: Path | None, *_: object) -> Profile:
        """A profile with a virtual clock, and maintenance by command only."""
        stated = read_profile(path or profiles.PROFILE)
        return replace(stated, options=replace(stated.options, clock=VirtualClock(), upkeep=None))

    def patch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let the commands find the session, the clock and the end of a service."""

        def session(*_: Any, **__: Any) -> SparkSession:  # noqa: ANN401 - whatever the commands hand over
            return self.spark

        monkeypatch.setattr(sessions, "local_session", session)
        monkeypatch.setattr(mains, "local_session", session)
        monkeypatch.setattr(profiles, "profile_from", self.profile)
        monkeypatch.setattr(running, "serve", self.serve)


def test_every_command_of_the_page_does_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is called at night types them; what was sent came once, and is there when a copy was put back."""
    root, copy = str(tmp_path / "warehouse"), str(tmp_path / "copy")
    assert invoke(["init", "--warehouse", root]).exit_code == 0
    subscribe(root, Subscription("t", "s", tick_ms=1, start="earliest"))
    with lent() as spark:
        runner = InThisProcess(spark)
        runner.patch(monkeypatch)
        for command in commands({"W": root, "B": copy}):
            assert run(command, runner) == 0, command.line
    assert {form[0] for form in runner.done} >= {"run", "stop", "rebuild", "doctor", "pending"}
    assert [each.payload.decode() for each in Deliveries(root).take()] == [f"at {runner.instant}"]
