"""The planner beside the stages, in a thread of the process that has ingest."""

import logging
from contextlib import AbstractContextManager, nullcontext
from threading import Event

from pipeline.config.options import Options
from pipeline.config.settings import LiveClock
from pipeline.config.threads import beside, panics_raised
from pipeline.config.wallclock import wall_ms
from pipeline.delta.warehouse import Warehouse
from pipeline.planner.planner import Planner
from pipeline.storage.files import Files

_LOOK_S = 1.0
"""Pause between two looks at whether a schedule has changed, or something is to be planned."""
_LONGEST_PAUSE_S = 60.0
"""Pauses become longer while it fails, up to this."""
_LOG = logging.getLogger(__name__)


def planning(warehouse: Warehouse, options: Options) -> AbstractContextManager[None]:
    """Plan what recurs, in a thread, until the block ends. A failure is logged, and the step is done again.

    A replay plans by itself, and a warehouse that only Spark reaches has no schedules.
    """
    if not isinstance(options.clock, LiveClock) or not Files().reaches(warehouse.root):
        return nullcontext()
    planner = Planner(warehouse, wall_ms, options.settings, options.clock.lookahead_ms, options.observe)
    return beside(_keep_planning, planner)


def _keep_planning(planner: Planner, ended: Event) -> None:
    pause = _LOOK_S
    while not ended.wait(pause):
        pause = min(2 * pause, _LONGEST_PAUSE_S)
        try:
            with panics_raised():
                planner.step()
            pause = _LOOK_S
        except OSError as error:
            _LOG.warning("what recurs could not be planned; it is tried again: %s", error)
        except Exception:  # noqa: BLE001 - whatever it is, other messages are delivered without it
            _LOG.exception("what recurs could not be planned; it is tried again")
