"""A replay's conductor: every stage reaches an instant before the next stage hears of it.

One instant is one release, so the same input gives the same deliveries in the same order, however fast the machine
is. Live stages have no conductor.
"""

import time
from collections.abc import Callable, Sequence

from pipeline.delta.warehouse import Warehouse
from pipeline.service import clock
from pipeline.service.run import Stage
from pipeline.storage.files import Files

_LOOK_S, _LOOK_REMOTE_S = 0.005, 0.05
"""Between two looks at a clock, for a short time: a stage asks its clock soon. A look at a store is a request."""


def reach(
    stages: Sequence[Stage], warehouse: Warehouse, instant: int, produce: Callable[[], object] | None = None
) -> None:
    """Bring stages, in the order in which a message passes them, to an instant (ms UTC).

    All clocks are held but that of the stage whose turn it is, so that a stage takes the instant and what comes with it
    in one batch, and looks for nothing meanwhile. Going to an instant again is harmless: a stage that has been there
    finds nothing to do, one that died on the way finishes.

    Args:
        stages: running stages, with a virtual clock.
        warehouse: where they run.
        instant: not earlier than the last one.
        produce: appends to the inbox what is published up to the instant. Called while ingest waits for its clock:
            what it takes in is then taken in at that instant, and not at the one before.

    Raises:
        StreamingQueryException: a stage failed.
    """
    clocks = [warehouse.instants(stage.name) for stage in stages]
    names = [clock.hold(path) for path in clocks]
    try:
        for number, (stage, path, name) in enumerate(zip(stages, clocks, names, strict=True)):
            _until_held(stage, path, name)
            clock.advance(path, instant)
            # The instant first, though nobody hears of it yet: rows that a killed process leaves behind belong to it.
            if number == 0 and produce is not None:
                produce()
            clock.release(path)
            stage.query.processAllAvailable()
            if stage.clock is None:
                # It had perhaps looked at its source just before. By the second time it has looked again.
                stage.query.processAllAvailable()
            clock.hold(path)
    finally:
        for path in clocks:
            clock.release(path)


def _until_held(stage: Stage, path: str, name: str) -> None:
    """Return when a stage waits for its clock, before it looks at its source, or has died; at once without a clock."""
    pause_s = _LOOK_REMOTE_S if Files().local(path) is None else _LOOK_S
    while stage.clock is not None and not clock.is_held(path, name) and stage.query.isActive:
        time.sleep(pause_s)
