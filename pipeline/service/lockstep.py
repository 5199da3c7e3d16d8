"""A replay's conductor: every stage reaches an instant before the next stage hears of it.

One instant is one release, so the same input gives the same deliveries in the same order, however fast the machine
is. Live stages have no conductor.
"""

from collections.abc import Callable, Sequence

from pipeline.delta.warehouse import Warehouse
from pipeline.service import clock
from pipeline.service.instants import LOOK_S, beside
from pipeline.service.run import Stage
from pipeline.storage.bells import Bells
from pipeline.storage.waiting import Folders


def reach(
    stages: Sequence[Stage], warehouse: Warehouse, instant: int, produce: Callable[[], None] | None = None
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
    names, changes = [clock.hold(path) for path in clocks], beside(warehouse.instants(""))
    try:
        for number, (stage, path, name) in enumerate(zip(stages, clocks, names, strict=True)):
            _until_held(stage, path, name, changes)
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
        changes.close()
        for path in clocks:
            clock.release(path)


def _until_held(stage: Stage, path: str, name: str, changes: Folders | Bells) -> None:
    """Return when a stage waits for its clock, before it looks at its source, or has died; at once without a clock."""
    while stage.clock is not None:
        # The folder first: what changes after this look ends the wait.
        changes.state()
        if clock.is_held(path, name) or not stage.query.isActive:
            return
        changes.wait(LOOK_S)
