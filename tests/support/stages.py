"""The stages of `delayline.testing`, each of which may die after any step that it notes, and begins anew then."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import copytree
from typing import Any

from pipeline.config.options import Observer, nobody
from pipeline.config.settings import Clock, Settings
from pipeline.config.stages import DISPATCH, SCHEDULE, SETTLE
from pipeline.delta import deltars
from pipeline.settle.sources import Source
from pipeline.settle.stage import Settle
from pipeline.testing.batches import Batches
from pipeline.testing.stages import VIRTUAL
from pipeline.testing.stages import Stages as PlainStages
from schemas import INBOX, REDELIVERY
from tests.support.stream import Killed, empty_warehouse

_SEGMENT_MS = 300_000


class Stages(PlainStages):
    """The stages of one warehouse, each of which may die by itself.

    Attributes:
        steps: what was noted since the last call.
    """

    def __init__(
        self, root: str, settings: Settings | None = None, observe: Observer = nobody, clock: Clock = VIRTUAL
    ) -> None:
        """Make the warehouse, if it is not there; begin the stages when they are called.

        Who observes may let one die, too.
        """
        if not Path(root).exists():
            copytree(empty_warehouse(_SEGMENT_MS), root)
        super().__init__(root, settings, self._note, clock)
        self._others = observe
        self._fatal: str | None = None
        self.steps: list[str] = []

    def die_after(self, step: str | None) -> None:
        """The stage that notes this step next dies."""
        self._fatal = step

    def ingest(self, *rows: dict[str, Any]) -> bool:
        """Append rows to the inbox, and take a batch; whether that was done."""
        if rows:
            deltars.append(self.root, INBOX, deltars.rows_of(INBOX, list(rows)))
        return super().ingest()

    def released(self) -> Iterator[dict[str, Any]]:
        """The rows of `redelivery` of the batch of dispatch that was done last, or that died."""
        book = self._book(DISPATCH)
        last = book.next if book.died else book.next - 1
        if last < 0:
            return
        begin, end = (each.version for each in (book.start(last), book.position(last)))
        source = Source(self.warehouse, REDELIVERY, REDELIVERY.schema.names)
        for _, rows in source.versions(begin - 1, end - 1):
            yield from rows.to_pylist()

    def last_instant(self, stage: str) -> int:
        """The last instant of a query's clock, ms UTC; 0 before the first one."""
        return self._body(SCHEDULE).book.instant if stage == SCHEDULE else self._book(stage).instant

    def ahead(self, stage: str) -> int:
        """The instant at which a stage stands that may not have begun, ms UTC."""
        if stage == SETTLE:
            return Settle(self.warehouse, nobody).instant
        return Batches(self.warehouse, stage).instant

    def _does(self, stage: str, work: Callable[[], object]) -> bool:
        self.steps = []
        try:
            work()
        except Killed:
            self._bodies.pop(stage, None)
            return False
        return True

    def _note(self, step: str, batch: int) -> None:
        self.steps.append(step)
        self._others(step, batch)
        if step == self._fatal:
            self._fatal = None
            raise Killed(f"after {step} of batch {batch}")
