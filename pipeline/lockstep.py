"""A replay's conductor: every stage reaches an instant before the next stage hears of it.

One instant is one release, so the same input gives the same deliveries in the same order, however fast the machine
is. Live stages have no conductor.
"""

from collections.abc import Callable, Sequence

from pipeline import clock
from pipeline.run import Stage
from pipeline.tables import Warehouse


def reach(
    stages: Sequence[Stage], warehouse: Warehouse, instant: int, produce: Callable[[], None] | None = None
) -> None:
    """Bring stages, in the order in which a message passes them, to an instant (ms UTC).

    Going to an instant again is harmless: a stage that has been there finds nothing to do, one that died on the way
    finishes.

    Args:
        stages: running stages, with a virtual clock.
        warehouse: where they run.
        instant: not earlier than the last one.
        produce: appends to the inbox what is published up to the instant. Called when ingest knows the instant and not
            before: what it takes in is then taken in at that instant.

    Raises:
        StreamingQueryException: a stage failed.
    """
    for number, stage in enumerate(stages):
        clock.advance(warehouse.instants(stage.name), instant)
        if number == 0 and produce is not None:
            produce()
        stage.query.processAllAvailable()
