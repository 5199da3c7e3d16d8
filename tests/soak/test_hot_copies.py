"""A warehouse is copied part by part while its stages go on, die and stay away; the copy is rebuilt, and goes on."""

from __future__ import annotations

from pathlib import Path
from shutil import Error, copytree, rmtree

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule, run_state_machine_as_test

from pipeline.config.options import Options
from pipeline.config.settings import SECOND_MS
from pipeline.config.stages import STAGES
from pipeline.delta.warehouse import Warehouse
from pipeline.service.rebuild import rebuild
from tests.support.changed_minds import Place
from tests.support.job import Job
from tests.support.operated import Operated
from tests.support.spark import session
from tests.support.stages import Stages

PARTS = (
    *("_checkpoints", "cursors", "held", "deliveries", "publications", "rejected_dispatch"),
    *("redelivery", "rejected_schedule", "closed", "rejected_settle"),
    *("segments", "rejected_ingest", "consumer_events", "commands"),
    *("messages", "inbox", "subscriptions"),
)
"""In the order that `docs/operations.md` says."""


class Copied(Operated):
    """Beside all others somebody makes such copies; each is rebuilt by Spark, and then the stages go on there."""

    parts = 0
    """How many parts are copied."""
    cuts = property(lambda self: self.parts == 0)
    """While a copy is made no log is cut at once, as the rules do: a job keeps two minutes of it."""
    number = 0
    """How many copies were made."""
    kept: dict[str, int]

    @rule(count=st.integers(1, 6))
    def copy_parts(self, count: int) -> None:
        """The next parts are copied; when a file went meanwhile, the copy is begun again."""
        try:
            for name in PARTS[self.parts : self.parts + count]:
                if name == "inbox":
                    self.kept = dict(self.sent)
                if (source := Path(self.stages.root, name)).exists():
                    copytree(source, Path(self.live, name))
                self.parts += 1
        except Error:
            self.begin_copy()

    @precondition(lambda self: self.parts == len(PARTS))
    @rule()
    def go_on_there(self) -> None:
        """The copy is rebuilt. What was sent after `inbox` was copied is not in it."""
        root = self.live
        for stage in STAGES:
            rebuild(Warehouse(root, session()), stage, Options(self.stages.clock, self.stages.settings))
        self.stages = Stages(root, self.stages.settings, clock=self.stages.clock)
        self.job = Job(self.stages, self.job.clocks)
        self.sent, self.listed, self.parts, self.number = self.kept, None, 0, self.number + 1
        self.seen.clear()
        self.follow()

    @precondition(lambda self: self.parts == 0 and hasattr(self, "_copied"))
    @rule()
    def restore(self) -> None:
        """Nobody puts a copy back while another one is made."""
        self.put_back()

    def say(self, of: Place, kind: str) -> None:
        """While a copy is made nothing fails: the copy may lack the release of what failed, or have what it says."""
        super().say(of, "ack" if self.parts else kind)

    def end(self) -> None:
        """The last copy is made while the stages go on, and everything comes to its end there."""
        while self.parts < len(PARTS):
            self.copy_parts(4)
            self.go_on(40 * SECOND_MS)
        self.go_on_there()
        super().end()

    def begin_copy(self) -> None:
        """Forget what was copied."""
        rmtree(self.live, ignore_errors=True)
        self.parts = 0

    @property
    def live(self) -> str:
        """The folder of the next copy."""
        return f"{self.folder}/live{self.number}"


def test_a_copy_of_running_stages_goes_on_and_each_message_comes_once() -> None:
    """Whatever happens between two parts."""
    examples = max(6, settings().max_examples // 100)
    bounds = settings(stateful_step_count=25, max_examples=examples, suppress_health_check=list(HealthCheck))
    run_state_machine_as_test(Copied, settings=bounds)
