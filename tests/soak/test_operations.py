"""Every command of `docs/operations.md` as a process of its own, and the doctor beside stages that run."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from pipeline.client.producing.inbox import OutgoingMessage, send
from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from pipeline.client.tables.deliveries import Deliveries
from tests.support.modules import ROOT
from tests.support.operations import commands, run

COMMAND = (sys.executable, "-m", "jobs.cli")
PATIENCE_S = 240


@dataclass
class Processes:
    """Starts each command; one that goes on is waited for until its stages are up, and until its end by `stop`."""

    log: Path
    service: subprocess.Popen[str] | None = None
    sent: list[bytes] = field(default_factory=list)

    def delayline(self, words: tuple[str, ...], *, background: bool) -> int:
        """Run a command to its end, or start the stages and send them a message."""
        if background:
            return self._start(words)
        code = subprocess.run([*COMMAND, *words], cwd=ROOT, check=False, timeout=PATIENCE_S).returncode  # noqa: S603
        if words[0] == "stop" and self.service is not None:
            code = code or self.service.wait(PATIENCE_S)
            self.service = None
        return code

    def module(self, words: tuple[str, ...]) -> int:
        """Run a main to its end."""
        return subprocess.run([sys.executable, "-m", *words], cwd=ROOT, check=False, timeout=PATIENCE_S).returncode  # noqa: S603

    def _start(self, words: tuple[str, ...]) -> int:
        with self.log.open("a") as file:
            before = self.log.read_text().count("Running on")
            self.service = subprocess.Popen([*COMMAND, *words], cwd=ROOT, stderr=file, text=True)  # noqa: S603
        for _ in range(PATIENCE_S * 5):
            if self.log.read_text().count("Running on") > before:
                break
            assert self.service.poll() is None, self.log.read_text()
            time.sleep(0.2)
        self.sent.append(b"%d" % len(self.sent))
        send(words[words.index("--warehouse") + 1], [OutgoingMessage("t", self.sent[-1])])
        return 0


def test_every_command_of_the_page_does_what_it_says(tmp_path: Path) -> None:
    """As somebody types them, on the wall clock; nothing comes twice."""
    root = str(tmp_path / "warehouse")
    runner = Processes(tmp_path / "run.log")
    assert runner.delayline(("init", "--warehouse", root), background=False) == 0
    subscribe(root, Subscription("t", "s", tick_ms=1, start="earliest"))
    try:
        for command in commands({"W": root, "B": str(tmp_path / "copy")}):
            print(command.line)
            assert run(command, runner) == 0, command.line
            if command.background:
                looked(root if Path(root).is_dir() else f"{root}.new")
        assert runner.delayline(("stop", "--warehouse", root), background=False) == 0
    finally:
        if runner.service is not None:
            runner.service.terminate()
            runner.service.wait(PATIENCE_S)
    got = [each.payload for each in Deliveries(root).take()]
    assert len(got) == len(set(got))


def looked(root: str) -> None:
    """Nothing is wrong while the stages work."""
    for _ in range(5):
        said = subprocess.run(  # noqa: S603 - our own command
            [*COMMAND, "doctor", "--warehouse", root, "--json"], cwd=ROOT, check=False, capture_output=True, text=True
        )
        assert said.returncode == 0, json.loads(said.stdout)["findings"]
