"""Maintenance beside the stages, in a thread: a round from time to time, and what cannot wait for one.

A release opens each file of `messages` in which something may be due, and a file that ingest has just written spans
all delays there are. A round comes too seldom for that: at 5 000 messages a second there are 480 such files after ten
minutes (decision 0019). So small files of `messages` are merged as they come. Delta lists the log of a table with each
batch, and its cost grows with it: what nobody needs of it goes every minute (decision 0021).
"""

import logging
import time
from contextlib import AbstractContextManager, closing
from threading import Event

from pipeline.config.errors import StageRunning
from pipeline.config.settings import SECOND_MS, Upkeep
from pipeline.config.threads import beside, panics_raised
from pipeline.config.wallclock import wall_ms
from pipeline.delta.warehouse import Warehouse
from pipeline.maintenance.layout import SmallFiles
from pipeline.maintenance.rounds import VACUUMING, cut_logs, maintain
from schemas import MESSAGES, TABLES

_LOOK_S = 5.0
"""Pause between two looks at the files that came."""
_CUT_S = 60.0
"""Pause between two cuts of logs."""
_LOG = logging.getLogger(__name__)


def maintaining(warehouse: Warehouse, upkeep: Upkeep) -> AbstractContextManager[None]:
    """Maintain in a thread until the block ends. A failure is logged: the stages do without.

    Args:
        warehouse: where they run.
        upkeep: how often a round is done, and what is kept.
    """
    return beside(_keep_maintaining, warehouse, upkeep)


def _keep_maintaining(warehouse: Warehouse, upkeep: Upkeep, ended: Event) -> None:
    work = _Work(warehouse, upkeep, ended)
    pauses = {work.merge: _LOOK_S, work.cut_logs: _CUT_S, work.round: upkeep.every_ms / SECOND_MS}
    due = {chore: time.monotonic() + pause for chore, pause in pauses.items()}
    while True:
        chore = min(due, key=lambda each: due[each])
        if ended.wait(max(0.0, due[chore] - time.monotonic())):
            return
        try:
            with panics_raised():
                chore()
        except StageRunning:
            _LOG.info("another round of maintenance is on its way")
        except OSError as error:
            _LOG.warning("maintenance failed; it is tried again later: %s", error)
        except Exception:  # noqa: BLE001 - whatever it is, messages are delivered without it
            _LOG.exception("maintenance failed; it is tried again later")
        due[chore] = time.monotonic() + pauses[chore]


class _Work:
    """What is done from time to time."""

    def __init__(self, warehouse: Warehouse, upkeep: Upkeep, ended: Event) -> None:
        self._warehouse, self._upkeep, self._ended = warehouse, upkeep, ended
        self._small = SmallFiles(warehouse)
        # Nobody knows what an earlier process left.
        self._cut = {table.name for table in TABLES}

    def merge(self) -> None:
        """Small files of `messages`."""
        merged, into = self._small.merge()
        if merged:
            _LOG.info("%s: %d files became %d", MESSAGES.name, merged, into)

    def cut_logs(self) -> None:
        """Logs that stages follow; the files that only they named wait for the next round."""
        with closing(cut_logs(self._warehouse, self._upkeep, wall_ms())) as work:
            for name in work:
                self._cut.add(name)

    def round(self) -> None:
        """All that there is to do, unless the block ends meanwhile."""
        with closing(maintain(self._warehouse, self._upkeep, wall_ms(), self._cut)) as work:
            for done in work:
                _LOG.info("%s", done)
                if not any(step.startswith(VACUUMING) for step in done.failed):
                    self._cut.discard(done.table)
                if self._ended.is_set():
                    return
